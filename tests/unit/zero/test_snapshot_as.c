/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a new job made of a snapshot under another name shares its extents, goes on with the same
 * bits and is a job like any other, also after a restart; what cannot be is refused and leaves
 * nothing. What is read of a job at rest is paid for when the job is used again. Method: a job
 * beside the plain computation, its snapshot, and a second job made of that.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/delete.h"
#include "daemon/zero/step/commit.h"
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[2], others[2];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;

static void begin(uint32_t offload)
{
	config = model_config(ZI_DTYPE_BF16, offload);
	node_init(&node);
	node.store_bytes = 96 * MIB;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
}

static void leave(void)
{
	for (uint32_t i = 0; i < 2; i++) {
		if (actors[i].rank)
			actor_leave(&actors[i], true);
		if (others[i].rank)
			actor_leave(&others[i], true);
	}
	node_settle(&node);
}

static void end(void)
{
	leave();
	plain_deinit(&plain);
	node_deinit(&node);
}

static void restart(void)
{
	leave();
	node_stop(&node);
	node_start(&node);
}

static void snapshot(const char *name)
{
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", name), 0, "%s",
	             kept.op.text.chars);
}

static int restore_as(const char *job, const char *name, const char *as)
{
	int r;

	cr_assert_eq(zi_copy_name(kept.op.as, sizeof(kept.op.as), as), 0);
	r = kept_call(&node, &kept, zero_snapshot_restore, job, name);
	kept.op.as[0] = '\0';
	return r;
}

static void attach_other(uint32_t world)
{
	model_attach(&node, others, world,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(model_materialize(others, world), 0, "%s", others[0].text.chars);
}

Test(zero_snapshot_as, new_job_shares_what_is_there_and_goes_on_with_the_same_bits)
{
	uint64_t free_bytes, bytes;

	begin(ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 1);
	plain_train(&plain, 1, 1);
	snapshot("a");
	model_train(actors, 1, 2, 2);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	cr_assert_eq(restore_as("train", "a", "other"), 0, "%s", kept.op.text.chars);
	cr_assert_eq(kept.op.step, 1);
	cr_assert_gt(kept.op.held_bytes, 6 * MIB);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes, "nothing is copied");
	cr_assert_eq(node_job(&node, "other")->nvme_charge.bytes, 2 * kept.op.held_bytes);
	node_check_space(&node);
	attach_other(1);
	cr_assert_eq(others[0].memory.committed_step, 1);
	cr_assert_eq(memcmp(zero_blob(others[0].rank, &bytes), "blob 1", 6), 0);
	cr_assert(plain_equals(&plain, &others[0]));
	model_train(others, 1, 2, 2);
	model_train(actors, 1, 3, 3);
	plain_train(&plain, 2, 2);
	cr_assert(plain_equals(&plain, &others[0]));
	node_check_space(&node);
	plain_train(&plain, 3, 3);
	cr_assert(plain_equals(&plain, &actors[0]), "the one that it came from");
	end();
}

/* Its job and the snapshot itself go meanwhile. */
Test(zero_snapshot_as, new_job_stands_by_itself_after_a_restart)
{
	begin(ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 1);
	plain_train(&plain, 1, 1);
	snapshot("a");
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0);
	actors[0].rank = NULL;
	cr_assert_eq(restore_as("train", "a", "other"), 0, "%s", kept.op.text.chars);
	cr_assert_eq(restore_as("train", "a", "train"), 0, "%s", kept.op.text.chars);
	restart();
	node_check_space(&node);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "a"), 0);
	attach_other(2);
	plain.world = 2;
	model_train(others, 2, 2, 2);
	plain_train(&plain, 2, 2);
	cr_assert(plain_equals(&plain, &others[1]));
	cr_assert_eq(node_job(&node, "train")->committed_step, 1);
	node_check_space(&node);
	end();
}

static void refused(int r, int error, const char *word)
{
	cr_assert_eq(r, error, "%d: %s", r, kept.op.text.chars);
	cr_assert_not_null(strstr(kept.op.text.chars, word), "%s", kept.op.text.chars);
	node_check_space(&node);
}

