/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: --reference computes what docs/ARITHMETIC.md says. Method: its pieces against second,
 * other spellings of the page (the tree as it is defined, by recursion; the optimizers as torch
 * has them, in f64), and whole runs: the loss falls, runs repeat bit by bit, equal ranks change
 * nothing.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/gpt/f16.h"
#include "examples/gpt/reference_math.h"
#include "examples/gpt/rng.h"
#include "examples/gpt/train.h"
#include "tests/guard/guard.h"

static float tree_as_defined(const float *values, uint32_t low, uint32_t high)
{
	uint32_t half = 1;

	if (high - low == 1)
		return values[low];
	while (half * 2 < high - low)
		half *= 2;
	return tree_as_defined(values, low, low + half) + tree_as_defined(values, low + half, high);
}

Test(reference, tree_splits_at_the_largest_power_of_two_below)
{
	struct gpt_rng rng = gpt_rng_init(1, GPT_RNG_VALUES, 0, 0, 0);

	for (uint32_t count = 1; count <= 64; count++) {
		float values[64], copy[64];
		float want;

		for (uint32_t i = 0; i < count; i++)
			values[i] = (float)(gpt_rng_normal(&rng) * pow(10, (double)(i % 7)));
		memcpy(copy, values, sizeof(copy));
		want = tree_as_defined(values, 0, count);
		cr_expect_eq(gpt_reference_tree(copy, count), want, "%u ranks", count);
	}
}

Test(reference, norm_is_that_of_all_elements_and_shows_what_is_not_finite)
{
	static float block[4096];
	double sums[3];

	for (unsigned i = 0; i < 4096; i++)
		block[i] = (float)(i % 5) - 2.0f;
	sums[0] = sums[1] = sums[2] = gpt_reference_block_sum(block, 0.5f);
	/* 819 times 4 + 1 + 0 + 1 + 4, and 4; times the square of 0.5. Sums of halves are exact. */
	cr_expect_eq(sums[0], 2048.5);
	cr_expect_eq(gpt_reference_norm(sums, 3), sqrt(3 * 2048.5));
	block[77] = INFINITY;
	sums[0] = gpt_reference_block_sum(block, 1.0f);
	cr_expect_not(isfinite(gpt_reference_norm(sums, 1)));
	block[77] = NAN;
	sums[0] = gpt_reference_block_sum(block, 1.0f);
	cr_expect_not(isfinite(gpt_reference_norm(sums, 1)));
}

Test(reference, clip_is_that_of_torch)
{
	cr_expect_eq(gpt_reference_clip(10.0, 0.0), 1.0f);
	cr_expect_eq(gpt_reference_clip(0.5, 1.0), 1.0f);
	cr_expect_eq(gpt_reference_clip(4.0, 1.0), (float)(1.0 / (4.0 + 1e-6)));
	cr_expect_eq(gpt_reference_clip(INFINITY, 1.0), 0.0f);
}

Test(reference, split_and_join_give_every_finite_value_back)
{
	struct gpt_rng rng = gpt_rng_init(2, GPT_RNG_VALUES, 0, 0, 0);

	for (unsigned i = 0; i < 1000000; i++) {
		float x = gpt_from_bits((uint32_t)gpt_rng_next(&rng));
		uint16_t param;
		int16_t remainder;

		gpt_reference_split(x, &param, &remainder);
		if (isnan(x))
			cr_assert_eq(gpt_bits(gpt_reference_join(param, remainder)), 0x7fc00000u);
		else
			cr_assert_eq(gpt_bits(gpt_reference_join(param, remainder)), gpt_bits(x));
	}
}

Test(reference, split_and_join_of_fp_sixteen_give_every_finite_value_back)
{
	struct gpt_rng rng = gpt_rng_init(4, GPT_RNG_VALUES, 0, 0, 0);

	for (unsigned i = 0; i < 1000000; i++) {
		float x = gpt_from_bits((uint32_t)gpt_rng_next(&rng));
		uint16_t param;
		int32_t remainder;

		gpt_reference_split_f16(x, &param, &remainder);
		cr_assert_eq(gpt_bits(gpt_reference_join_f16(param, remainder)),
		             isnan(x) ? 0x7fc00000u : gpt_bits(x));
	}
}

