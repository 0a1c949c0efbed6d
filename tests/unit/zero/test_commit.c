/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a step is committed, or nothing is: when the flush or the transaction fails, the job stands
 * where it stood (and state in memory alone, which has no other copy, stands where it is).
 * Method: the catalog forgets the job behind zero's back; the store's descriptor is made void.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/disk.h"

Test(zero_commit, power_durability_flushes_and_commits)
{
	struct zi_step_options options = model_options();

	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME);
	config.durability = ZI_DURABILITY_POWER;
	node_init(&node);
	plain_init(&plain, &config, 1);
	start("threads");
	cr_assert_eq(model_materialize(actors, 1), 0);
	model_write(actors, 1);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	sound(1);
	end();
}

/* The catalog no longer knows the job: its commits fail. */
static void forget_request_done(struct catalog_request *request)
{
	zi_loop_stop(request->loop);
}

static void forget(void)
{
	struct catalog_job row = { .name = "train" };
	struct catalog_request request = {
		.kind = CATALOG_JOB_DELETE,
		.job = &row,
		.done = forget_request_done,
		.loop = node.loop,
	};

	catalog_submit(node.catalog, &request);
	cr_assert_eq(zi_loop_run(node.loop), 0);
	cr_assert_eq(request.result, 0);
}

Test(zero_commit, transaction_that_fails_leaves_the_committed_step)
{
	struct zi_step_options options = model_options();
	uint64_t free_bytes;

	begin(0);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	forget();
	cr_assert_eq(model_step(actors, 1, 1, &options), -ENOENT);
	cr_assert_not_null(strstr(actors[0].text.chars, "not in the catalog"), "%s",
	                   actors[0].text.chars);
	cr_assert_eq(actors[0].broken_error, -ENOENT);
	cr_assert_eq(node_job(&node, "train")->committed_step, 0);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	actor_leave(&actors[0], true);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_neq(model_materialize(actors, 1), 0, "nor can it be recorded anew");
	end();
}

Test(zero_commit, transaction_that_fails_leaves_the_step_in_memory_in_force)
{
	struct zi_step_options options = model_options();

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);
	node_init(&node);
	plain_init(&plain, &config, 1);
	start("threads");
	cr_assert_eq(model_materialize(actors, 1), 0);
	model_write(actors, 1);
	forget();
	cr_assert_eq(model_step(actors, 1, 1, &options), -ENOENT);
	plain_step(&plain, 1, &options);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(node_job(&node, "train")->committed_step, 1, "there is no other copy");
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}

/* Every write of the step is on its way, and none has come back last: false when it was missed. */
static bool catch_before_commit(void)
{
	const struct zero_job *job = node_job(&node, "train");

	while (job->step.phase == ZERO_STEP_UPDATING &&
	       (job->queue.begun_count < job->queue.count || job->pipeline.computing_count ||
	        job->pipeline.reading_count))
		node_turn(&node);
	return job->step.phase == ZERO_STEP_UPDATING;
}

/* Trains until the flush of a step's last store fails. Return: the last committed step. */
static uint64_t fail_flush(uint32_t store_count)
{
	struct zi_step_options options = model_options();
	uint32_t last = store_count - 1;
	struct nvme_store *store;
	uint64_t step = 1;
	int fd, r = 0;

	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME);
	config.durability = ZI_DURABILITY_POWER;
	node_init(&node);
	node.store_count = store_count;
	plain_init(&plain, &config, 1);
	start("threads");
	cr_assert_eq(model_materialize(actors, 1), 0);
	model_write(actors, 1);
	store = node_store(&node, last);
	fd = store->fd;
	for (; !r; step++) {
		cr_assert_lt(step, 50);
		model_gradients(actors, 1, step, &options);
		actor_start(&actors[0], 0, zero_step, NULL);
		/* Writes have their descriptor already; the flush alone meets one that is void. */
		if (catch_before_commit())
			store->fd = -1;
		r = actor_wait(&actors[0], 0);
		store->fd = fd;
		if (!r)
			plain_step(&plain, step, &options);
	}
	cr_assert_eq(r, -EBADF, "%d: %s", r, actors[0].text.chars);
	cr_assert(actors[0].is_broken);
	return step - 2;
}

Test(zero_commit, flush_that_fails_commits_nothing)
{
	sound(fail_flush(1));
	end();
}

Test(zero_commit, path_that_does_not_flush_gets_nothing_more)
{
	struct zi_step_options options = model_options();
	uint64_t step = fail_flush(2);

	cr_assert_eq(node.nvme.members[0].state, TIER_MEMBER_HEALTHY);
	cr_assert_eq(node.nvme.members[1].state, TIER_MEMBER_FAILED);
	cr_assert_str_eq(node.nvme.members[1].reason.chars, "flushing failed: EBADF");
	actor_leave(&actors[0], true);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(model_step(actors, 1, step + 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, step + 1, &options);
	cr_assert_eq(tier_member_used_bytes(&node.nvme.members[1]), 0);
	sound(step + 1);
	end();
}
