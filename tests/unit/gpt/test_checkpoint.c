/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: wherever activations lie between forward and backward, gradients have the bits of those
 * that were kept; memory is what was asked for; units are opened in the order that was announced;
 * and what fails on the way is told. Method: a model of five blocks on the reference backend, over
 * a double of zinf's tensors that takes what is put away at once.
 */
#include "tests/unit/gpt/fixture.h"
#include "tests/unit/gpt/tensors.h"

static const struct gpt_config five = {
	.layer_count = 5, .head_count = 2, .channel_count = 8, .sequence_count = 6, .batch_count = 3
};
enum { LAYERS = 5, STEPS_MAX = 64 };

static struct gpt_backend_ops ops;
static const struct gpt_backend_ops *reference_ops;

/* Units as they were opened, and what was asked for before each. */
static struct {
	uint32_t opened[STEPS_MAX], asked[STEPS_MAX];
	uint32_t count, newest;
} order;

static int note_unshard(struct gpt_backend *backend, uint32_t unit)
{
	cr_assert_lt(order.count, STEPS_MAX);
	order.asked[order.count] = order.newest;
	order.opened[order.count++] = unit;
	return reference_ops->unshard(backend, unit);
}

static int note_prefetch(struct gpt_backend *backend, uint32_t unit)
{
	order.newest = unit;
	return reference_ops->prefetch(backend, unit);
}

static void watch(struct fixture *f)
{
	reference_ops = f->backend->ops;
	ops = *reference_ops;
	tensors_into(&ops);
	ops.unshard = note_unshard;
	ops.prefetch = note_prefetch;
	f->backend->ops = &ops;
	order.count = 0;
	tensors_reset();
}

static int place_anew(struct fixture *f, uint32_t kind, uint32_t every)
{
	struct gpt_problem problem;

	gpt_activations_deinit(&f->acts);
	tensors_reset();
	f->args.activations = kind;
	f->args.checkpoint_every = every;
	return gpt_activations_init(&f->acts, &f->args, &f->model, f->backend, &problem);
}

/* Two micro-batches, and between them a forward that keeps nothing. Return: the first error. */
static int two_micro_batches(struct fixture *f, double losses[static 2])
{
	for (unsigned i = 0; i < 2; i++) {
		int r;

		order.count = 0;
		f->units.place = (struct gpt_units_place){ .micro_index = i, .micro_count = 2 };
		r = gpt_forward(&f->units, &f->acts, f->inputs[i], f->targets[i], &losses[i]);
		if (!r)
			r = gpt_backward(&f->units, &f->acts, f->inputs[i], f->targets[i]);
		if (!r)
			r = gpt_logits(&f->units, &f->acts, f->inputs[0], false);
		if (r)
			return r;
	}
	return 0;
}

/* All gradients, and the logits of the last forward. @ret: (bytes_of(),). */
static size_t bytes_of(const struct fixture *f)
{
	size_t each = f->units.grad_dtype == ZINF_F32 ? sizeof(float) : sizeof(uint16_t);

	return f->model.element_count * each + TOKENS * GPT_VOCAB * sizeof(float);
}

static void take(const struct fixture *f, char *ret)
{
	size_t each = f->units.grad_dtype == ZINF_F32 ? sizeof(float) : sizeof(uint16_t);

	for (uint32_t p = 0; p < f->model.param_count; p++) {
		size_t bytes = f->model.params[p].element_count * each;

		memcpy(ret, f->backend->ops->grad(f->backend, 0, p), bytes);
		ret += bytes;
	}
	memcpy(ret, f->acts.logits, TOKENS * GPT_VOCAB * sizeof(float));
}

static const struct {
	uint32_t kind, every;
} ways[] = {
	{ GPT_ACTIVATIONS_RECOMPUTE, 1 }, { GPT_ACTIVATIONS_RECOMPUTE, 2 },
	{ GPT_ACTIVATIONS_RECOMPUTE, 3 }, { GPT_ACTIVATIONS_RECOMPUTE, 5 },
	{ GPT_ACTIVATIONS_RECOMPUTE, 9 }, { GPT_ACTIVATIONS_CPU, 0 },
	{ GPT_ACTIVATIONS_CPU, 1 },       { GPT_ACTIVATIONS_CPU, 2 },
	{ GPT_ACTIVATIONS_NVME, 0 },      { GPT_ACTIVATIONS_NVME, 1 },
	{ GPT_ACTIVATIONS_NVME, 2 },      { GPT_ACTIVATIONS_NVME, 4 },
	{ GPT_ACTIVATIONS_NVME, 5 },
};
#define WAY_COUNT (sizeof(ways) / sizeof(ways[0]))

