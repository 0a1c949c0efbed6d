/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a commit's name is its own: the number counts what the job commits and nothing else, over
 * restarts and snapshots, and the line is of the group that made it; a commit that was kept beside
 * the one in force is in nobody's way. Method: a job beside the plain computation; what is in the
 * catalog is what the next daemon takes over.
 */
#include <fcntl.h>

#include "daemon/tier/stripe.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "tests/unit/catalog/reseal.h"
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[1], others[1];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;

static void begin(void)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node.store_count = 2;
	node.store_bytes = 64 * MIB;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
}

static void leave(void)
{
	actors_leave(actors, 1, true);
	actors_leave(others, 1, true);
	node_settle(&node);
}

static void end(void)
{
	leave();
	plain_deinit(&plain);
	node_deinit(&node);
}

static void halt(void)
{
	leave();
	node_stop(&node);
}

/* The next incarnation, at @step. */
static void go_on(uint64_t step)
{
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, (int64_t)step);
	cr_assert(plain_equals(&plain, &actors[0]));
}

static void train(uint64_t first, uint64_t last)
{
	model_train(actors, 1, first, last);
	plain_train(&plain, first, last);
}

static const struct zero_marks *committed(const char *name)
{
	return &node_job(&node, name)->committed;
}

static int snapshot_call(kept_fn function, const char *name, const char *as)
{
	int r;

	(void)zi_copy_name(kept.op.as, sizeof(kept.op.as), as); /* Short. */
	r = kept_call(&node, &kept, function, "train", name);
	kept.op.as[0] = '\0';
	return r;
}

Test(zero_number, commits_are_counted_over_restarts_and_each_group_has_its_line)
{
	uint64_t number, line;

	begin();
	number = committed("train")->number;
	line = committed("train")->line;
	cr_assert_eq(number, 1, "the first commit: step 0");
	cr_assert_eq(line, actors[0].rank->job->group.line);
	cr_assert_neq(line, 0);
	train(1, 3);
	cr_assert_eq(committed("train")->number, number + 3);
	cr_assert_eq(committed("train")->line, line);
	cr_assert_eq(committed("train")->placement.node_count, 1);
	halt();
	node_start(&node);
	cr_assert_eq(committed("train")->number, number + 3);
	cr_assert_eq(committed("train")->line, line);
	cr_assert_eq(committed("train")->placement.node_count, 1);
	go_on(3);
	train(4, 4);
	cr_assert_eq(committed("train")->number, number + 4);
	cr_assert_neq(committed("train")->line, line);
	end();
}

Test(zero_number, moving_what_is_committed_makes_no_commit_and_restoring_does)
{
	uint64_t number, line;

	begin();
	train(1, 2);
	cr_assert_eq(snapshot_call(zero_snapshot_create, "a", ""), 0, "%s", kept.op.text.chars);
	number = committed("train")->number;
	line = committed("train")->line;
	cr_assert_eq(snapshot_find(node.zero, "train", "a")->record->number, number);
	cr_assert_eq(snapshot_find(node.zero, "train", "a")->record->line, line);
	leave();
	node.nvme.members[1].is_draining = true;
	zero_evacuate(node.zero);
	node_settle(&node);
	cr_assert_eq(tier_member_used_bytes(&node.nvme.members[1]), 0);
	cr_assert_eq(committed("train")->number, number);
	node_stop(&node);
	node_start(&node);
	cr_assert_eq(committed("train")->number, number, "as it was written");
	cr_assert_eq(committed("train")->line, line);
	go_on(2);
	model_train(actors, 1, 3, 4);
	leave();
	cr_assert_eq(snapshot_call(zero_snapshot_restore, "a", ""), 0, "%s", kept.op.text.chars);
	cr_assert_eq(committed("train")->number, number + 3);
	cr_assert_eq(snapshot_call(zero_snapshot_restore, "a", "other"), 0, "%s",
	             kept.op.text.chars);
	cr_assert_eq(committed("other")->number, 1, "another job counts anew");
	node_stop(&node);
	node_start(&node);
	cr_assert_eq(committed("train")->number, number + 3);
	cr_assert_eq(committed("other")->number, 1);
	go_on(2);
	train(3, 3);
	cr_assert_eq(committed("train")->number, number + 4);
	end();
}

