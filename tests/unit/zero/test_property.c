/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever the order in which gradients arrive, and whenever the update begins, a step gives
 * the bits of docs/ARITHMETIC.md. Method: models, types, schedules, ranks, sets of them, resident
 * shares, pools,
 * staging that is kept or not, clip values and non-finite gradients drawn from a seed; ranks hand
 * their units over in an order of their own, interleaved by the dice, on a device that ends tasks
 * in a drawn order; beside it the plain computation, which knows of none of this.
 */
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/warm.h"
#include "tests/unit/zero/world.h"

#define CASES 40u
#define STEPS 3u
#define WORLD 3u

static uint64_t random_state;
static uint32_t warm_count; /* steps that left something in their slots */
static bool has_buckets;
static uint32_t bucket_count; /* cases with them */

static uint32_t draw(uint32_t below)
{
	random_state += 0x9e3779b97f4a7c15ull;
	return (uint32_t)(test_noise(random_state) % below);
}

/* Parameters there too, perhaps: in a pool for the largest unit, some more, or as is chosen. */
static void draw_pool(struct zi_job_config *drawn)
{
	uint64_t largest = 0;

	if (draw(2))
		return;
	for (uint32_t unit = 0; unit < UNITS; unit++)
		largest = ZI_MAX(largest, zi_geometry_padded(model_elements[unit]));
	drawn->offload_param = ZI_OFFLOAD_NVME;
	if (draw(4))
		drawn->param_budget_bytes = (largest + draw(20) * 4096) *
		                            zi_dtype_bytes((enum zi_dtype)drawn->param_dtype);
}

/* Units of two sets, which may be of the same ranks, or overlap; or all of all ranks. */
static void draw_sets(uint32_t seed, uint32_t world)
{
	uint64_t kept_state = random_state;
	static struct model_set sets[UNITS];
	struct model_set two[2];

	/* All else is drawn as without them. */
	random_state = seed * 0x2545f491ull;
	two[0] = (struct model_set){ "one", 1 + draw((1u << world) - 1) };
	two[1] = (struct model_set){ "other", 1 + draw((1u << world) - 1) };
	for (uint32_t unit = 0; unit < UNITS; unit++)
		sets[unit] = two[draw(2)];
	model_sets = draw(2) ? sets : NULL;
	random_state = kept_state;
}

static struct zi_job_config draw_config(void)
{
	uint32_t dtype = 1 + draw(_ZI_DTYPE_FLOAT_COUNT - 1);
	struct zi_job_config drawn =
		model_config(dtype, draw(4) ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);

	if (draw(3) == 0)
		drawn.grad_dtype = ZI_DTYPE_F32;
	drawn.optimizer = 1 + draw(_ZI_OPTIMIZER_COUNT - 1);
	drawn.schedule = draw(2) ? ZI_SCHEDULE_LOCAL : ZI_SCHEDULE_SHARDED;
	if (drawn.offload_optimizer == ZI_OFFLOAD_NVME) {
		drawn.resident_bytes = draw(3) * 2 * MIB;
		drawn.commit_interval = draw(4);
		drawn.staging_bytes = (draw(3) + (dtype == ZI_DTYPE_F16 ? 4 : 3)) * 3 * MIB;
		draw_pool(&drawn);
	}
	return drawn;
}

/* Gradients in buckets, perhaps: where those of one unit, and the sums, are less than a plane for
 * each rank. */
static struct zi_job_training draw_training(const struct zi_job_config *drawn)
{
	struct zi_job_training training = { .strategy = draw(4) ? ZI_STRATEGY_ZERO3
		                                                : draw(_ZI_STRATEGY_COUNT) };
	uint64_t largest = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		largest = ZI_MAX(largest, zi_geometry_padded(model_elements[unit]));
	/* On NVMe some of the sums then go to the store, but never in f32. */
	if (training.strategy >= ZI_STRATEGY_ZERO2 && draw(4) &&
	    (drawn->grad_dtype != ZI_DTYPE_F32 || drawn->offload_optimizer != ZI_OFFLOAD_NVME))
		training.grad_budget_bytes =
			largest * zi_dtype_bytes((enum zi_dtype)drawn->grad_dtype);
	return training;
}

