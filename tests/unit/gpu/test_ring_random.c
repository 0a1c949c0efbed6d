/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a host does, and in whatever order the streams run, a use sees the bytes of its
 * unit, no write meets a read or another write, and every answer of the ring is right. A demand is
 * never refused while the units in use are neighbours. Reading ahead costs no copies. Method:
 * drawn units, arenas from the least to all units, and drawn decisions beside
 * tests/harness/ring_model.h. A failure names its seed.
 */
#include "tests/harness/draw.h"
#include "tests/unit/gpu/ring.h"

#define ACTIONS 800u

/* A drawn model and arena. */
struct world {
	struct scene scene;
	struct ring_model model;
	struct zi_gpu_need need;
	uint64_t state;
};

/* Every third ring holds all units, every third the least. */
static uint32_t draw_chunk_count(struct world *world)
{
	uint32_t least = (uint32_t)world->need.least_count, all = (uint32_t)world->need.all_count;

	switch (draw_number(&world->state, 3)) {
	case 0:
		return least;
	case 1:
		return all + draw_number(&world->state, 3);
	default:
		return least + draw_number(&world->state, all - least + 1);
	}
}

/* @apart_share: one of so many units lies apart; 0: none. */
static void world_init(struct world *world, uint64_t seed, uint32_t neighbour_count,
                       uint32_t apart_share)
{
	uint32_t chunks[12], unit_count, chunks_max;
	struct zi_gpu_units *units;

	world->state = draw_begin(seed);
	unit_count = 2 + draw_number(&world->state, 11);
	chunks_max = 1 + draw_number(&world->state, 5);
	for (uint32_t i = 0; i < unit_count; i++)
		chunks[i] = 1 + draw_number(&world->state, chunks_max);
	units = scene_init(&world->scene, chunks, unit_count);
	units->neighbour_count = neighbour_count;
	for (uint32_t i = 0; apart_share && i < unit_count; i++)
		world->scene.list[i].is_apart = draw_number(&world->state, apart_share) == 0;
	cr_assert_eq(zi_gpu_need(units, NULL, &world->need), 0);
	cr_assert_eq(ring_model_init(&world->model, units, draw_chunk_count(world)), 0);
	cr_assert_str_empty(world->model.failure, "seed %lu: %s", seed, world->model.failure);
}

static void world_deinit(struct world *world, uint64_t seed)
{
	ring_model_drain(&world->model);
	cr_assert_str_empty(world->model.failure, "seed %lu: %s", seed, world->model.failure);
	ring_model_deinit(&world->model);
}

Test(gpu_ring_random, uses_see_their_bytes_whatever_comes)
{
	uint64_t copy_count = 0, busy_count = 0, prefetch_count = 0, displaced_count = 0;

	each_draw(seed, 11000) {
		struct world world;

		world_init(&world, seed, 1, 6);
		if (seed % 5 == 4)
			ring_model_cycle(&world.model);
		for (uint32_t i = 0; i < ACTIONS && !world.model.failure[0]; i++)
			ring_model_act_param(&world.model, draw_number, &world.state);
		copy_count += world.model.copy_count;
		busy_count += world.model.busy_count;
		prefetch_count += world.model.prefetch_count;
		displaced_count += world.model.displaced_count;
		world_deinit(&world, seed);
	}
	/* All of it has come, and often. */
	cr_expect_gt(copy_count, draw_share(100000), "%lu", copy_count);
	cr_expect_gt(busy_count, draw_share(20000), "%lu", busy_count);
	cr_expect_gt(prefetch_count, draw_share(20000), "%lu", prefetch_count);
	cr_expect_gt(displaced_count, draw_share(20000), "%lu", displaced_count);
}

Test(gpu_ring_random, gradients_reach_the_host_as_they_were_written)
{
	uint64_t busy_count = 0;

	each_draw(seed, 5500) {
		struct world world;

		world_init(&world, seed, 1, 6);
		for (uint32_t i = 0; i < ACTIONS && !world.model.failure[0]; i++)
			ring_model_act_grad(&world.model, draw_number, &world.state);
		busy_count += world.model.busy_count;
		world_deinit(&world, seed);
	}
	cr_expect_gt(busy_count, draw_share(20000), "%lu", busy_count);
}

/* ---- a demand goes on ---- */

