/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a snapshot is a committed step, kept without copying and whatever comes later; a job that
 * begins with it goes on with the same bits. Method: a job trains beside the plain computation, is
 * snapshotted, goes on; others begin with the snapshot and train on.
 */
#include "daemon/zero/param/fetch.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[4], others[4];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;

static void begin(uint32_t world, uint32_t offload)
{
	config = model_config(ZI_DTYPE_BF16, offload);
	node_init(&node);
	node.store_bytes = 96 * MIB;
	node_start(&node);
	plain_init(&plain, &config, world);
	model_begin(&node, actors, world, &(struct attach_options){ .config = config });
}

static void leave(struct actor *ranks)
{
	actors_leave(ranks, 4, true);
}

static void end(void)
{
	leave(actors);
	leave(others);
	plain_deinit(&plain);
	node_deinit(&node);
}

static void snapshot(const char *name)
{
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", name), 0, "%s",
	             kept.op.text.chars);
}

/* Job 'other' of @world ranks begins with train/@name. */
static int load(const char *name, uint32_t world, uint32_t offload)
{
	struct zi_job_config mine = config;
	struct zi_text text;

	mine.offload_optimizer = offload;
	model_attach(&node, others, world,
	             &(struct attach_options){ .job = "other", .config = mine });
	for (uint32_t i = 0; i < world; i++)
		cr_assert_eq(zero_load(others[i].rank, "train", name, &text), 0, "%s", text.chars);
	return model_materialize(others, world);
}

static void restart(void)
{
	for (uint32_t i = 0; i < 4; i++) {
		if (actors[i].rank)
			actor_leave(&actors[i], false);
		if (others[i].rank)
			actor_leave(&others[i], false);
	}
	node_stop(&node);
	node_start(&node);
}

Test(zero_snapshot, it_copies_nothing_and_is_named_after_its_step)
{
	uint64_t free_bytes, written;

	begin(1, ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 2);
	free_bytes = nvme_space_free_bytes(node.nvme.members[0].space);
	written = node.nvme.write_bytes;
	snapshot("");
	cr_assert_str_eq(kept.op.name, "step-2");
	cr_assert_eq(kept.op.step, 2);
	cr_assert_gt(kept.op.held_bytes, 6 * MIB);
	cr_assert_eq(nvme_space_free_bytes(node.nvme.members[0].space), free_bytes);
	cr_assert_eq(node.nvme.write_bytes, written);
	cr_assert_eq(zero_account(node.zero, 0)->used_bytes[TIER_NVME],
	             actors[0].rank->job->nvme_charge.bytes + kept.op.held_bytes, "charged");
	node_check_space(&node);
	model_train(actors, 1, 3, 4);
	node_check_space(&node);
	cr_assert_eq(nvme_space_free_bytes(node.nvme.members[0].space),
	             free_bytes - kept.op.held_bytes);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "step-2"), 0);
	cr_assert_eq(nvme_space_free_bytes(node.nvme.members[0].space), free_bytes);
	node_check_space(&node);
	end();
}