static struct zi_step_options draw_options(const struct zi_job_config *drawn)
{
	struct zi_step_options options = model_options();

	options.flags = draw(4) ? ZI_STEP_UPDATE_EARLY : 0;
	if (drawn->schedule == ZI_SCHEDULE_SHARDED)
		options.micro_batches = 1 + draw(3);
	if (draw(3) == 0)
		options.max_norm = draw(2) ? 0.25 : 1e6;
	if (draw(3) == 0)
		options.flags |= ZI_STEP_SKIP_NONFINITE;
	if (draw(4) == 0)
		options.flags |= ZI_STEP_SUM;
	return options;
}

/* One rank's way through a step: micro-batch by micro-batch, units in an order of its own. */
struct walk {
	uint32_t order[UNITS];
	uint32_t micro, unit;
};

static void shuffle(struct walk *walk)
{
	for (uint32_t i = 0; i < UNITS; i++) {
		uint32_t other = draw(i + 1);

		walk->order[i] = walk->order[other];
		walk->order[other] = i;
	}
}

/* Return: false at its end. */
static bool walk_on(struct walk *walk, struct actor *actor, uint64_t step,
                    const struct zi_step_options *options)
{
	uint32_t unit = walk->order[walk->unit];
	bool is_mine = set_has(actor->rank->job, unit, actor->number);
	bool is_used = draw(2) && (is_mine || !(options->flags & ZI_STEP_UPDATE_EARLY));

	if (walk->micro == options->micro_batches)
		return false;
	if (is_used)
		cr_assert_eq(actor_unit(actor, zero_unshard, unit), 0, "%s", actor->text.chars);
	if (is_mine) {
		cr_assert_eq(actor_unit(actor, zero_grad_acquire, unit), 0, "%s",
		             actor->text.chars);
		model_fill_grad(actor, step, walk->micro, unit);
		cr_assert_eq(actor_unit(actor, zero_reduce, unit), 0, "%s", actor->text.chars);
	}
	for (uint32_t turns = draw(8); turns > 0; turns--)
		node_turn(&node);
	if (is_used)
		cr_assert_eq(actor_unit(actor, zero_reshard, unit), 0, "%s", actor->text.chars);
	if (++walk->unit < UNITS)
		return true;
	walk->unit = 0;
	walk->micro++;
	if (!has_buckets)
		shuffle(walk);
	return true;
}

/* A rank may be a micro-batch ahead in units whose buffer it was given back: those that wait for
 * another rank are left to the others, so that nobody waits here. */
static bool can_walk(const struct walk *walks, uint32_t index, uint32_t world)
{
	uint32_t mine = walks[index].micro * UNITS + walks[index].unit;

	for (uint32_t i = 0; i < world; i++) {
		/* With a bucket for one unit one order, and nobody ahead. */
		if (has_buckets && walks[i].micro * UNITS + walks[i].unit < mine)
			return false;
		if (walks[i].micro < walks[index].micro)
			return false;
	}
	return true;
}

static void gradients(uint32_t world, uint64_t step, const struct zi_step_options *options)
{
	struct walk walks[WORLD] = { 0 };
	uint32_t left = world * options->micro_batches * UNITS;

	shuffle(&walks[0]);
	for (uint32_t i = 1; i < world; i++) {
		walks[i] = walks[0];
		if (!has_buckets)
			shuffle(&walks[i]);
	}
	while (left > 0) {
		uint32_t index = draw(world);

		if (can_walk(walks, index, world) &&
		    walk_on(&walks[index], &actors[index], step, options))
			left--;
	}
}