static void begin_use(struct world *world, uint32_t unit, uint64_t seed)
{
	int r = ring_model_unshard(&world->model, unit);

	cr_assert_neq(r, ZI_GPU_RING_E_BUSY, "seed %lu: unit %u is refused for unit %u", seed, unit,
	              zi_gpu_ring_blocker(world->model.ring, unit));
	if (r)
		ring_model_copy(&world->model, unit);
}

static void run_some(struct world *world)
{
	uint32_t unit, count = draw_number(&world->state, 6);

	if (draw_number(&world->state, 2) && ring_model_prefetch(&world->model, &unit) &&
	    draw_number(&world->state, 2))
		ring_model_copy(&world->model, unit);
	for (uint32_t i = 0; i < count; i++)
		(void)ring_model_run(&world->model, (enum ring_stream)draw_number(
							    &world->state, _RING_STREAM_COUNT));
}

Test(gpu_ring_random, demand_is_never_refused_while_no_other_unit_is_in_use)
{
	each_draw(seed, 2200) {
		struct world world;

		world_init(&world, seed, 1, 0);
		for (uint32_t i = 0; i < 60; i++) {
			uint32_t unit = draw_number(&world.state, world.model.unit_count);

			begin_use(&world, unit, seed);
			run_some(&world);
			ring_model_reshard(&world.model, unit);
			if (draw_number(&world.state, 12) == 0)
				ring_model_step(&world.model);
		}
		world_deinit(&world, seed);
	}
}

/* A window over the units that are not apart moves to and fro. All of it is in use, and each unit
 * apart too. */
Test(gpu_ring_random, demand_is_never_refused_within_neighbours)
{
	each_draw(seed, 2200) {
		uint32_t line[RING_MODEL_UNITS_MAX], count = 0, first = 0, wide = 1 + seed % 4;
		struct world world;

		world_init(&world, seed, wide, 5);
		for (uint32_t i = 0; i < world.model.unit_count; i++) {
			if (world.model.units[i].is_apart)
				begin_use(&world, i, seed);
			else
				line[count++] = i;
		}
		wide = ZI_MIN(wide, count);
		for (uint32_t i = 0; i < wide; i++)
			begin_use(&world, line[i], seed);
		for (uint32_t i = 0; wide && i < 60; i++) {
			bool goes_up = draw_number(&world.state, 8) < (i / 20 == 1 ? 1 : 7);

			run_some(&world);
			if (goes_up && first + wide < count) {
				ring_model_reshard(&world.model, line[first]);
				begin_use(&world, line[first++ + wide], seed);
			} else if (!goes_up && first) {
				ring_model_reshard(&world.model, line[first - 1 + wide]);
				begin_use(&world, line[--first], seed);
			}
		}
		world_deinit(&world, seed);
	}
}

/* ---- what reading ahead costs ---- */

/* Copies of a step that follows the order. */
static uint64_t step(struct world *world, const uint32_t *uses, uint32_t count, bool is_ahead,
                     uint64_t seed)
{
	uint64_t before = world->model.copy_count;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t unit;

		while (is_ahead && !world->model.failure[0] &&
		       ring_model_prefetch(&world->model, &unit))
			ring_model_copy(&world->model, unit);
		begin_use(world, uses[i], seed);
		ring_model_reshard(&world->model, uses[i]);
	}
	ring_model_step(&world->model);
	return world->model.copy_count - before;
}

Test(gpu_ring_random, reading_ahead_costs_no_more_copies_than_reading_on_demand)
{
	uint64_t prefetch_count = 0;

	each_draw(seed, 2200) {
		uint32_t uses[24], count;
		struct world world;
		uint64_t plain;

		world_init(&world, seed, 1, seed % 2 ? 6 : 0);
		count = 1 + draw_number(&world.state, ZI_COUNT_OF(uses));
		for (uint32_t i = 0; i < count; i++)
			uses[i] = draw_number(&world.state, world.model.unit_count);
		plain = step(&world, uses, count, false, seed);
		cr_assert_eq(step(&world, uses, count, true, seed), plain, "seed %lu", seed);
		cr_assert_eq(step(&world, uses, count, true, seed), plain, "seed %lu", seed);
		cr_assert_eq(world.model.order.change_count, 0);
		prefetch_count += world.model.prefetch_count;
		world_deinit(&world, seed);
	}
	cr_expect_gt(prefetch_count, draw_share(10000), "%lu", prefetch_count);
}
