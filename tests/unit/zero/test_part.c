/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that reads a part of a unit goes on as soon as that part is updated, and finds it
 * updated before the rest; the rest, and other ranks, are not served too early. Method: a disk
 * whose answers are held back, and whole steps beside the plain computation. Of h.0's three
 * subgroups the state of two is read ahead.
 */
#include "daemon/zero/step/queue.h"
#include "tests/unit/zero/pool.h"

TestSuite(zero_part, .timeout = 120);

#define ALL_SLOTS (272 * SLOT) /* embed, h.0 and head */

static struct zi_step_options early_options(void)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	return options;
}

static void hand_over(struct actor *actor, uint64_t step, uint32_t unit)
{
	cr_assert_eq(actor_unit(actor, zero_grad_acquire, unit), 0, "%s", actor->text.chars);
	model_fill_grad(actor, step, 0, unit);
	cr_assert_eq(actor_unit(actor, zero_reduce, unit), 0, "%s", actor->text.chars);
}

static void step_begin(uint32_t world)
{
	struct zi_step_options options = early_options();

	cr_assert_eq(
		all_call(actors, world, zero_step_begin, &(struct zero_op){ .options = options }),
		0, "%s", actors[0].text.chars);
}

/* Steps that leave nothing warm, and all units in the pool. */
static void begin(uint32_t world, uint64_t budget_bytes, uint64_t steps)
{
	struct zi_step_options options = early_options();

	pool_begin(world, budget_bytes, 0);
	node.zero->options.is_staging_kept = false;
	for (uint64_t step = 1; step <= steps; step++) {
		cr_assert_eq(model_step(actors, world, step, &options), 0, "%s",
		             actors[0].text.chars);
		plain_step(&plain, step, &options);
	}
	for (uint32_t unit = 0; unit < UNITS && budget_bytes == ALL_SLOTS; unit++) {
		unshard(&actors[0], unit);
		reshard(&actors[0], unit);
	}
	node_settle(&node);
}

static void finish(uint32_t world, uint64_t step)
{
	struct zi_step_options options = early_options();

	plain_step(&plain, step, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "step %llu", (unsigned long long)step);
	pool_end(world);
}

static void part_start(struct actor *actor, uint32_t slot, uint64_t bits)
{
	actor_start(actor, slot, zero_unshard_part,
	            &(struct zero_op){ .unit = H0, .part_run = 1, .part = { bits } });
}

static bool is_done(const struct actor *actor, uint32_t slot)
{
	return actor->calls[slot].is_done;
}

static const struct zero_unit *h0(void)
{
	return &node_job(&node, "train")->units[H0];
}

Test(zero_part, rank_goes_on_when_what_it_reads_is_updated)
{
	begin(1, ALL_SLOTS, 2);
	step_begin(1);
	node_settle(&node); /* The head's state is in staging, and that of two subgroups of h.0. */
	node.is_disk_held = true;
	for (uint32_t unit = UNITS; unit-- > 0;)
		hand_over(&actors[0], 3, unit);
	actor_start(&actors[0], 1, zero_step, NULL);
	part_start(&actors[0], 2, 3);
	cr_assert_not(is_done(&actors[0], 2));
	part_start(&actors[0], 3, 4);
	cr_assert_eq(actor_wait(&actors[0], 3), -EALREADY);
	actor_start(&actors[0], 4, zero_unshard, &(struct zero_op){ .unit = H0 });
	cr_assert_eq(actor_wait(&actors[0], 2), 0, "%s", actors[0].text.chars);
	cr_assert_eq(h0()->update_count, 1);
	cr_assert(h0()->users_mask, "it is pinned");
	part_start(&actors[0], 3, 4);
	cr_assert_not(is_done(&actors[0], 3));
	cr_assert_not(is_done(&actors[0], 4));
	reshard(&actors[0], H0);
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(&actors[0], 3), 0);
	cr_assert_eq(actor_wait(&actors[0], 4), 0);
	cr_assert_eq(h0()->update_count, 0);
	reshard(&actors[0], H0);
	reshard(&actors[0], H0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	finish(1, 3);
}