/* One element of one gradient is not finite, perhaps. Return: the step is to be skipped. */
static bool draw_poison(uint32_t world, uint64_t step, const struct zi_step_options *options)
{
	uint32_t unit = draw(UNITS);
	uint32_t rank = draw(world);

	while (!(model_members(unit, world) >> rank & 1))
		rank = (rank + 1) % world;
	poison = (struct poison){
		.what = grad_what(step, draw(options->micro_batches), rank, unit),
		.index = draw((uint32_t)model_elements[unit]),
		.value = draw(2) ? INFINITY : -NAN,
		.count = draw(3) == 0,
	};
	return poison.count && options->flags & ZI_STEP_SKIP_NONFINITE;
}

static void one_step(uint32_t seed, uint32_t world, const struct zi_job_config *drawn,
                     uint64_t step)
{
	struct zi_step_options options = draw_options(drawn);
	bool is_skipped = draw_poison(world, step, &options);
	int r;

	r = all_call(actors, world, zero_step_begin, &(struct zero_op){ .options = options });
	cr_assert_eq(r, 0, "seed %u: %s", seed, actors[0].text.chars);
	gradients(world, step, &options);
	cr_assert_eq(all_call(actors, world, zero_step, NULL), 0, "seed %u: %s", seed,
	             actors[0].text.chars);
	cr_assert_eq(actors[0].calls[0].op.stats.is_skipped, is_skipped, "seed %u", seed);
	if (!is_skipped)
		plain_step(&plain, step, &options);
	cr_assert(plain_equals(&plain, &actors[world - 1]),
	          "seed %u, step %llu: world %u, flags %u, max_norm %g, poison %u", seed,
	          (unsigned long long)step, world, options.flags, options.max_norm, poison.count);
	poison.count = 0;
	warm_count += warm_bytes(node_job(&node, "train")) > 0;
}

/* The fixture's model, of other lengths. */
static int materialize(uint32_t world)
{
	for (uint32_t i = 0; i < world; i++)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			char name[8];

			(void)snprintf(name, sizeof(name), "u%u", unit);
			layout_set_of(&actors[i], unit);
			layout_unit(&actors[i], name);
			layout_param(&actors[i], name, model_elements[unit], 0);
		}
	return all_call(actors, world, zero_materialize, NULL);
}

static void one_case(uint32_t seed)
{
	struct zi_job_config drawn;
	uint32_t world;

	random_state = seed * 0x51ull;
	for (uint32_t unit = 0; unit < UNITS; unit++)
		model_elements[unit] = 1 + draw(draw(3) ? 60000 : 600000);
	world = draw(4) ? WORLD : 1 + draw(WORLD);
	drawn = draw_config();
	draw_sets(seed, world);
	node_init(&node);
	node.seed = seed;
	node.store_bytes = 96 * MIB;
	node_start(&node);
	node.zero->options.is_staging_kept = draw(4) > 0;
	plain_init(&plain, &drawn, world);
	model_attach(
		&node, actors, world,
		&(struct attach_options){ .config = drawn, .training = draw_training(&drawn) });
	cr_assert_eq(materialize(world), 0, "seed %u: %s", seed, actors[0].text.chars);
	has_buckets = node_job(&node, "train")->grad_pool;
	bucket_count += has_buckets;
	for (uint32_t i = 0; i < world; i++)
		zero_materialized(actors[i].rank, &actors[i].memory);
	model_write(actors, world);
	for (uint64_t step = 1; step <= STEPS; step++)
		one_step(seed, world, &drawn, step);
	end(world);
}

/* In four pieces, so that they run beside each other. */
static void cases(uint32_t piece)
{
	for (uint32_t seed = piece; seed < CASES; seed += 4)
		one_case(seed);
	cr_assert_gt(warm_count, 5);
	cr_assert_gt(bucket_count, 0);
}

Test(zero_property, drawn_steps_give_the_plain_bits_1)
{
	cases(0);
}

Test(zero_property, drawn_steps_give_the_plain_bits_2)
{
	cases(1);
}

Test(zero_property, drawn_steps_give_the_plain_bits_3)
{
	cases(2);
}

Test(zero_property, drawn_steps_give_the_plain_bits_4)
{
	cases(3);
}