/* Two ranks trained it; three go on, and then one, after a restart. */
Test(zero_snapshot, another_world_goes_on_from_it_with_the_same_bits)
{
	uint64_t bytes = 0;

	begin(2, ZI_OFFLOAD_NVME);
	model_train(actors, 2, 1, 2);
	plain_train(&plain, 1, 2);
	snapshot("a");
	model_train(actors, 2, 3, 3);
	cr_assert_eq(load("a", 3, ZI_OFFLOAD_NVME), 0, "%s", others[0].text.chars);
	cr_assert_eq(others[0].memory.committed_step, 2);
	cr_assert(plain_equals(&plain, &others[2]));
	cr_assert_eq(memcmp(zero_blob(others[1].rank, &bytes), "blob 2", 6), 0);
	cr_assert_null(zero_blob(others[2].rank, &bytes));
	node_check_space(&node);
	plain.world = 3;
	model_train(others, 3, 3, 4);
	plain_train(&plain, 3, 4);
	cr_assert(plain_equals(&plain, &others[0]));
	restart();
	node_check_space(&node);
	model_attach(&node, others, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(model_materialize(others, 1), 0, "%s", others[0].text.chars);
	plain.world = 1;
	model_train(others, 1, 5, 5);
	plain_train(&plain, 5, 5);
	cr_assert(plain_equals(&plain, &others[0]));
	end();
}

/* What the catalog was told of the new job is all it needs. */
Test(zero_snapshot, job_that_was_loaded_and_never_stepped_goes_on_after_a_restart)
{
	uint64_t bytes = 0;

	begin(1, ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 2);
	plain_train(&plain, 1, 2);
	snapshot("a");
	cr_assert_eq(load("a", 1, ZI_OFFLOAD_NVME), 0, "%s", others[0].text.chars);
	restart();
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "a"), 0);
	node_check_space(&node);
	model_attach(&node, others, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(model_materialize(others, 1), 0, "%s", others[0].text.chars);
	cr_assert_eq(others[0].memory.committed_step, 2);
	cr_assert_eq(memcmp(zero_blob(others[0].rank, &bytes), "blob 2", 6), 0);
	model_train(others, 1, 3, 4);
	plain_train(&plain, 3, 4);
	cr_assert(plain_equals(&plain, &others[0]));
	end();
}

Test(zero_snapshot, state_moves_from_nvme_to_memory)
{
	begin(1, ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 2);
	plain_train(&plain, 1, 2);
	snapshot("a");
	cr_assert_eq(load("a", 1, ZI_OFFLOAD_CPU), 0, "%s", others[0].text.chars);
	cr_assert(plain_equals(&plain, &others[0]));
	model_train(others, 1, 3, 4);
	plain_train(&plain, 3, 4);
	cr_assert(plain_equals(&plain, &others[0]));
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "a"), 0);
	node_check_space(&node);
	end();
}

Test(zero_snapshot, state_in_memory_is_written_once_and_moves_to_nvme)
{
	begin(2, ZI_OFFLOAD_CPU);
	model_train(actors, 2, 1, 2);
	plain_train(&plain, 1, 2);
	snapshot("a");
	cr_assert_eq(node.nvme.write_bytes, kept.op.held_bytes, "one write");
	node_check_space(&node);
	model_train(actors, 2, 3, 3);
	cr_assert_eq(load("a", 2, ZI_OFFLOAD_NVME), 0, "%s", others[0].text.chars);
	cr_assert(plain_equals(&plain, &others[0]));
	model_train(others, 2, 3, 3);
	plain_train(&plain, 3, 3);
	cr_assert(plain_equals(&plain, &others[0]));
	cr_assert(plain_equals(&plain, &actors[0]), "the one that was snapshotted, too");
	end();
}

/* The step that is under way is not kept, and not disturbed. */
Test(zero_snapshot, state_in_memory_is_kept_before_the_update_of_the_step_that_has_begun)
{
	struct zi_step_options options = model_options();

	begin(1, ZI_OFFLOAD_CPU);
	model_gradients(actors, 1, 1, &options);
	kept_start(&node, &kept, zero_snapshot_create, "train", "");
	cr_assert_eq(actors[0].rank->job->pipeline.kind, ZERO_PIPELINE_KEEP);
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0);
	cr_assert(kept.is_done, "the update waited");
	cr_assert_eq(kept.op.result, 0, "%s", kept.op.text.chars);
	cr_assert_eq(kept.op.step, 0);
	cr_assert_eq(load("step-0", 1, ZI_OFFLOAD_CPU), 0, "%s", others[0].text.chars);
	cr_assert(plain_equals(&plain, &others[0]));
	plain_train(&plain, 1, 1);
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}