static void expect_same_bits(const char *first_flag, const char *second_flag)
{
	static struct fixture f;
	double kept[2], losses[2];
	char *wanted, *got;

	set_up(&f, &five, first_flag, second_flag);
	wanted = malloc(bytes_of(&f));
	got = malloc(bytes_of(&f));
	watch(&f);
	cr_assert_eq(two_micro_batches(&f, kept), 0);
	take(&f, wanted);
	for (size_t i = 0; i < WAY_COUNT; i++) {
		cr_assert_eq(place_anew(&f, ways[i].kind, ways[i].every), 0);
		cr_assert_eq(two_micro_batches(&f, losses), 0);
		cr_expect_eq(memcmp(kept, losses, sizeof(kept)), 0);
		take(&f, got);
		cr_expect_eq(memcmp(wanted, got, bytes_of(&f)), 0, "kind %u, every %u",
		             ways[i].kind, ways[i].every);
		if (ways[i].kind == GPT_ACTIVATIONS_NVME) {
			cr_expect_eq(tensors_left(), 0, "every %u", ways[i].every);
			cr_expect_leq(tensors.resident_max, 4);
		}
	}
	free(wanted);
	free(got);
	tensors_reset();
	tear_down(&f);
}

Test(checkpoint, every_way_gives_the_bits_of_keep)
{
	expect_same_bits(NULL, NULL);
}

Test(checkpoint, also_in_bf16)
{
	expect_same_bits("--bf16", NULL);
	expect_same_bits("--bf16", "--f32-grads");
}

Test(checkpoint, also_when_each_micro_batch_is_reduced)
{
	expect_same_bits("--grad-reduction=per_micro_batch", NULL);
}

Test(checkpoint, memory_is_what_is_stored)
{
	static struct fixture f;
	uint64_t row_bytes = TOKENS * 8 * sizeof(float), block_bytes, kept_bytes;

	set_up(&f, &five, NULL, NULL);
	watch(&f);
	kept_bytes = f.acts.blocks.arena_bytes;
	block_bytes = f.acts.blocks.piece_bytes - row_bytes;
	cr_expect_geq(block_bytes, 16 * row_bytes, "16 rows of C, and attention");
	cr_expect_eq(kept_bytes, LAYERS * (row_bytes + block_bytes) + row_bytes);
	cr_assert_eq(place_anew(&f, GPT_ACTIVATIONS_RECOMPUTE, 1), 0);
	cr_expect_eq(f.acts.blocks.arena_bytes, LAYERS * row_bytes + block_bytes + row_bytes);
	cr_assert_eq(place_anew(&f, GPT_ACTIVATIONS_RECOMPUTE, 2), 0);
	cr_expect_eq(f.acts.blocks.arena_bytes,
	             3 * row_bytes + 2 * block_bytes + row_bytes + row_bytes);
	cr_assert_eq(place_anew(&f, GPT_ACTIVATIONS_CPU, 0), 0);
	cr_expect_eq(f.acts.blocks.arena_bytes, row_bytes, "the last output is all");
	cr_expect_eq(tensors.budget_bytes, f.acts.blocks.tensor_bytes);
	cr_expect_eq(tensors.budget_bytes % 4096, 0);
	cr_expect_geq(tensors.budget_bytes, LAYERS * f.acts.blocks.piece_bytes);
	cr_expect_eq(tensors_left(), LAYERS);
	cr_assert_eq(place_anew(&f, GPT_ACTIVATIONS_NVME, 0), 0);
	cr_expect_eq(f.acts.blocks.arena_bytes, row_bytes);
	cr_expect_geq(tensors.budget_bytes, 4 * f.acts.blocks.piece_bytes);
	cr_expect_lt(tensors.budget_bytes, 4 * (f.acts.blocks.piece_bytes + 4096));
	cr_assert_eq(place_anew(&f, GPT_ACTIVATIONS_NVME, 3), 0);
	cr_expect_lt(tensors.budget_bytes, 2 * (row_bytes + 4096), "two checkpoints are all");
	tensors_reset();
	tear_down(&f);
}

