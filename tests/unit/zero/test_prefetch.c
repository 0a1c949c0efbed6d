/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: from the second step on a rank finds its units in the pool before it asks, whatever their
 * order, as long as it is that of the step before; what was read ahead never stands in the way of a
 * demand, and never costs what is used sooner. Method: eight equal units, a pool for three, and a
 * node that is let come to rest between any two uses, so that what could be read ahead was.
 */
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/flip.h"
#include "tests/unit/zero/gate.h"
#include "tests/unit/zero/pool.h"

#define MANY       8u
#define UNIT_SLOTS 8u /* 16384 elements of bf16 */

TestSuite(zero_prefetch, .timeout = 120);

static bool forward_only;

static void many_begin(uint32_t world, uint32_t units_held)
{
	struct zi_job_training training = {
		.flags = forward_only ? ZI_TRAINING_FORWARD_ONLY : 0,
	};

	config = pool_config(units_held * UNIT_SLOTS * SLOT);
	node_init(&node);
	node_start(&node);
	model_attach(&node, actors, world,
	             &(struct attach_options){ .config = config, .training = training });
	for (uint32_t i = 0; i < world; i++)
		for (uint32_t unit = 0; unit < MANY; unit++) {
			char name[8];

			(void)snprintf(name, sizeof(name), "u%u", unit);
			layout_unit(&actors[i], name);
			layout_param(&actors[i], name, 16384, 0);
		}
	cr_assert_eq(all_call(actors, world, zero_materialize, NULL), 0, "%s",
	             actors[0].text.chars);
	cr_assert_eq(all_call(actors, world, zero_commit, NULL), 0);
}

static void many_end(uint32_t world)
{
	for (uint32_t i = 0; i < world; i++)
		actor_leave(&actors[i], true);
	node_deinit(&node);
}

static void use(uint32_t world, const char *units)
{
	for (const char *unit = units; *unit; unit++)
		for (uint32_t i = 0; i < world; i++) {
			unshard(&actors[i], (uint32_t)(*unit - 'a'));
			node_settle(&node);
			reshard(&actors[i], (uint32_t)(*unit - 'a'));
			node_settle(&node);
		}
}

/* The end of a step in which every unit was used in the order of @units. */
static void step(uint32_t world, const char *units)
{
	struct zi_step_options options = model_options();

	cr_assert_eq(
		all_call(actors, world, zero_step_begin, &(struct zero_op){ .options = options }),
		0, "%s", actors[0].text.chars);
	use(world, units);
	for (uint32_t unit = 0; unit < MANY; unit++)
		cr_assert_eq(
			all_call(actors, world, zero_reduce, &(struct zero_op){ .unit = unit }), 0);
	cr_assert_eq(all_call(actors, world, zero_step, NULL), 0, "%s", actors[0].text.chars);
	node_settle(&node);
}

/* Unshards of a step that did not find their unit. */
static uint64_t step_misses(uint32_t world, const char *units)
{
	uint64_t before = pool_of()->miss_count + pool_of()->late_count;

	step(world, units);
	return pool_of()->miss_count + pool_of()->late_count - before;
}

Test(zero_prefetch, second_step_finds_every_unit)
{
	static const char *const orders[] = { "abcdefghhgfedcba", "aabbaahgfedcbaccdd", "hgfedcba",
		                              "abacadaeafagah" };

	for (size_t i = 0; i < ZI_COUNT_OF(orders); i++) {
		many_begin(1, 3);
		cr_assert_geq(step_misses(1, orders[i]), MANY, "%s: nothing is known", orders[i]);
		for (int k = 0; k < 3; k++)
			cr_assert_eq(step_misses(1, orders[i]), 0, "%s", orders[i]);
		cr_assert_eq(pool_of()->order.change_count, 0);
		many_end(1);
	}
}

/* Backward begins with what forward ended with: by age alone that is there. */
Test(zero_prefetch, first_step_keeps_what_was_used_last)
{
	many_begin(1, 3);
	cr_assert_eq(step_misses(1, "abcdefghhgfedcba"), 8 + 5);
	many_end(1);
}

Test(zero_prefetch, changed_order_is_recorded_anew)
{
	many_begin(1, 3);
	step(1, "abcdefghhgfedcba");
	cr_assert_eq(step_misses(1, "abcdefghhgfedcba"), 0);
	cr_assert_gt(step_misses(1, "abcdhgfeabcdefgh"), 0);
	cr_assert_eq(pool_of()->order.change_count, 1);
	cr_assert_eq(step_misses(1, "abcdhgfeabcdefgh"), 0);
	cr_assert_eq(pool_of()->order.change_count, 1);
	many_end(1);
}

static void forward_begin(uint32_t world)
{
	forward_only = true;
	many_begin(world, 3);
}

static uint64_t pass_misses(uint32_t world, const char *units)
{
	uint64_t before = pool_of()->miss_count + pool_of()->late_count;

	use(world, units);
	return pool_of()->miss_count + pool_of()->late_count - before;
}

/* Nothing is trained: passes are read ahead across their ends, also where one ends with the unit
 * that it began with. */
Test(zero_prefetch, passes_without_steps_are_read_ahead_once_seen_twice)
{
	static const char *const passes[] = { "abcdefgh", "abcdefgha", "aabbaahgfedcbaccdd" };

	for (size_t i = 0; i < ZI_COUNT_OF(passes); i++)
		for (uint32_t world = 1; world <= 3; world += 2) {
			forward_begin(world);
			for (int k = 0; k < 4; k++)
				(void)pass_misses(world, passes[i]);
			for (int k = 0; k < 3; k++)
				cr_assert_eq(pass_misses(world, passes[i]), 0, "%s", passes[i]);
			many_end(world);
		}
}