Test(zero_snapshot_as, what_cannot_be_is_refused_and_leaves_nothing)
{
	uint64_t used;

	begin(ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 1);
	snapshot("a");
	refused(restore_as("train", "a", "train"), -EEXIST, "job 'train' exists");
	refused(restore_as("train", "b", "other"), -ENOENT, "no snapshot 'train/b'");
	kept.op.uid = 7;
	refused(restore_as("train", "a", "other"), -ENOENT, "no snapshot 'train/a'");
	kept.op.uid = 0;
	used = zero_account(node.zero, 0)->used_bytes[TIER_NVME];
	zero_account(node.zero, 0)->limit_bytes[TIER_NVME] = 20 * MIB;
	refused(restore_as("train", "a", "other"), -EDQUOT, "needs twice its state");
	cr_assert_eq(zero_account(node.zero, 0)->used_bytes[TIER_NVME], used);
	zero_account(node.zero, 0)->limit_bytes[TIER_NVME] = UINT64_MAX;
	node.zero->options.jobs_per_uid_max = 1;
	refused(restore_as("train", "a", "other"), -EDQUOT, "1 jobs of at most 1");
	node.zero->options.jobs_per_uid_max = 8;
	cr_assert_null(node_job(&node, "other"));
	cr_assert_eq(node.zero->job_count, 1);
	end();
}

Test(zero_snapshot_as, state_in_memory_alone_is_told_another_way)
{
	begin(ZI_OFFLOAD_CPU);
	snapshot("a");
	refused(restore_as("train", "a", "other"), -EOPNOTSUPP, "zinf_load");
	end();
}

/* The catalog is told while somebody comes. */
Test(zero_snapshot_as, nobody_attaches_before_the_catalog_knows_it)
{
	int r;

	begin(ZI_OFFLOAD_NVME);
	snapshot("a");
	cr_assert_eq(zi_copy_name(kept.op.as, sizeof(kept.op.as), "other"), 0);
	kept_start(&node, &kept, zero_snapshot_restore, "train", "a");
	cr_assert(!kept.is_done);
	r = actor_attach(&node, &others[0],
	                 &(struct attach_options){ .job = "other", .world = 1, .config = config });
	cr_assert_eq(r, -EBUSY);
	cr_assert_not_null(strstr(others[0].text.chars, "being made of a snapshot"), "%s",
	                   others[0].text.chars);
	cr_assert_eq(kept_wait(&node, &kept), 0);
	attach_other(1);
	end();
}

/* ---- what is read of a job at rest ---- */

static void hold(void)
{
	kept.op = (struct zero_snapshot_op){ 0 };
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_hold, "train", ""), 0, "%s",
	             kept.op.text.chars);
}

Test(zero_snapshot_as, job_that_is_read_without_room_for_it_waits_for_that)
{
	struct zero_snapshot *held;
	int r;

	begin(ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 1);
	leave();
	zero_account(node.zero, 0)->limit_bytes[TIER_NVME] = 15 * MIB;
	hold();
	held = kept.op.held;
	cr_assert_eq(held->charge.bytes, 0);
	r = actor_attach(&node, &actors[0],
	                 &(struct attach_options){ .world = 1, .config = config });
	cr_assert_eq(r, -EBUSY, "%d", r);
	cr_assert_not_null(strstr(actors[0].text.chars, "wait for the end of the export"), "%s",
	                   actors[0].text.chars);
	zero_snapshot_release(held);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	model_train(actors, 1, 2, 2);
	end();
}

Test(zero_snapshot_as, what_is_read_is_paid_for_as_soon_as_that_matters)
{
	struct zero_snapshot *held;

	begin(ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 1);
	leave();
	zero_account(node.zero, 0)->limit_bytes[TIER_NVME] = 15 * MIB;
	hold();
	held = kept.op.held;
	zero_account(node.zero, 0)->limit_bytes[TIER_NVME] = UINT64_MAX;
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(held->charge.bytes, held->held_bytes);
	zero_snapshot_release(held);
	cr_assert_eq(zero_account(node.zero, 0)->used_bytes[TIER_NVME],
	             actors[0].rank->job->nvme_charge.bytes);
	end();
}

/* Of its two sets the one that is still read is paid for by whoever reads. */
Test(zero_snapshot_as, what_is_read_is_paid_for_when_its_job_ends)
{
	struct zero_snapshot *held;

	begin(ZI_OFFLOAD_NVME);
	model_train(actors, 1, 1, 1);
	leave();
	zero_account(node.zero, 0)->limit_bytes[TIER_NVME] = 15 * MIB;
	hold();
	held = kept.op.held;
	job_delete(node_job(&node, "train"));
	node_settle(&node);
	cr_assert_null(node_job(&node, "train"));
	cr_assert_eq(held->charge.bytes, held->held_bytes);
	node_check_space(&node);
	zero_snapshot_release(held);
	cr_assert_eq(zero_account(node.zero, 0)->used_bytes[TIER_NVME], 0);
	node_check_space(&node);
	end();
}
