/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no extent is given back, or written anew, while something is still read from it into a pool
 * that ranks see; and whoever waits for room hears of a rank that leaves. Method: the first read
 * after a restart is stalled by the faulty backend, and a step, or a new value, overtakes it.
 */
#include "tests/unit/zero/pool.h"

TestSuite(zero_residency_late, .timeout = 120);

/* Stands at step 0; the first read, of unit HEAD, is on its way, and will be for a while. */
static void stalled_begin(void)
{
	pool_begin(1, 272 * SLOT, 0);
	actor_leave(&actors[0], true);
	node_stop(&node);
	node.backend = "faulty:over=threads,stall=read@1,stall_ms=400";
	node_start(&node);
	pool_attach(1, 0);
	cr_assert_eq(actor_unit(&actors[0], zero_prefetch, HEAD), 0);
	cr_assert_eq(pool_of()->units[HEAD].presence, ZERO_LOADING);
}

static bool is_late(void)
{
	return pool_of()->units[HEAD].presence == ZERO_LOADING && pool_of()->units[HEAD].is_void;
}

Test(zero_residency_late, commit_waits_for_what_is_read_from_extents_that_it_frees)
{
	struct zi_step_options options = model_options();
	const struct zero_job *job;
	bool was_late = false;

	stalled_begin();
	job = node_job(&node, "train");
	cr_assert_eq(
		actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options }),
		0);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		model_fill_grad(&actors[0], 1, 0, unit);
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	}
	actor_start(&actors[0], 0, zero_step, NULL);
	while (!actors[0].calls[0].is_done) {
		was_late |= is_late();
		cr_assert(!is_late() || job->step.phase == ZERO_STEP_UPDATING);
		node_turn(&node);
	}
	cr_assert(was_late, "the step overtook the read");
	cr_assert_eq(actors[0].calls[0].op.result, 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

static void write_head(void)
{
	cr_assert_eq(actor_unit(&actors[0], zero_param_write_begin, HEAD), 0, "%s",
	             actors[0].text.chars);
	fill(zero_param_staging(actors[0].rank)->region.base, 7000 + HEAD, model_elements[HEAD],
	     config.param_dtype);
	actor_start(&actors[0], 0, zero_param_write_end, &(struct zero_op){ .unit = HEAD });
	cr_assert(is_late());
}

Test(zero_residency_late, new_value_waits_for_what_is_read_of_the_former)
{
	const struct zero_job *job;

	stalled_begin();
	job = node_job(&node, "train");
	write_head();
	while (!actors[0].calls[0].is_done) {
		cr_assert(!is_late() || job->pipeline.kind == ZERO_PIPELINE_NONE);
		node_turn(&node);
	}
	cr_assert_eq(actors[0].calls[0].op.result, 0, "%s", actors[0].text.chars);
	fill(plain.param[HEAD], 7000 + HEAD, model_elements[HEAD], config.param_dtype);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

Test(zero_residency_late, new_value_that_waits_is_forgotten_with_the_group)
{
	uint64_t free_bytes;

	stalled_begin();
	free_bytes = tier_extent_free_bytes(&node.nvme);
	write_head();
	actor_leave(&actors[0], false);
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	pool_attach(1, 0);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

Test(zero_residency_late, demand_gets_the_room_of_a_rank_that_leaves)
{
	pool_begin(2, 260 * SLOT, 0);
	unshard(&actors[0], EMBED);
	actor_start(&actors[1], 0, zero_unshard, &(struct zero_op){ .unit = H0 });
	node_settle(&node);
	cr_assert_not(actors[1].calls[0].is_done);
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert(actors[1].calls[0].is_done, "it would wait until its deadline");
	cr_assert_eq(actors[1].calls[0].op.result, 0, "%s", actors[1].text.chars);
	pool_end(2);
}