Test(zero_number, job_that_begins_with_a_snapshot_begins_to_count)
{
	struct zi_text text = { "" };

	begin();
	train(1, 2);
	cr_assert_eq(snapshot_call(zero_snapshot_create, "a", ""), 0, "%s", kept.op.text.chars);
	model_attach(&node, others, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(zero_load(others[0].rank, "train", "a", &text), 0, "%s", text.chars);
	cr_assert_eq(model_materialize(others, 1), 0, "%s", others[0].text.chars);
	cr_assert_eq(committed("other")->number, 1);
	cr_assert_eq(committed("other")->line, others[0].rank->job->group.line);
	end();
}

/* The newest start's, and of each commit that under which it was made. */
Test(zero_number, how_a_job_trains_is_kept_with_its_start_and_its_commits)
{
	const struct zi_job_training training = { .strategy = ZI_STRATEGY_ZERO2,
		                                  .shard_size = 1,
		                                  .grad_budget_bytes = 2 * MIB + 1 };

	begin();
	train(1, 1);
	halt();
	node_start(&node);
	cr_assert(node_job(&node, "train")->is_training_known);
	cr_assert_eq(node_job(&node, "train")->training.strategy, ZI_STRATEGY_DEFAULT);
	model_attach(&node, actors, 1,
	             &(struct attach_options){ .config = config, .training = training });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(committed("train")->placement.strategy, ZI_STRATEGY_DEFAULT);
	train(2, 2);
	cr_assert_eq(committed("train")->placement.strategy, ZI_STRATEGY_ZERO2);
	halt();
	node_start(&node);
	cr_assert_eq(memcmp(&node_job(&node, "train")->training, &training, sizeof(training)), 0);
	cr_assert_eq(committed("train")->placement.strategy, ZI_STRATEGY_ZERO2);
	cr_assert_eq(committed("train")->placement.shard_size, 1);
	go_on(2);
	end();
}

/* ---- a commit beside the one in force: only several nodes make one ---- */

/* Step 2 as it would be if step 1 had been kept: its rows in the other slot. */
static const char keep_sql[] =
	"INSERT INTO extent SELECT job_id, 1, plane, unit, subgroup, store_uuid, offset, bytes, 1,"
	" hashes, checksum FROM extent;"
	"INSERT INTO blob SELECT job_id, 1, rank, bytes, checksum FROM blob;"
	"INSERT INTO stand SELECT job_id, 1, 1, world_size, update_count - 1, beta1_power,"
	" beta2_power, number - 1, line, stamp - 1, strategy, shard_size, node_count, nodes,"
	" scaler, blob_count, rows_sum, checksum FROM stand;";

static void change(const char *sql, bool is_sealed)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/catalog.db", node.directory);
	change_file(path, sql, is_sealed);
}

Test(zero_number, commit_that_was_kept_is_in_nobodys_way)
{
	uint64_t free_bytes;

	begin();
	train(1, 2);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	halt();
	change(keep_sql, true);
	node_start(&node);
	cr_assert_eq(node_job(&node, "train")->refusal, 0, "%s",
	             node_job(&node, "train")->refusal_text.chars);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	go_on(2);
	train(3, 4);
	halt();
	/* Damage of its own. */
	change("UPDATE extent SET offset = offset + 4096 WHERE slot = 1", false);
	node_start(&node);
	go_on(4);
	train(5, 5);
	node_check_space(&node);
	end();
}

Test(zero_number, space_of_both_is_given_to_nobody_when_it_is_not_sure_which_is_newer)
{
	uint64_t free_bytes, moved_bytes;

	begin();
	train(1, 2);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	moved_bytes = tier_member_used_bytes(&node.nvme.members[0]);
	cr_assert_gt(moved_bytes, 0);
	halt();
	change(keep_sql, true);
	/* Beside what the newer one names, by more than it has. */
	change("UPDATE extent SET offset = offset + 33554432 WHERE slot = 1 AND bytes > 0", true);
	change("UPDATE stand SET number = number + 1 WHERE slot = 1", false);
	node_start(&node);
	cr_assert_eq(node_job(&node, "train")->refusal, -EUCLEAN);
	cr_assert_not_null(strstr(node_job(&node, "train")->refusal_text.chars, "table stand"),
	                   "%s", node_job(&node, "train")->refusal_text.chars);
	cr_assert_lt(tier_extent_free_bytes(&node.nvme), free_bytes,
	             "what the other one names is kept as well");
	end();
}