static uint32_t next_subgroup(void)
{
	bool is_ready = false;
	const struct zero_subgroup *subgroup = queue_peek(node_job(&node, "train"), &is_ready);

	cr_assert_not_null(subgroup);
	cr_assert(is_ready);
	return subgroup->unit * 10 + subgroup->index;
}

Test(zero_part, what_a_rank_waits_for_is_updated_first)
{
	begin(1, ALL_SLOTS, 2);
	node.is_disk_held = true;
	step_begin(1);
	hand_over(&actors[0], 3, H0);
	hand_over(&actors[0], 3, HEAD);
	hand_over(&actors[0], 3, EMBED);
	actor_start(&actors[0], 1, zero_step, NULL);
	cr_assert_eq(next_subgroup(), EMBED * 10);
	part_start(&actors[0], 2, 3);
	cr_assert_eq(next_subgroup(), EMBED * 10, "these have begun");
	actor_start(&actors[0], 3, zero_unshard, &(struct zero_op){ .unit = H0 });
	cr_assert_eq(next_subgroup(), H0 * 10 + 2);
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(&actors[0], 2), 0);
	cr_assert_eq(actor_wait(&actors[0], 3), 0);
	reshard(&actors[0], H0);
	reshard(&actors[0], H0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	finish(1, 3);
}

Test(zero_part, part_of_a_unit_that_left_the_pool_comes_with_the_unit)
{
	begin(1, 262 * SLOT, 2);
	unshard(&actors[0], H0);
	reshard(&actors[0], H0);
	unshard(&actors[0], HEAD);
	reshard(&actors[0], HEAD);
	node_settle(&node);
	step_begin(1);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(&actors[0], 3, unit);
	actor_start(&actors[0], 1, zero_step, NULL);
	part_start(&actors[0], 2, 1);
	cr_assert_eq(actor_wait(&actors[0], 2), 0, "%s", actors[0].text.chars);
	cr_assert(pool_has(H0));
	cr_assert_eq(h0()->update_count, 0, "it is loaded as a whole");
	reshard(&actors[0], H0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	finish(1, 3);
}

Test(zero_part, part_before_step_is_refused_as_the_unit_is)
{
	struct zero_op part = { .unit = H0, .part_run = 1, .part = { 1 } };

	begin(1, ALL_SLOTS, 0);
	cr_assert_eq(actor_call(&actors[0], zero_unshard_part, &part), 0, "no update is under way");
	reshard(&actors[0], H0);
	step_begin(1);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(&actors[0], 1, unit);
	expect_refused(&actors[0], -EBUSY, "may be updated already",
	               actor_call(&actors[0], zero_unshard_part, &part));
	part.part_run = 0;
	expect_refused(&actors[0], -EINVAL, "runs of 0 subgroups",
	               actor_call(&actors[0], zero_unshard_part, &part));
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0);
	finish(1, 1);
}

/* An early update has ended before the last rank ends the step: no update will wake the first. */
Test(zero_part, rank_that_stepped_first_goes_on_when_the_last_one_has)
{
	begin(2, ALL_SLOTS, 0);
	step_begin(2);
	node.is_disk_held = true;
	for (uint32_t i = 0; i < 2; i++)
		hand_over(&actors[i], 1, H0);
	while (h0()->update_count) /* Each subgroup has a slot of staging. */
		node_turn(&node);
	for (uint32_t i = 0; i < 2; i++) {
		hand_over(&actors[i], 1, HEAD);
		hand_over(&actors[i], 1, EMBED);
	}
	actor_start(&actors[0], 1, zero_step, NULL);
	actor_start(&actors[0], 2, zero_unshard, &(struct zero_op){ .unit = H0 });
	cr_assert_not(is_done(&actors[0], 2), "rank 1 has not stepped");
	actor_start(&actors[1], 1, zero_step, NULL);
	cr_assert_eq(actor_wait(&actors[0], 2), 0, "%s", actors[0].text.chars);
	reshard(&actors[0], H0);
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actor_wait(&actors[1], 1), 0, "%s", actors[1].text.chars);
	finish(2, 1);
}
