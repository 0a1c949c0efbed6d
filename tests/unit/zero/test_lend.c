/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with parameters on NVMe a unit whose update is computed comes into the pool out of the
 * slots from which it is being written, without waiting for the disk; and where it cannot be
 * written, who waits for it hears that. Method: a disk whose answers are held back, or one that
 * fails one write and stalls another, and the plain computation.
 */
#include "daemon/zero/param/pool.h"
#include "daemon/zero/step/item.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/pool.h"

TestSuite(zero_lend, .timeout = 120);

#define STEP 1 /* the call that waits; 0 is of those that do not */

static const struct zi_step_options *early_options(void)
{
	static struct zi_step_options options;

	options = model_options();
	options.flags = ZI_STEP_UPDATE_EARLY;
	return &options;
}

static void hand_over(uint32_t unit)
{
	model_fill_grad(&actors[0], 1, 0, unit);
	cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0, "%s", actors[0].text.chars);
}

/* All units are in the pool, and a step has begun, the first: there is no state to read. */
static struct zero_job *begin(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		unshard(&actors[0], unit);
		reshard(&actors[0], unit);
	}
	cr_assert_eq(actor_call(&actors[0], zero_step_begin,
	                        &(struct zero_op){ .options = *early_options() }),
	             0, "%s", actors[0].text.chars);
	node_settle(&node);
	return node_job(&node, "train");
}

/* As above, with a disk that fails as @backend says. */
static struct zero_job *begin_on(const char *backend)
{
	pool_begin(1, 272 * SLOT, 0);
	actor_leave(&actors[0], true);
	node_stop(&node);
	node.backend = backend;
	node_start(&node);
	pool_attach(1, 0);
	return begin();
}

/* The step is over: it was as if nobody had asked for unit @shown amid it. */
static void end(uint32_t shown)
{
	cr_assert_eq(actor_wait(&actors[0], STEP), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, early_options());
	cr_assert(plain_equals(&plain, &actors[0]));
	reshard(&actors[0], shown);
	pool_end(1);
}

/* It gives way to another unit. */
static void evict(struct zero_job *job, uint32_t unit)
{
	cr_assert_eq(job->units[unit].pooled_count, 0);
	pool_evict(job, unit);
}

Test(zero_lend, unit_comes_from_where_it_is_written_before_the_disk_has_it)
{
	struct zero_job *job;

	pool_begin(1, 272 * SLOT, 0);
	job = begin();
	hand_over(HEAD);
	hand_over(EMBED);
	node_settle(&node);
	/* As many slots as it has subgroups, and none of them comes free. */
	node.is_disk_held = true;
	hand_over(H0);
	actor_start(&actors[0], STEP, zero_step, NULL);
	while (job->units[H0].update_count)
		node_turn(&node);
	cr_assert_eq(job->units[H0].write_count, 3);
	evict(job, H0);
	unshard(&actors[0], H0);
	cr_assert_eq(job->units[H0].write_count, 3, "nothing of it was written");
	cr_assert_eq(job->residency->miss_count, 4, "it was not there");
	node.is_disk_held = false;
	end(H0);
}

/* A subgroup that is written, and one that is not, in one load. */
Test(zero_lend, unit_comes_from_slots_and_from_the_disk)
{
	struct zero_job *job;
	uint32_t written_count;

	job = begin_on("faulty:over=threads,stall=write@1,stall_ms=300");
	hand_over(H0);
	hand_over(HEAD);
	hand_over(EMBED);
	actor_start(&actors[0], STEP, zero_step, NULL);
	while (job->units[H0].write_count != 1)
		node_turn(&node);
	written_count = 3 - job->units[H0].write_count;
	evict(job, H0);
	unshard(&actors[0], H0);
	cr_assert_eq(written_count, 2);
	cr_assert_eq(job->units[H0].write_count, 1, "the stalled one");
	end(H0);
}

Test(zero_lend, who_waits_for_what_could_not_be_written_hears_that)
{
	struct zero_job *job;
	int r;

	/* Of the first subgroup, and of one that comes after it. */
	job = begin_on("faulty:over=threads,write_eio_at=1,stall=write@7,stall_ms=400");
	node.is_disk_held = true;
	hand_over(H0);
	hand_over(HEAD);
	hand_over(EMBED);
	actor_start(&actors[0], STEP, zero_step, NULL);
	while (job->units[H0].update_count)
		node_turn(&node);
	cr_assert_eq(job->step.phase, ZERO_STEP_UPDATING);
	node.is_disk_held = false;
	while (!job->pipeline.error)
		node_turn(&node);
	cr_assert_gt(job->pipeline.writing_count, 0);
	evict(job, H0);
	r = actor_unit(&actors[0], zero_unshard, H0);
	cr_assert_gt(job->pipeline.writing_count, 0, "the step has not ended");
	expect_refused(&actors[0], -EIO, "writing parameters", r);
	cr_assert_eq(actor_wait(&actors[0], STEP), -EIO);
	node_settle(&node);
	actor_leave(&actors[0], true);
	pool_attach(1, 0);
	cr_assert_eq(actors[0].memory.committed_step, 0);
	cr_assert(plain_equals(&plain, &actors[0]), "nothing of the step remains");
	pool_end(1);
}