/* Whatever is nearer; halfway the even one. Every f16 with its upper neighbour. */
Test(reference, fp_sixteen_rounds_to_nearest_even)
{
	for (uint32_t bits = 0; bits < 0x7c00; bits++) {
		uint16_t next = (uint16_t)(bits + 1);
		float low = gpt_f16_widen((uint16_t)bits);
		float high = next == 0x7c00 ? 65536.0f : gpt_f16_widen(next);
		float middle = (low + high) / 2;

		cr_assert_lt(low, high);
		cr_assert_eq(gpt_f16_round(low), bits);
		cr_assert_eq(gpt_f16_round(-low), bits | 0x8000);
		cr_assert_eq(gpt_f16_round(middle), bits & 1 ? next : bits, "%a", (double)middle);
		cr_assert_eq(gpt_f16_round(nextafterf(middle, 0)), bits);
		cr_assert_eq(gpt_f16_round(nextafterf(middle, INFINITY)), next);
	}
	cr_expect_eq(gpt_f16_widen(0x0001), 0x1p-24f);
	cr_expect_eq(gpt_f16_widen(0x7bff), 65504.0f);
	cr_expect_eq(gpt_f16_widen(0xfc00), -INFINITY);
	cr_expect_eq(gpt_f16_round(1e30f), 0x7c00);
	cr_expect_eq(gpt_f16_round(-INFINITY), 0xfc00);
	cr_expect_eq(gpt_f16_round(gpt_from_bits(0xff802000)), 0xfe01);
	cr_expect_eq(gpt_bits(gpt_f16_widen(0xfc01)), 0xffc02000u);
}