Test(zero_prefetch, ranks_in_step_read_each_unit_once)
{
	many_begin(3, 3);
	step(3, "abcdefghhgfedcba");
	for (int k = 0; k < 2; k++)
		cr_assert_eq(step_misses(3, "abcdefghhgfedcba"), 0);
	many_end(3);
}

/* Where a unit's parameters lie in the store. */
static uint64_t place_of(uint32_t unit)
{
	const struct zero_job *job = node_job(&node, "train");

	return job->subgroups[job->units[unit].subgroup_first]
	        .places[ZERO_PLANE_PARAM]
	        .extent.offset_bytes;
}

/* What is damaged is read ahead once, and again when somebody has needed it, or it has changed. */
Test(zero_prefetch, damage_that_is_read_ahead_is_not_read_again_and_again)
{
	uint64_t read_bytes;

	many_begin(1, 3);
	step(1, "abcdefgh");
	use(1, "abcd");
	flip(node.store_path, place_of(7));
	read_bytes = pool_of()->fetches.read_bytes;
	use(1, "efg");
	cr_assert(!pool_has(7));
	cr_expect_leq(pool_of()->fetches.read_bytes - read_bytes, 8 * UNIT_SLOTS * SLOT);
	expect_refused(&actors[0], -EBADMSG, "are damaged",
	               actor_unit(&actors[0], zero_unshard, 7));
	node_settle(&node);
	flip(node.store_path, place_of(7));
	cr_expect_eq(actor_unit(&actors[0], zero_unshard, 7), 0, "%s", actors[0].text.chars);
	cr_expect_eq(actor_unit(&actors[0], zero_reshard, 7), 0);
	many_end(1);
}

/* Two are read for "ab", and "h" comes instead: nothing of what was read ahead is in the way. */
Test(zero_prefetch, what_was_read_ahead_yields_to_a_demand)
{
	many_begin(1, 2);
	step(1, "abcdefgh");
	cr_assert(pool_has(0) && pool_has(1), "read ahead");
	unshard(&actors[0], 7);
	unshard(&actors[0], 6);
	cr_assert(pool_has(7) && pool_has(6));
	expect_refused(&actors[0], -ENOSPC, "reshard first",
	               actor_unit(&actors[0], zero_unshard, 5));
	many_end(1);
}

Test(zero_prefetch, hint_brings_a_unit_but_takes_no_pinned_one)
{
	many_begin(1, 2);
	cr_assert_eq(actor_unit(&actors[0], zero_prefetch, 4), 0);
	node_settle(&node);
	cr_assert(pool_has(4));
	unshard(&actors[0], 0);
	unshard(&actors[0], 1);
	cr_assert_eq(actor_unit(&actors[0], zero_prefetch, 4), 0, "a hint is never refused");
	node_settle(&node);
	cr_assert(pool_has(0) && pool_has(1) && !pool_has(4));
	many_end(1);
}

/* Bytes read for parameters in a step that follows its order are those of the best evictions there
 * are (test_room.c), not more: what is read ahead is used before it goes. */
Test(zero_prefetch, reading_ahead_costs_no_more_bytes_than_reading_on_demand)
{
	const uint64_t unit_bytes = UNIT_SLOTS * SLOT;
	uint64_t before_bytes;

	many_begin(1, 3);
	step(1, "abcdefghhgfedcba");
	step(1, "abcdefghhgfedcba");
	before_bytes = pool_of()->fetches.read_bytes;
	step(1, "abcdefghhgfedcba");
	/* 16 uses; with three places ten of them have to be read: 5 forward, 5 backward. */
	cr_assert_leq(pool_of()->fetches.read_bytes - before_bytes, 11 * unit_bytes);
	many_end(1);
}

/* ---- at the end of a step ---- */

/* While the commit of a step is under way, what the next forward uses first is read, as much as the
 * pool holds; here until it is there. */
static void reads_ahead_before_the_commit(uint32_t flags)
{
	struct zi_step_options options = model_options();
	const struct zero_job *job;

	options.flags = flags;
	many_begin(1, 3);
	job = node_job(&node, "train");
	for (uint64_t number = 1; number <= 3; number++) {
		uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

		cr_assert_eq(actor_call(&actors[0], zero_step_begin,
		                        &(struct zero_op){ .options = options }),
		             0, "%s", actors[0].text.chars);
		use(1, "abcdefgh");
		for (uint32_t unit = 0; unit < MANY; unit++)
			cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
		node_settle(&node);
		cr_assert(!pool_has(0) && !pool_has(1) && !pool_has(2), "h was used last");
		gate_close(&node);
		actor_start(&actors[0], 0, zero_step, NULL);
		while (job->step.phase != ZERO_STEP_COMMITTING || pool_of()->fetches.busy_count) {
			node_turn(&node);
			cr_assert_lt(zi_clock_now_ns(), deadline_ns);
		}
		cr_assert(pool_has(0) && pool_has(1) && pool_has(2));
		cr_assert_eq(job->committed_step, (int64_t)number - 1);
		cr_assert_not(actors[0].calls[0].is_done);
		gate_open();
		cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	}
	cr_assert_eq(pool_of()->order.change_count, 0);
	many_end(1);
	gate_end();
}

Test(zero_prefetch, next_forward_begins_to_be_read_before_the_commit_is_answered)
{
	reads_ahead_before_the_commit(0);
	reads_ahead_before_the_commit(ZI_STEP_UPDATE_EARLY);
}
