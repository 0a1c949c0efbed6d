/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that dies with buckets in its hands, in the daemon's, or in those of an early update
 * takes nothing with it: the others hear who it was, and the job goes on from its last commit with
 * the plain bits. Method: processes that are killed at each point of a step of one bucket
 * a rank.
 */
#include "tests/unit/zero/buckets.h"

TestSuite(zero_bucket_death, .timeout = 120);

static void begin(uint32_t offload)
{
	buckets_config(offload, BUCKET_BYTES);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 2);
	actor_fork(&actors[1]);
	buckets_attach(2, "run.0");
	model_write(actors, 2);
	model_train(actors, 2, 1, 1);
	plain_train(&plain, 1, 1);
}

/* Rank 1 is killed; then all come back, and make step 2. */
static void die_and_come_back(void)
{
	struct zi_step_options options = model_options();

	actor_kill(&actors[1]);
	actor_leave(&actors[1], false);
	node_settle(&node);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_culprit, 1);
	actor_leave(&actors[0], true);
	node_settle(&node);
	buckets_attach(2, "run.1");
	cr_assert_eq(actors[0].memory.committed_step, 1);
	cr_assert(plain_equals(&plain, &actors[0]), "as committed");
	cr_assert_eq(model_step(actors, 2, 2, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 2, &options);
	cr_assert(plain_equals(&plain, &actors[1]));
	buckets_end();
}

Test(zero_bucket_death, with_a_bucket_in_its_hands)
{
	begin(ZI_OFFLOAD_NVME);
	begin_step(2, 0);
	acquire(1, 2);
	hand_over(0, 2);
	acquire_waits(0, 1);
	die_and_come_back();
}

Test(zero_bucket_death, with_one_that_it_handed_over)
{
	begin(ZI_OFFLOAD_NVME);
	begin_step(2, 0);
	hand_over(1, 2);
	die_and_come_back();
}

Test(zero_bucket_death, while_it_is_summed)
{
	begin(ZI_OFFLOAD_CPU);
	begin_step(2, 0);
	hand_over(0, 2);
	acquire(1, 2);
	actor_start(&actors[1], 0, zero_reduce, &(struct zero_op){ .unit = 2 });
	die_and_come_back();
}

Test(zero_bucket_death, while_an_early_update_reads_it)
{
	begin(ZI_OFFLOAD_NVME);
	begin_step(2, ZI_STEP_UPDATE_EARLY);
	hand_over(0, 2);
	acquire(1, 2);
	actor_start(&actors[1], 0, zero_reduce, &(struct zero_op){ .unit = 2 });
	die_and_come_back();
}