Test(reference, bf16_rounds_to_nearest_even)
{
	const struct {
		uint32_t bits;
		uint16_t want;
	} cases[] = {
		{ 0x3f800000, 0x3f80 }, { 0x3f808000, 0x3f80 }, { 0x3f818000, 0x3f82 },
		{ 0x3f808001, 0x3f81 }, { 0x00000001, 0x0000 }, { 0x80018000, 0x8002 },
		{ 0x7f7fffff, 0x7f80 }, { 0x7f800000, 0x7f80 }, { 0xff800001, 0xffc0 },
		{ 0x7fffffff, 0x7fc0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_eq(gpt_bf16_round(gpt_from_bits(cases[i].bits)), cases[i].want, "0x%08x",
		             cases[i].bits);
}

/* torch.optim's formulas in f64. state: p, m, v. */
static void update_f64(enum zinf_optimizer optimizer, const struct zinf_step_options *o, int step,
                       double g, double state[3])
{
	double *p = &state[0], *m = &state[1], *v = &state[2];

	if (optimizer == ZINF_SGD) {
		g += o->weight_decay * *p;
		*m = step == 1 ? g : o->beta1 * *m + (1 - o->beta2) * g;
		*p -= o->lr * (o->nesterov ? g + o->beta1 * *m : *m);
		return;
	}
	if (optimizer == ZINF_ADAGRAD) {
		g += o->weight_decay * *p;
		*m += g * g;
		*p -= o->lr / (1 + (step - 1) * o->lr_decay) * g / (sqrt(*m) + o->eps);
		return;
	}
	if (optimizer == ZINF_ADAMW)
		*p -= o->lr * o->weight_decay * *p;
	else
		g += o->weight_decay * *p;
	*m = o->beta1 * *m + (1 - o->beta1) * g;
	*v = o->beta2 * *v + (1 - o->beta2) * g * g;
	if (o->no_bias_correction)
		*p -= o->lr * *m / (sqrt(*v) + o->eps);
	else
		*p -= o->lr * (*m / (1 - pow(o->beta1, step))) /
		      (sqrt(*v / (1 - pow(o->beta2, step))) + o->eps);
}

Test(reference, optimizers_are_those_of_torch)
{
	const enum zinf_optimizer optimizers[] = { ZINF_ADAMW, ZINF_ADAM,    ZINF_SGD, ZINF_SGD,
		                                   ZINF_ADAMW, ZINF_ADAGRAD, ZINF_ADAM };

	for (unsigned kind = 0; kind < sizeof(optimizers) / sizeof(optimizers[0]); kind++) {
		struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
		struct gpt_rng rng = gpt_rng_init(3, GPT_RNG_VALUES, kind, 0, 0);
		struct gpt_reference_state state = { .p = 0.7f };
		double want[3] = { (double)0.7f, 0, 0 };
		double power1 = 1, power2 = 1;

		options.weight_decay = 0.1;
		options.lr = 1e-2;
		options.beta2 = optimizers[kind] == ZINF_SGD ? 0.25 : 0.95;
		options.nesterov = kind == 3;
		options.no_bias_correction = kind == 4 || kind == 6;
		options.lr_decay = kind == 5 ? 0.125 : 0;
		for (int step = 1; step <= 50; step++) {
			struct gpt_reference_scalars scalars;
			float g = (float)gpt_rng_normal(&rng);

			power1 *= options.beta1;
			power2 *= options.beta2;
			gpt_reference_scalars_init(&scalars, optimizers[kind], &options, power1,
			                           power2, 1.0f, (uint64_t)step - 1);
			gpt_reference_update(&scalars, optimizers[kind], g, &state);
			update_f64(optimizers[kind], &options, step, (double)g, want);
			cr_assert_float_eq((double)state.p, want[0], 1e-5, "kind %u step %d", kind,
			                   step);
		}
	}
}

/* ---- whole runs ---- */

struct outcome {
	uint8_t *bytes; /* the dump */
	long byte_count;
	double loss; /* of the last step, mean of the ranks */
};

/* @flags: split at blanks, added to those of a tiny model. */
static struct outcome train(const char *flags)
{
	static const char base[] = "zinf-gpt --reference --quiet --layers 1 --heads 2 --d-model 32 "
				   "--seq-len 16 --batch-size 4 --steps 30 --lr 1e-2 --warmup 3";
	char line[512], path[64];
	struct gpt_problem problem = { "" };
	struct gpt_board *board = calloc(1, sizeof(*board));
	struct gpt_corpus corpus;
	struct gpt_model model;
	struct gpt_args args;
	struct gpt_run run = { .args = &args, .model = &model, .corpus = &corpus, .board = board };
	struct outcome outcome = { 0 };
	struct gpt_backend *backend;
	const char *argv[64];
	char *rest = NULL;
	int argc = 0, fd = mkstemp(guard_path(path, sizeof(path), "dump"));
	FILE *file;

	cr_assert_geq(fd, 0);
	(void)snprintf(line, sizeof(line), "%s --dump %s %s", base, path, flags);
	for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	cr_assert_eq(gpt_args_parse(&args, argc, argv, &problem), 0, "%s", problem.chars);
	cr_assert_eq(gpt_args_environment(&args, &problem), 0);
	cr_assert_eq(gpt_model_init(&model, &args.model, &problem), 0);
	cr_assert_eq(gpt_corpus_load(&corpus, args.data, args.model.sequence_count, &problem), 0);
	backend = gpt_reference_open(&args, &model, &problem);
	cr_assert(backend);
	cr_assert_eq(gpt_train(&run, backend, &problem), 0, "%s", problem.chars);
	outcome.loss =
		gpt_board_mean(board->losses[args.step_count % GPT_BOARD_ROWS], args.world_count);
	file = fopen(path, "rb");
	cr_assert(file);
	(void)fseek(file, 0, SEEK_END);
	outcome.byte_count = ftell(file);
	rewind(file);
	outcome.bytes = malloc((size_t)outcome.byte_count);
	cr_assert_eq(fread(outcome.bytes, 1, (size_t)outcome.byte_count, file),
	             (size_t)outcome.byte_count);
	cr_expect_eq(outcome.byte_count,
	             8 + (long)model.element_count * (args.is_bf16 || args.is_fp16 ? 2 : 4));
	(void)fclose(file);
	(void)close(fd);
	(void)unlink(path);
	backend->ops->close(backend);
	gpt_corpus_unload(&corpus);
	gpt_model_deinit(&model);
	free((void *)board);
	return outcome;
}

static bool is_equal(const struct outcome *a, const struct outcome *b)
{
	return a->byte_count == b->byte_count &&
	       memcmp(a->bytes, b->bytes, (size_t)a->byte_count) == 0;
}

Test(reference, loss_falls_in_thirty_steps_with_every_optimizer_and_type)
{
	const char *flags[] = {
		"",
		"--bf16",
		"--bf16 --f32-grads --grad-reduction per_micro_batch --grad-accum 2",
		"--fp16",
		"--fp16 --f32-grads --grad-accum 2 --optimizer adam",
		"--fp16 --loss-scale 64 --grad-reduction per_micro_batch --grad-accum 2",
		"--optimizer adam --weight-decay 0",
		"--optimizer sgd --lr 0.3 --ranks 3",
		"--optimizer adagrad --lr 0.03",
		"--optimizer lion --lr 2e-3 --bf16",
		"--clip 0 --grad-accum 2"
	};

	for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct outcome outcome = train(flags[i]);

		/* It begins at log 256 = 5.55. */
		cr_expect_lt(outcome.loss, 4.0, "with \"%s\": %g", flags[i], outcome.loss);
		free(outcome.bytes);
	}
}

Test(reference, a_run_repeats_bit_by_bit_and_another_seed_does_not)
{
	struct outcome first = train("--ranks 2 --bf16");
	struct outcome again = train("--ranks 2 --bf16");
	struct outcome other = train("--ranks 2 --bf16 --seed 2");
	int64_t step;

	memcpy(&step, first.bytes, sizeof(step));
	cr_expect_eq(step, 30);
	cr_expect(is_equal(&first, &again));
	cr_expect_eq(first.loss, again.loss);
	cr_expect_not(is_equal(&first, &other));
	free(first.bytes);
	free(again.bytes);
	free(other.bytes);
}

Test(reference, schedules_agree_when_there_is_one_micro_batch_in_f32)
{
	struct outcome local = train("--ranks 3");
	struct outcome sharded = train("--ranks 3 --grad-reduction per_micro_batch");

	cr_expect(is_equal(&local, &sharded));
	free(local.bytes);
	free(sharded.bytes);
}

Test(reference, evaluation_changes_nothing)
{
	struct outcome plain = train("--bf16");
	struct outcome evaluated = train("--bf16 --eval-every 7 --eval-batches 2");

	cr_expect(is_equal(&plain, &evaluated));
	free(plain.bytes);
	free(evaluated.bytes);
}

/* One step of one parameter space, with gradients that a test sets. */
struct single {
	struct gpt_args args;
	struct gpt_model model;
	struct gpt_backend *backend;
};

static void single_set_up(struct single *s, uint32_t world_count)
{
	const char *argv[] = { "zinf-gpt", "--layers=1", "--d-model=8", "--seq-len=4",
		               "--heads=1" };
	struct gpt_problem problem;

	cr_assert_eq(gpt_args_parse(&s->args, 5, argv, &problem), 0);
	s->args.world_count = world_count;
	cr_assert_eq(gpt_model_init(&s->model, &s->args.model, &problem), 0);
	s->backend = gpt_reference_open(&s->args, &s->model, &problem);
	cr_assert(s->backend);
	(void)s->backend->ops->commit(s->backend, NULL, 0);
}

/* Every rank's gradient of wte is @value. Return: what step() said. */
static int single_step(struct single *s, const struct zinf_step_options *options, float value,
                       uint32_t unit_count, struct zinf_step_stats *ret_stats)
{
	int r;

	cr_assert_eq(s->backend->ops->step_begin(s->backend, options), 0);
	for (uint32_t lane = 0; lane < s->args.world_count; lane++) {
		float *grad = s->backend->ops->grad(s->backend, lane, GPT_WTE);

		for (uint64_t i = 0; i < s->model.params[GPT_WTE].element_count; i++)
			grad[i] = value;
		for (uint32_t unit = 0; unit < unit_count; unit++)
			cr_assert_eq(s->backend->ops->reduce(s->backend, lane, unit), 0);
	}
	r = s->backend->ops->step(s->backend, NULL, 0);
	if (!r)
		cr_assert_eq(s->backend->ops->wait(s->backend, ret_stats), 0);
	return r;
}

static void single_tear_down(struct single *s)
{
	s->backend->ops->close(s->backend);
	gpt_model_deinit(&s->model);
}

Test(reference, one_rank_is_the_plain_loop_and_equal_ranks_are_one)
{
	for (uint32_t world = 1; world <= 4; world *= 2) {
		struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
		struct zinf_step_stats stats;
		struct single s;
		const float *p;
		double want[3] = { 0 };

		single_set_up(&s, world);
		for (int step = 1; step <= 3; step++) {
			cr_assert_eq(single_step(&s, &options, 0.5f, s.model.unit_count, &stats),
			             0);
			update_f64(ZINF_ADAMW, &options, step, 0.5, want);
			cr_expect_eq(stats.step, (uint64_t)step);
			cr_expect(isnan(stats.norm)); /* nobody asked for it */
		}
		p = s.backend->ops->param(s.backend, GPT_WTE);
		cr_expect_float_eq((double)p[0], want[0], 1e-8);
		cr_expect_eq(p[0], p[2047]);
		p = s.backend->ops->param(s.backend, GPT_WPE);
		cr_expect_eq(p[0], 0.0f); /* no gradient, no change */
		single_tear_down(&s);
	}
}

Test(reference, a_step_with_a_nan_changes_nothing_when_asked_to)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct zinf_step_stats stats;
	struct single s;
	float before;

	single_set_up(&s, 2);
	options.skip_nonfinite = true;
	cr_assert_eq(single_step(&s, &options, 1.0f, s.model.unit_count, &stats), 0);
	cr_expect_eq(stats.is_skipped, 0);
	before = *(const float *)s.backend->ops->param(s.backend, GPT_WTE);
	cr_assert_eq(single_step(&s, &options, NAN, s.model.unit_count, &stats), 0);
	cr_expect_eq(stats.is_skipped, 1);
	cr_expect_eq(stats.step, 2);
	cr_expect_eq(*(const float *)s.backend->ops->param(s.backend, GPT_WTE), before);
	options.skip_nonfinite = false;
	cr_assert_eq(single_step(&s, &options, NAN, s.model.unit_count, &stats), 0);
	cr_expect(isnan(*(const float *)s.backend->ops->param(s.backend, GPT_WTE)));
	single_tear_down(&s);
}

Test(reference, a_step_without_all_gradients_is_refused)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct zinf_step_stats stats;
	struct single s;

	single_set_up(&s, 1);
	cr_expect_lt(single_step(&s, &options, 1.0f, s.model.unit_count - 1, &stats), 0);
	single_tear_down(&s);
}

Test(reference, a_dump_that_cannot_be_written_is_an_error)
{
	struct gpt_problem problem = { "" };
	struct single s;

	single_set_up(&s, 1);
	cr_expect_lt(gpt_dump(&s.model, s.backend, 0, false, "/nowhere/at/all", &problem), 0);
	cr_expect(strstr(problem.chars, "/nowhere/at/all"));
	single_tear_down(&s);
}