/* What is opened next was asked for while the one before computed, unless it is still in use. */
static void expect_order(const uint32_t *units, uint32_t count)
{
	cr_assert_eq(order.count, count);
	for (uint32_t i = 0; i < count; i++) {
		cr_expect_eq(order.opened[i], units[i], "%u: unit %u, not %u", i, order.opened[i],
		             units[i]);
		if (i > 0 && units[i] != units[i - 1])
			cr_expect_eq(order.asked[i], units[i], "%u: %u was asked for, not %u", i,
			             order.asked[i], units[i]);
	}
}

Test(checkpoint, units_are_opened_in_the_order_that_is_announced)
{
	static struct fixture f;
	/* E 0: embeddings and head; blocks 1 to 5; the last norm 6. */
	const uint32_t kept[] = { 0, 1, 2, 3, 4, 5, 6, 0, 0, 6, 5, 4, 3, 2, 1 };
	const uint32_t pairs[] = { 0, 1, 2, 3, 4, 5, 6, 0, 0, 6, 5, 3, 4, 3, 1, 2, 1 };
	const uint32_t all[] = { 0, 1, 2, 3, 4, 5, 6, 0, 0, 6, 5, 4, 3, 2, 1 };
	double loss;

	set_up(&f, &five, NULL, NULL);
	watch(&f);
	f.units.place = (struct gpt_units_place){ .micro_count = 1 };
#define RUN(kind, every, wanted)                                                                   \
	do {                                                                                       \
		cr_assert_eq(place_anew(&f, (kind), (every)), 0);                                  \
		order.count = 0;                                                                   \
		cr_assert_eq(gpt_forward(&f.units, &f.acts, f.inputs[0], f.targets[0], &loss), 0); \
		cr_assert_eq(gpt_backward(&f.units, &f.acts, f.inputs[0], f.targets[0]), 0);       \
		expect_order((wanted), sizeof(wanted) / sizeof(*(wanted)));                        \
	} while (0)
	RUN(GPT_ACTIVATIONS_KEEP, 0, kept);
	RUN(GPT_ACTIVATIONS_RECOMPUTE, 1, kept);
	RUN(GPT_ACTIVATIONS_RECOMPUTE, 2, pairs);
	RUN(GPT_ACTIVATIONS_NVME, 2, pairs);
	RUN(GPT_ACTIVATIONS_RECOMPUTE, 5, all);
	tensors_reset();
	tear_down(&f);
}

Test(checkpoint, pieces_come_back_two_ahead)
{
	static struct fixture f;
	double loss;

	set_up(&f, &five, NULL, NULL);
	watch(&f);
	f.units.place = (struct gpt_units_place){ .micro_count = 1 };
	cr_assert_eq(place_anew(&f, GPT_ACTIVATIONS_NVME, 0), 0);
	cr_assert_eq(gpt_forward(&f.units, &f.acts, f.inputs[0], f.targets[0], &loss), 0);
	cr_expect_eq(tensors_left(), LAYERS, "all of them are stored");
	cr_assert_eq(gpt_backward(&f.units, &f.acts, f.inputs[0], f.targets[0]), 0);
	cr_expect_eq(tensors.cold_map_count, 1, "the last block's alone, which is still there");
	cr_expect_eq(tensors.fetched_max, 2);
	cr_expect_eq(tensors_left(), 0);
	tear_down(&f);
}

/* Whichever call of the daemon fails, in whichever way activations lie. */
Test(checkpoint, what_fails_on_the_way_is_told)
{
	static struct fixture f;
	double losses[2];

	set_up(&f, &five, NULL, NULL);
	watch(&f);
	for (size_t i = 0; i < WAY_COUNT; i++) {
		uint32_t call_count;

		if (ways[i].kind == GPT_ACTIVATIONS_RECOMPUTE)
			continue;
		cr_assert_eq(place_anew(&f, ways[i].kind, ways[i].every), 0);
		cr_assert_eq(two_micro_batches(&f, losses), 0);
		call_count = tensors.call_count;
		cr_assert_gt(call_count, 0);
		for (uint32_t at = 1; at <= call_count; at++) {
			struct gpt_problem problem;
			int r;

			gpt_activations_deinit(&f.acts);
			tensors_reset();
			tensors.fail_at = at;
			r = gpt_activations_init(&f.acts, &f.args, &f.model, f.backend, &problem);
			if (!r)
				r = two_micro_batches(&f, losses);
			cr_expect_eq(r, -EIO, "kind %u, every %u, call %u: %d", ways[i].kind,
			             ways[i].every, at, r);
		}
	}
	tensors_reset();
	tear_down(&f);
}