/* The step is aborted while state is written for a snapshot. */
Test(zero_snapshot, state_in_memory_is_kept_though_its_ranks_die_meanwhile)
{
	struct zi_step_options options = model_options();

	begin(1, ZI_OFFLOAD_CPU);
	model_train(actors, 1, 1, 1);
	plain_train(&plain, 1, 1);
	model_gradients(actors, 1, 2, &options);
	kept_start(&node, &kept, zero_snapshot_create, "train", "");
	actor_leave(&actors[0], false);
	cr_assert_eq(kept_wait(&node, &kept), 0, "%s", kept.op.text.chars);
	node_settle(&node);
	node_check_space(&node);
	cr_assert_eq(load("step-1", 1, ZI_OFFLOAD_CPU), 0, "%s", others[0].text.chars);
	cr_assert(plain_equals(&plain, &others[0]));
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	model_train(actors, 1, 2, 2);
	plain_train(&plain, 2, 2);
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}

/* While it is written, the next step waits to begin. */
Test(zero_snapshot, state_in_memory_is_kept_between_steps)
{
	begin(1, ZI_OFFLOAD_CPU);
	model_train(actors, 1, 1, 1);
	plain_train(&plain, 1, 1);
	kept_start(&node, &kept, zero_snapshot_create, "train", "");
	model_train(actors, 1, 2, 2);
	cr_assert_eq(kept_wait(&node, &kept), 0, "%s", kept.op.text.chars);
	cr_assert_eq(load("step-1", 1, ZI_OFFLOAD_CPU), 0, "%s", others[0].text.chars);
	cr_assert(plain_equals(&plain, &others[0]));
	plain_train(&plain, 2, 2);
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}

Test(zero_snapshot, state_in_memory_of_a_job_at_rest_is_kept)
{
	begin(1, ZI_OFFLOAD_NONE);
	model_train(actors, 1, 1, 1);
	plain_train(&plain, 1, 1);
	leave(actors);
	node_settle(&node);
	snapshot("rest");
	restart();
	cr_assert_eq(node.lost_count, 1, "the job is lost");
	node_settle(&node);
	node_check_space(&node);
	cr_assert_eq(load("rest", 1, ZI_OFFLOAD_CPU), 0, "%s", others[0].text.chars);
	cr_assert(plain_equals(&plain, &others[0]));
	end();
}

/* While the commit is on its way to the catalog. */
Test(zero_snapshot, asked_for_during_a_commit_keeps_what_is_committed)
{
	struct zi_step_options options = model_options();
	struct zero_job *job;

	begin(1, ZI_OFFLOAD_NVME);
	job = actors[0].rank->job;
	model_gradients(actors, 1, 1, &options);
	actor_start(&actors[0], 0, zero_step, NULL);
	while (job->step.phase != ZERO_STEP_COMMITTING)
		node_turn(&node);
	kept_start(&node, &kept, zero_snapshot_create, "train", "");
	cr_assert(!kept.is_done);
	cr_assert_eq(kept_wait(&node, &kept), 0);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	cr_assert_eq(kept.op.step, 1);
	cr_assert_str_eq(kept.op.name, "step-1");
	plain_train(&plain, 1, 1);
	restart();
	cr_assert_eq(load("step-1", 1, ZI_OFFLOAD_NVME), 0, "%s", others[0].text.chars);
	cr_assert(plain_equals(&plain, &others[0]));
	end();
}

