/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job that nobody uses can be ended by whoever may, also one that no rank can attach to;
 * its space is free, its snapshots stay, its name can be used again; while anybody uses it, it is
 * refused with the pids. Method: one node; ranks come and go, the catalog is spoilt behind the
 * daemon's back, and bytes are counted.
 */
#include "tests/unit/catalog/fault_vfs.h"
#include "tests/unit/catalog/reseal.h"
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[2];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;
static uint64_t free_bytes; /* before there was a job */

static void train(uint64_t step)
{
	struct zi_step_options options = model_options();

	cr_assert_eq(model_step(actors, 1, step, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, step, &options);
}

static uint64_t free_now(void)
{
	return nvme_space_free_bytes(node.nvme.members[0].space);
}

static void come(void)
{
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
}

static void begin(uint32_t offload)
{
	config = model_config(ZI_DTYPE_BF16, offload);
	node_init(&node);
	node.store_bytes = 96 * MIB;
	node_start(&node);
	free_bytes = free_now();
	plain_init(&plain, &config, 1);
	come();
	train(1);
}

static void leave(void)
{
	for (uint32_t i = 0; i < 2; i++)
		if (actors[i].rank)
			actor_leave(&actors[i], true);
	node_settle(&node);
}

static void end(void)
{
	leave();
	plain_deinit(&plain);
	node_deinit(&node);
}

static void delete_job(int error, const char *word)
{
	cr_assert_eq(kept_call(&node, &kept, zero_job_delete, "train", ""), error, "%d: %s",
	             kept.op.result, kept.op.text.chars);
	if (word)
		cr_assert_not_null(strstr(kept.op.text.chars, word), "%s", kept.op.text.chars);
}

/* A new job of that name is none of the old one. */
static void begin_anew(void)
{
	plain_deinit(&plain);
	plain_init(&plain, &config, 1);
	come();
	train(1);
	cr_assert(plain_equals(&plain, &actors[0]));
}

static void end_at_rest(uint32_t offload)
{
	begin(offload);
	leave();
	delete_job(0, NULL);
	cr_assert_eq(kept.op.step, 1);
	cr_assert_gt(kept.op.held_bytes, 0);
	cr_assert_not(kept.op.is_space_kept);
	cr_assert_null(node_job(&node, "train"));
	cr_assert_eq(free_now(), free_bytes);
	delete_job(-ENOENT, "no job 'train'");
	node_stop(&node);
	node_start(&node);
	cr_assert_null(node_job(&node, "train"));
	cr_assert_eq(node.lost_count, 0, "nothing was lost");
	begin_anew();
	end();
}

Test(zero_delete, of_a_job_at_rest_leaves_nothing)
{
	end_at_rest(ZI_OFFLOAD_NVME);
	end_at_rest(ZI_OFFLOAD_CPU);
}

/* Nobody else's job; and none that is in use, whatever its ranks are at. */
Test(zero_delete, is_refused_by_name_while_it_is_used)
{
	char pid[32];

	begin(ZI_OFFLOAD_NVME);
	(void)snprintf(pid, sizeof(pid), "rank 0: pid %d)", actors[0].rank->pid);
	delete_job(-EBUSY, pid);
	cr_assert_eq(actor_attach(&node, &actors[1],
	                          &(struct attach_options){
					  .incarnation = "run.1", .world = 1, .config = config }),
	             0);
	actor_leave(&actors[1], true);
	delete_job(-EBUSY, "of an older start of job 'train' have not ended yet");
	actor_leave(&actors[0], true);
	node_settle(&node);
	kept.op.uid = 4711;
	delete_job(-ENOENT, "no job 'train'"); /* As if it were not there. */
	kept.op.is_admin = true;
	delete_job(0, NULL);
	end();
}

/* The catalog's answer is on its way: nobody comes, nobody asks twice. */
Test(zero_delete, ranks_that_come_meanwhile_are_refused)
{
	struct kept other = { .op.done = NULL };

	begin(ZI_OFFLOAD_NVME);
	leave();
	kept_start(&node, &kept, zero_job_delete, "train", "");
	cr_assert_eq(actor_attach(&node, &actors[1],
	                          &(struct attach_options){ .world = 1, .config = config }),
	             -EBUSY);
	cr_assert_eq(kept_call(&node, &other, zero_job_delete, "train", ""), -EBUSY);
	cr_assert_eq(kept_wait(&node, &kept), 0);
	begin_anew();
	end();
}

Test(zero_delete, leaves_its_snapshots)
{
	begin(ZI_OFFLOAD_NVME);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "one"), 0);
	train(2);
	leave();
	delete_job(0, NULL);
	node_check_space(&node);
	cr_assert_lt(free_now(), free_bytes);
	model_attach(&node, actors, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(zero_load(actors[0].rank, "train", "one", &actors[0].text), 0);
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, 1);
	actor_leave(&actors[0], true);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "one"), 0);
	end();
}

