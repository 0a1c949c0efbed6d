/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no extent is given back, or written anew, while something is still read from it into a pool
 * that ranks see; and whoever waits for room hears of a rank that leaves. Method: the first read
 * after a restart is stalled by the faulty backend, and a step, or a new value, overtakes it.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"
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

/* ---- what a step wrote that will not be ---- */

static struct zero_job *restart(const char *backend)
{
	actor_leave(&actors[0], true);
	node_stop(&node);
	node.backend = backend;
	node_start(&node);
	pool_attach(1, 0);
	return node_job(&node, "train");
}

static bool is_held(const struct zero_job *job)
{
	const struct zero_subgroup *subgroup = &job->subgroups[job->units[HEAD].subgroup_first];

	return subgroup->places[ZERO_PLANE_PARAM].next.bytes > 0;
}

/* From the extents of the commit to come. */
static void prefetch_next(const struct zero_job *job)
{
	cr_assert(job->units[HEAD].is_param_next);
	cr_assert_eq(actor_unit(&actors[0], zero_prefetch, HEAD), 0);
	cr_assert_eq(pool_of()->units[HEAD].presence, ZERO_LOADING);
}

Test(zero_residency_late, step_that_breaks_gives_back_what_is_read_when_it_has_come)
{
	struct zi_step_options options = model_options();
	const struct zero_job *job;
	uint64_t free_bytes;

	pool_begin(1, 272 * SLOT, 0);
	job = restart("threads");
	free_bytes = tier_extent_free_bytes(&node.nvme);
	options.flags = ZI_STEP_UPDATE_EARLY;
	cr_assert_eq(
		actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options }),
		0);
	model_fill_grad(&actors[0], 1, 0, HEAD);
	cr_assert_eq(actor_unit(&actors[0], zero_reduce, HEAD), 0);
	node_settle(&node);
	prefetch_next(job);
	actor_leave(&actors[0], false);
	cr_assert_gt(pool_of()->fetches.busy_count, 0);
	cr_assert(is_held(job), "it is being read");
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	pool_attach(1, 0);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

/* A write fails while the pool reads what the step wrote. */
Test(zero_residency_late, update_that_fails_gives_back_what_is_read_when_it_has_come)
{
	struct zi_step_options options = model_options();
	const struct zero_job *job;
	struct nvme_store broken;
	uint64_t free_bytes;

	pool_begin(1, 272 * SLOT, 0);
	/* h.0 is read in three subgroups, the others in one each; the sixth read is of the pool. */
	job = restart("faulty:over=threads,stall=read@6,stall_ms=400");
	free_bytes = tier_extent_free_bytes(&node.nvme);
	unshard(&actors[0], H0);
	options.flags = ZI_STEP_UPDATE_EARLY;
	cr_assert_eq(
		actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options }),
		0);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		model_fill_grad(&actors[0], 1, 0, unit);
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	}
	node_settle(&node);
	prefetch_next(job);
	/* What is not yet written meets a descriptor that is void. */
	broken = *node_store(&node, 0);
	broken.fd = -1;
	node.nvme.members[0].store = &broken;
	actor_start(&actors[0], 0, zero_reshard, &(struct zero_op){ .unit = H0 });
	actor_start(&actors[0], 1, zero_step, NULL);
	cr_assert_eq(job->step.phase, ZERO_STEP_UPDATING);
	cr_assert_eq(actor_wait(&actors[0], 1), -EBADF, "%s", actors[0].text.chars);
	node.nvme.members[0].store = node_store(&node, 0);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(pool_of()->units[HEAD].presence, ZERO_LOADING);
	cr_assert(is_held(job), "it is being read");
	actor_leave(&actors[0], false);
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	pool_attach(1, 0);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

/* ---- copies to write into ---- */

static void open_head(struct actor *actor, uint64_t seed)
{
	cr_assert_eq(actor_unit(actor, zero_param_write_begin, HEAD), 0, "%s", actor->text.chars);
	fill(zero_param_staging(actor->rank)->region.base, seed, model_elements[HEAD],
	     config.param_dtype);
}

static void end_head(void)
{
	for (uint32_t i = 0; i < 2; i++)
		actor_start(&actors[i], 1, zero_param_write_end, &(struct zero_op){ .unit = HEAD });
}

/* Rank 0 writes the unit twice; of the first value rank 1 is still reading its copy. */
Test(zero_residency_late, new_value_waits_for_copies_of_the_former)
{
	const struct zero_job *job;

	pool_begin(2, 272 * SLOT, 0);
	job = node_job(&node, "train");
	open_head(&actors[0], 7000);
	end_head();
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(actor_wait(&actors[i], 1), 0, "%s", actors[i].text.chars);
	node_settle(&node);
	open_head(&actors[0], 8000);
	actor_start(&actors[1], 0, zero_param_write_begin, &(struct zero_op){ .unit = HEAD });
	while (!pool_of()->fetches.busy_count)
		node_turn(&node);
	end_head();
	cr_assert_gt(pool_of()->fetches.busy_count, 0);
	cr_assert_eq(job->pipeline.kind, ZERO_PIPELINE_NONE);
	cr_assert(is_held(job), "it is being read");
	cr_assert_eq(actor_wait(&actors[1], 0), -EBUSY);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(actor_wait(&actors[i], 1), 0, "%s", actors[i].text.chars);
	fill(plain.param[HEAD], 8000, model_elements[HEAD], config.param_dtype);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(2);
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