/* While the commit is on its way: who asked for it has gone. */
Test(zero_snapshot, a_hold_that_waits_for_a_step_can_be_withdrawn)
{
	struct zi_step_options options = model_options();
	struct zero_job *job;

	begin(1, ZI_OFFLOAD_NVME);
	job = actors[0].rank->job;
	model_gradients(actors, 1, 1, &options);
	actor_start(&actors[0], 0, zero_step, NULL);
	while (job->step.phase != ZERO_STEP_COMMITTING)
		node_turn(&node);
	kept_start(&node, &kept, zero_snapshot_hold, "train", "");
	cr_assert(!kept.is_done);
	zero_snapshot_withdraw(node.zero, &kept.op);
	cr_assert(kept.is_done);
	cr_expect_eq(kept.op.result, -ECANCELED);
	cr_expect(zi_list_is_empty(&node.zero->snapshots));
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	/* One that is held stays with its reader. */
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_hold, "train", ""), 0, "%s",
	             kept.op.text.chars);
	zero_snapshot_withdraw(node.zero, &kept.op);
	cr_expect(!zi_list_is_empty(&node.zero->snapshots));
	zero_snapshot_release(kept.op.held);
	plain_train(&plain, 1, 1);
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}

Test(zero_snapshot, it_outlives_its_job)
{
	begin(1, ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 1);
	plain_train(&plain, 1, 1);
	snapshot("last");
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0);
	actors[0].rank = NULL;
	node_check_space(&node);
	restart();
	cr_assert_null(node_job(&node, "train"));
	node_check_space(&node);
	cr_assert_eq(load("last", 1, ZI_OFFLOAD_NVME), 0, "%s", others[0].text.chars);
	cr_assert(plain_equals(&plain, &others[0]));
	end();
}

Test(zero_snapshot, automatic_ones_beyond_what_is_kept_are_forgotten_oldest_first)
{
	begin(1, ZI_OFFLOAD_NVME);
	snapshot("mine");
	for (uint64_t step = 1; step <= 4; step++) {
		model_train(actors, 1, step, step);
		kept.op.is_automatic = true;
		kept.op.keep_count = 2;
		snapshot("");
		node_settle(&node);
		while (node.zero->snapshot_busy_count)
			node_turn(&node);
	}
	cr_assert_not_null(snapshot_find(node.zero, "train", "mine"));
	cr_assert_null(snapshot_find(node.zero, "train", "step-1"));
	cr_assert_null(snapshot_find(node.zero, "train", "step-2"));
	cr_assert_not_null(snapshot_find(node.zero, "train", "step-3"));
	cr_assert_not_null(snapshot_find(node.zero, "train", "step-4"));
	node_check_space(&node);
	end();
}

/* ---- refusals ---- */

static void refused(kept_fn function, const char *job, const char *name, int error,
                    const char *word)
{
	int r = kept_call(&node, &kept, function, job, name);

	cr_assert_eq(r, error, "%d: %s", r, kept.op.text.chars);
	cr_assert_not_null(strstr(kept.op.text.chars, word), "%s", kept.op.text.chars);
}

Test(zero_snapshot, what_cannot_be_is_refused_in_words)
{
	struct zi_text text;

	begin(1, ZI_OFFLOAD_NVME);
	snapshot("a");
	refused(zero_snapshot_create, "nobody", "a", -ENOENT, "no job 'nobody'");
	refused(zero_snapshot_create, "train", "a", -EEXIST, "'train/a' exists");
	kept.op.uid = 7;
	/* As if they were not there. */
	refused(zero_snapshot_create, "train", "b", -ENOENT, "no job 'train'");
	refused(zero_snapshot_remove, "train", "a", -ENOENT, "no snapshot 'train/a'");
	refused(zero_snapshot_hold, "train", "a", -ENOENT, "no snapshot 'train/a'");
	refused(zero_snapshot_restore, "train", "a", -ENOENT, "no snapshot 'train/a'");
	kept.op.is_admin = true;
	refused(zero_snapshot_remove, "train", "b", -ENOENT, "no snapshot 'train/b'");
	snapshot("");
	refused(zero_snapshot_create, "train", "", -EEXIST, "'train/step-0' exists");
	model_attach(&node, others, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	refused(zero_snapshot_create, "other", "a", -ENODATA, "has not committed anything");
	cr_assert_eq(zero_load(others[0].rank, "train", "zzz", &text), -ENOENT);
	cr_assert_eq(zero_load(others[0].rank, "train", "a", &text), 0);
	refused(zero_snapshot_remove, "train", "a", -EBUSY, "exported or loaded");
	cr_assert_eq(zero_load(actors[0].rank, "train", "a", &text), -EBUSY, "materialised");
	leave(others);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "a"), 0);
	end();
}