/* What nobody can attach to any more: its name is free at once, its space at the next start. */
Test(zero_delete, ends_a_job_that_is_damaged)
{
	char path[128];

	begin(ZI_OFFLOAD_NVME);
	leave();
	node_stop(&node);
	(void)snprintf(path, sizeof(path), "%s/catalog.db", node.directory);
	change_file(path, "UPDATE extent SET subgroup = 99 WHERE plane = 0 AND unit = 0", true);
	node_start(&node);
	cr_assert_eq(node_job(&node, "train")->refusal, -EUCLEAN);
	delete_job(0, NULL);
	cr_assert(kept.op.is_space_kept);
	cr_assert_null(node_job(&node, "train"));
	cr_assert_lt(free_now(), free_bytes);
	node_stop(&node);
	node_start(&node);
	cr_assert_null(node_job(&node, "train"));
	cr_assert_eq(free_now(), free_bytes);
	begin_anew();
	end();
}

/* The catalog refuses: the job is there, where it stood, and can be deleted again. */
Test(zero_delete, that_the_catalog_refuses_changes_nothing)
{
	fault_install();
	begin(ZI_OFFLOAD_NVME);
	leave();
	fail_next(OP_WRITE, true, SQLITE_FULL);
	delete_job(-ENOSPC, "deleting job 'train'");
	node_check_space(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	leave();
	delete_job(0, NULL);
	end();
}

/* The record of a job that was lost with state in memory stays as well, and shows the same step. */
Test(zero_delete, of_a_lost_job_that_the_catalog_refuses_keeps_its_record)
{
	fault_install();
	begin(ZI_OFFLOAD_CPU);
	leave();
	node_stop(&node);
	node_start(&node);
	cr_assert_eq(node.lost_step, 1);
	fail_next(OP_WRITE, true, SQLITE_FULL);
	delete_job(-ENOSPC, "deleting job 'train'");
	cr_assert_eq(node.zero->lost_count, 1);
	cr_assert_null(node_job(&node, "train"));
	delete_job(0, NULL);
	cr_assert_eq(kept.op.step, 1);
	cr_assert_eq(node.zero->lost_count, 0);
	end();
}

/* A daemon with a smaller table of jobs: records beyond it are forgotten. */
Test(zero_delete, of_lost_jobs_beyond_the_table_is_done_by_the_daemon)
{
	static const char *const names[] = { "one", "two", "three" };

	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_CPU);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 1);
	for (uint32_t i = 0; i < ZI_COUNT_OF(names); i++) {
		model_begin(&node, actors, 1,
		            &(struct attach_options){ .job = names[i], .config = config });
		actor_leave(&actors[0], true);
		node_settle(&node);
	}
	node_stop(&node);
	node.lost_count = 0;
	node.jobs_max = 2;
	node_start(&node);
	cr_expect_eq(node.lost_count, 3, "all are told");
	cr_expect_eq(node.zero->lost_count, 2);
	node_settle(&node);
	node_stop(&node);
	node.lost_count = 0;
	node_start(&node);
	cr_expect_eq(node.lost_count, 2, "the catalog has forgotten one");
	end();
}
