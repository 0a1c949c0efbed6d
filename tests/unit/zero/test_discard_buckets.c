/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a discarded step leaves no bucket and no reserved sum behind, wherever its gradients were:
 * acquired, handed over, summed, on their way to the store or there; a rank that waits for a bucket
 * is told. Method: one bucket a rank, so that all sums are stored, beside the plain computation; a
 * disk that is held.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/op_expire.h"
#include "tests/unit/zero/buckets.h"
#include "tests/unit/zero/deferred.h"

TestSuite(zero_discard_buckets, .timeout = 240);

#define WORLD 2u

static void discard(void)
{
	cr_assert_eq(all_call(actors, WORLD, zero_step_discard, NULL), 0, "%s",
	             actors[0].text.chars);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		cr_assert_eq(node_job(&node, "train")->grad_pool->buckets[rank].run_count, 0);
}

static void step_is_right(uint64_t step)
{
	struct zi_step_options options = model_options();
	double norm = 0;

	options.max_norm = 0.5;
	deferred_gradients(actors, WORLD, step, &options);
	cr_assert_eq(deferred_end(actors, WORLD, &options, &norm), 0, "%s", actors[0].text.chars);
	plain_step(&plain, step, &options);
	cr_assert_eq(norm, plain.norm);
	cr_assert(plain_equals(&plain, &actors[1]), "step %llu", (unsigned long long)step);
}

static void discards(uint32_t offload)
{
	uint64_t free_bytes;

	buckets_begin(WORLD, offload, BUCKET_BYTES);
	step_is_right(1);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	/* Acquired, and not handed over. */
	begin_step(WORLD, ZI_STEP_DEFERRED);
	acquire(0, 2);
	discard();
	/* Handed over by one of them. */
	begin_step(WORLD, ZI_STEP_DEFERRED);
	hand_over(0, 2);
	acquire(1, 0);
	discard();
	/* One is summed, and perhaps on its way. */
	begin_step(WORLD, ZI_STEP_DEFERRED);
	hand_over(0, 2);
	hand_over(1, 2);
	discard();
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes, "nothing is reserved");
	step_is_right(2);
	/* All are there. */
	free_bytes = tier_extent_free_bytes(&node.nvme);
	begin_step(WORLD, ZI_STEP_DEFERRED);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t rank = 0; rank < WORLD; rank++)
			hand_over(rank, unit);
	cr_assert_eq(all_call(actors, WORLD, zero_grad_norm, NULL), 0);
	discard();
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes, "nothing is reserved");
	step_is_right(3);
	buckets_end();
}

Test(zero_discard_buckets, nothing_of_a_step_is_left)
{
	discards(ZI_OFFLOAD_CPU);
	discards(ZI_OFFLOAD_NVME);
}

Test(zero_discard_buckets, rank_that_waits_for_a_bucket_is_told)
{
	buckets_begin(WORLD, ZI_OFFLOAD_NVME, BUCKET_BYTES);
	begin_step(WORLD, ZI_STEP_DEFERRED);
	hand_over(0, 2);
	acquire_waits(0, 1);
	actor_start(&actors[1], 0, zero_step_discard, NULL);
	expect_refused(0, -ECANCELED, "rank 1 (pid ", actor_wait(&actors[0], 1));
	cr_assert_eq(actor_call(&actors[0], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	step_is_right(1);
	buckets_end();
}

/* Its sums are being written to a disk that does not answer. */
static void begin_held(void)
{
	buckets_begin(WORLD, ZI_OFFLOAD_NVME, BUCKET_BYTES);
	step_is_right(1);
	begin_step(WORLD, ZI_STEP_DEFERRED);
	node.is_disk_held = true;
	hand_over(0, 2);
	hand_over(1, 2);
	while (!node_job(&node, "train")->spill->used_count ||
	       !node_job(&node, "train")->spill->slots[0].is_busy)
		node_turn(&node);
	for (uint32_t i = 0; i < 20; i++)
		node_turn(&node); /* The device is done with it. */
	actor_start(&actors[0], 0, zero_step_discard, NULL);
	actor_start(&actors[1], 0, zero_step_discard, NULL);
	node_turn(&node);
	cr_assert_not(actors[0].calls[0].is_done);
	cr_assert(node_job(&node, "train")->step.is_discarding);
}

static void release_disk(void)
{
	node.is_disk_held = false;
	(void)nvme_engine_reap(node.engine);
}

Test(zero_discard_buckets, rank_whose_call_timed_out_hears_of_it_when_it_comes_again)
{
	begin_held();
	op_prolong(&actors[0].calls[0].op, zi_clock_deadline_ns(ZI_NS_PER_MS));
	op_expire_at(node_job(&node, "train"), zi_clock_deadline_ns(ZI_NS_PER_MS));
	expect_refused(0, -ETIMEDOUT, "what was read or summed for the step has not ended",
	               actor_wait(&actors[0], 0));
	expect_refused(0, -EINVAL, "after step_discard", actor_unit(&actors[0], zero_reduce, 0));
	expect_refused(0, -ECANCELED, "discards", actor_unit(&actors[0], zero_grad_acquire, 0));
	release_disk();
	cr_assert_eq(actor_wait(&actors[1], 0), 0, "%s", actors[1].text.chars);
	cr_assert_eq(actor_call(&actors[0], zero_step_discard, NULL), 0, "%s",
	             actors[0].text.chars);
	expect_refused(0, -EINVAL, "before step_begin",
	               actor_call(&actors[0], zero_step_discard, NULL));
	step_is_right(2);
	buckets_end();
}

Test(zero_discard_buckets, rank_that_comes_again_before_the_end_waits_for_it)
{
	begin_held();
	actor_start(&actors[0], 1, zero_step_discard, NULL);
	expect_refused(0, -ECANCELED, "called again", actor_wait(&actors[0], 0));
	release_disk();
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	step_is_right(2);
	buckets_end();
}

Test(zero_discard_buckets, rank_that_dies_while_sums_are_written_ends_the_group)
{
	begin_held();
	actor_leave(&actors[0], false);
	expect_refused(1, -EPIPE, "rank 0", actor_wait(&actors[1], 0));
	actor_leave(&actors[1], true);
	release_disk();
	node_settle(&node);
	buckets_attach(WORLD, "run.1");
	cr_assert(plain_equals(&plain, &actors[0]));
	step_is_right(2);
	buckets_end();
}