Test(zero_snapshot, space_that_it_would_keep_is_asked_for_first)
{
	begin(1, ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 1);
	leave(actors);
	node_settle(&node);
	node_stop(&node);
	/* Twice its state is there; three times is not. */
	node.uid_nvme_bytes = 15 * MIB;
	node_start(&node);
	refused(zero_snapshot_create, "train", "a", -EDQUOT, "a snapshot of job 'train' keeps");
	node_check_space(&node);
	node.uid_nvme_bytes = UINT64_MAX;
	end();
}

Test(zero_snapshot, state_in_memory_without_a_store_is_refused)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);
	node_init(&node);
	node.is_dumb = true;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	refused(zero_snapshot_create, "train", "a", -EOPNOTSUPP, "no nvme tier");
	end();
}

Test(zero_snapshot, another_model_is_refused_by_its_first_difference)
{
	begin(1, ZI_OFFLOAD_NVME);
	snapshot("a");
	model_attach(&node, others, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(zero_load(others[0].rank, "train", "a", &others[0].text), 0);
	layout_unit(&others[0], "embed");
	layout_param(&others[0], "embed.w", 10, 81);
	cr_assert_eq(actor_call(&others[0], zero_materialize, NULL), -EINVAL);
	cr_assert_not_null(strstr(others[0].text.chars, "embed.w"), "%s", others[0].text.chars);
	cr_assert_not_null(strstr(others[0].text.chars, "another model"), "%s",
	                   others[0].text.chars);
	leave(others);
	config.param_dtype = ZI_DTYPE_F32;
	model_attach(&node, others, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(zero_load(others[0].rank, "train", "a", &others[0].text), -EINVAL);
	cr_assert_not_null(strstr(others[0].text.chars, "param_dtype"), "%s", others[0].text.chars);
	leave(others);
	config.param_dtype = ZI_DTYPE_BF16;
	config.optimizer = ZI_OPTIMIZER_SGD;
	model_attach(&node, others, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(zero_load(others[0].rank, "train", "a", &others[0].text), -EINVAL);
	end();
}

Test(zero_snapshot, ranks_that_load_different_things_are_told)
{
	begin(1, ZI_OFFLOAD_NVME);
	snapshot("a");
	model_attach(&node, others, 2,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(zero_load(others[0].rank, "train", "a", &others[0].text), 0);
	cr_assert_eq(model_materialize(others, 2), -EINVAL);
	cr_assert_not_null(strstr(others[0].text.chars, "loads snapshot"), "%s",
	                   others[0].text.chars);
	end();
}

/* Who restarts a trainer need not take the request away. */
Test(zero_snapshot, job_that_has_a_step_goes_on_from_it)
{
	struct zi_text text;

	begin(1, ZI_OFFLOAD_NVME);
	snapshot("a");
	model_train(actors, 1, 1, 1);
	plain_train(&plain, 1, 1);
	leave(actors);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(zero_load(actors[0].rank, "train", "a", &text), 0);
	cr_assert_eq(model_materialize(actors, 1), 0);
	cr_assert_eq(actors[0].memory.committed_step, 1);
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}

Test(zero_snapshot, write_that_fails_leaves_nothing_and_the_job_goes_on)
{
	begin(1, ZI_OFFLOAD_CPU);
	leave(actors);
	/* Its state would be lost with the daemon: a node whose store cannot be written. */
	node_stop(&node);
	node.backend = "faulty:write_eio_at=1";
	node_start(&node);
	node_settle(&node);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	refused(zero_snapshot_create, "train", "a", -EIO, "writing");
	node_check_space(&node);
	model_train(actors, 1, 1, 1);
	plain_train(&plain, 1, 1);
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}
