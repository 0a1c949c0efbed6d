/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: after the daemon has gone, however, each job stands at its last committed step with the
 * same bits; what lived in memory alone is reported as lost; what is damaged is refused and the
 * rest goes on. Method: nodes are stopped without asking anybody, and started on the same
 * directory.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/step/commit.h"
#include "tests/unit/catalog/reseal.h"
#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[4];
static struct plain plain;
static struct zi_job_config config;

static void begin(uint32_t world, uint32_t param_dtype, uint32_t offload)
{
	config = model_config(param_dtype, offload);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, world);
	model_begin(&node, actors, world,
	            &(struct attach_options){ .incarnation = "run.0", .config = config });
}

static void crash_ranks(void)
{
	actors_leave(actors, ZI_COUNT_OF(actors), false);
}

static void crash(void)
{
	crash_ranks();
	node_stop(&node);
}

static void end(void)
{
	actors_leave(actors, ZI_COUNT_OF(actors), true);
	plain_deinit(&plain);
	node_deinit(&node);
}

static void run_as(const char *name, uint32_t world, uint64_t first, uint64_t last,
                   uint64_t resident_bytes)
{
	struct zi_step_options options = model_options();

	config.resident_bytes = resident_bytes;
	model_attach(&node, actors, world,
	             &(struct attach_options){ .incarnation = name, .config = config });
	cr_assert_eq(model_materialize(actors, world), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, (int64_t)first - 1);
	cr_assert(plain_equals(&plain, &actors[world - 1]));
	for (uint64_t step = first; step <= last; step++) {
		cr_assert_eq(model_step(actors, world, step, &options), 0, "%s",
		             actors[0].text.chars);
		plain_step(&plain, step, &options);
		cr_assert(plain_equals(&plain, &actors[0]));
	}
}

static void run(uint32_t world, uint64_t first, uint64_t last, uint64_t resident_bytes)
{
	run_as("run.1", world, first, last, resident_bytes);
}

Test(zero_recover, job_goes_on_from_its_commit_with_the_same_bits)
{
	struct zi_step_options options = model_options();
	uint64_t bytes = 0, free_bytes;

	begin(2, ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	for (uint64_t step = 1; step <= 2; step++) {
		cr_assert_eq(model_step(actors, 2, step, &options), 0);
		plain_step(&plain, step, &options);
	}
	/* A third is begun and handed over, but never ended. */
	free_bytes = tier_extent_free_bytes(&node.nvme);
	model_gradients(actors, 2, 3, &options);
	crash();
	node_start(&node);
	cr_assert_eq(node.lost_count, 0);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes,
	             "what no commit names is free");
	run(2, 3, 4, 4 * MIB);
	cr_assert_eq(memcmp(zero_blob(actors[1].rank, &bytes), "blob 4", 6), 0);
	crash();
	node_start(&node);
	run(2, 5, 5, 0);
	end();
}

Test(zero_recover, f32_job_goes_on_with_other_ranks)
{
	begin(2, ZI_DTYPE_F32, ZI_OFFLOAD_NVME);
	crash();
	node_start(&node);
	plain.world = 3;
	run(3, 1, 2, 0);
	end();
}

Test(zero_recover, job_that_grew_goes_on_with_the_blobs_of_all_its_ranks)
{
	uint64_t bytes = 0;

	begin(1, ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	crash();
	node_start(&node);
	plain.world = 3;
	run(3, 1, 1, 0);
	crash();
	node_start(&node);
	run(3, 2, 1, 0);
	cr_assert_eq(memcmp(zero_blob(actors[2].rank, &bytes), "blob 1", 6), 0);
	end();
}

/* Rank 1 comes back after a commit that it had no part in. */
Test(zero_recover, blob_of_a_rank_that_was_away_is_not_an_older_one)
{
	struct zi_step_options options = model_options();
	uint64_t bytes = 7;

	begin(2, ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	cr_assert_eq(model_step(actors, 2, 1, &options), 0);
	plain_step(&plain, 1, &options);
	crash_ranks();
	plain.world = 1;
	run(1, 2, 3, 0);
	crash_ranks();
	plain.world = 2;
	run_as("run.2", 2, 4, 3, 0);
	cr_assert_null(zero_blob(actors[1].rank, &bytes));
	cr_assert_eq(bytes, 0);
	end();
}

Test(zero_recover, blob_of_the_commit_is_given_back)
{
	struct zi_step_options options = model_options();
	uint64_t bytes = 0;

	begin(1, ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0);
	plain_step(&plain, 1, &options);
	crash();
	node_start(&node);
	run(1, 2, 1, 0);
	const void *blob = zero_blob(actors[0].rank, &bytes);

	cr_assert_eq(bytes, 6);
	cr_assert_eq(memcmp(blob, "blob 1", 6), 0);
	end();
}

Test(zero_recover, names_of_incarnations_go_on)
{
	begin(1, ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	crash();
	node_start(&node);
	run(1, 1, 1, 0);
	cr_assert_eq(actors[0].rank->job->group.number, 2, "run.1 is a new name");
	cr_assert_eq(actor_attach(&node, &actors[1],
	                          &(struct attach_options){
					  .incarnation = "run.0", .world = 1, .config = config }),
	             -ESTALE);
	end();
}

static int attach_named(uint32_t index, const char *name)
{
	return actor_attach(
		&node, &actors[index],
		&(struct attach_options){ .incarnation = name, .world = 1, .config = config });
}

Test(zero_recover, older_name_is_stale_for_the_next_daemon_too)
{
	begin(1, ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	/* The second is replaced before the catalog hears of it. */
	cr_assert_eq(attach_named(1, "run.1"), 0);
	cr_assert_eq(attach_named(2, "run.2"), 0);
	cr_assert_eq(model_materialize(&actors[2], 1), 0, "%s", actors[2].text.chars);
	crash();
	node_start(&node);
	cr_assert_eq(attach_named(0, "run.0"), -ESTALE);
	cr_assert_not_null(strstr(actors[0].text.chars, "older than the present one, 'run.2'"),
	                   "%s", actors[0].text.chars);
	cr_assert_eq(attach_named(0, "run.1"), -ESTALE);
	cr_assert_eq(attach_named(0, "run.2"), 0, "%s", actors[0].text.chars);
	cr_assert_eq(attach_named(1, "run.3"), 0, "%s", actors[1].text.chars);
	cr_assert_eq(actors[1].rank->job->group.number, 4);
	end();
}

static void take_lost(void *arg, const struct zero_job_report *report)
{
	*(int64_t *)arg = report->lost_step;
}

/* What an administrator sees of the job: the step that was lost; -1: none was. */
static int64_t lost_shown(void)
{
	int64_t step = -1;

	(void)zero_report(node.zero, "train", take_lost, &step); /* Not there: none is. */
	return step;
}

Test(zero_recover, state_in_memory_alone_is_reported_as_lost_and_the_name_is_free)
{
	begin(1, ZI_DTYPE_F32, ZI_OFFLOAD_CPU);
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert_not_null(node_job(&node, "train"), "it survives its trainers");
	node_stop(&node);
	node_start(&node);
	cr_assert_eq(node.lost_count, 1);
	cr_assert_str_eq(node.lost_name, "train");
	cr_assert_null(node_job(&node, "train"));
	node_settle(&node);
	node_stop(&node);
	node.lost_count = 0;
	node_start(&node);
	cr_assert_eq(node.lost_count, 1, "told until the job begins anew");
	cr_assert_eq(node.lost_step, 0);
	cr_assert_eq(lost_shown(), 0);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(lost_shown(), 0, "it has not begun yet");
	cr_assert_eq(zero_lost_step(actors[0].rank), 0);
	cr_assert_eq(model_materialize(actors, 1), 0);
	cr_assert_eq(zero_lost_step(actors[0].rank), -1, "it has begun");
	cr_assert_eq(actors[0].memory.committed_step, -1);
	cr_assert_eq(lost_shown(), -1);
	cr_assert_eq(node.zero->lost_count, 0);
	end();
}

/* A job that was lost, and is destroyed before it has begun anew. */
Test(zero_recover, who_destroys_a_job_that_was_lost_leaves_nothing_to_tell)
{
	begin(1, ZI_DTYPE_F32, ZI_OFFLOAD_CPU);
	actor_leave(&actors[0], true);
	node_settle(&node);
	node_stop(&node);
	node_start(&node);
	cr_assert_eq(lost_shown(), 0);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0);
	actors[0].rank = NULL;
	node_settle(&node);
	cr_assert_eq(lost_shown(), -1);
	cr_assert_eq(node.zero->lost_count, 0);
	node_stop(&node);
	node.lost_count = 0;
	node_start(&node);
	cr_assert_eq(node.lost_count, 0, "the catalog has forgotten it");
	end();
}

struct shown {
	uint32_t count;
	int64_t steps[2];
	uint32_t uids[2];
};

static void take_shown(void *arg, const struct zero_job_report *report)
{
	struct shown *shown = arg;

	cr_assert_lt(shown->count, 2);
	shown->steps[shown->count] = report->lost_step;
	shown->uids[shown->count++] = report->uid;
}

/* As if zinfd were started again, with nothing but the catalog. */
static void lose(void)
{
	begin(1, ZI_DTYPE_F32, ZI_OFFLOAD_CPU);
	model_train(actors, 1, 1, 3);
	actor_leave(&actors[0], true);
	node_settle(&node);
	node_stop(&node);
	node.lost_count = 0;
	node_start(&node);
	cr_assert_eq(node.lost_step, 3);
	cr_assert_eq(lost_shown(), 3);
}

Test(zero_recover, ranks_of_its_owner_learn_where_a_lost_job_stood)
{
	struct attach_options options = { .world = 1 };

	lose();
	options.config = config;
	options.uid = 7;
	cr_assert_eq(actor_attach(&node, &actors[0], &options), 0, "%s", actors[0].text.chars);
	cr_expect_eq(zero_lost_step(actors[0].rank), -1, "another uid learns nothing");
	actor_leave(&actors[0], true);
	node_settle(&node);
	options.uid = 0;
	cr_assert_eq(actor_attach(&node, &actors[0], &options), 0, "%s", actors[0].text.chars);
	cr_expect_eq(zero_lost_step(actors[0].rank), 3);
	end();
}

/* Names of jobs are one space for all uids: what another one lost is not told of this one's. */
Test(zero_recover, a_lost_step_is_not_shown_with_a_job_of_that_name_of_another_uid)
{
	struct shown shown = { .count = 0 };

	lose();
	container_of(node.zero->lost.next, struct zero_job, jobs_link)->uid++;
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	(void)zero_report(node.zero, "train", take_shown, &shown);
	cr_assert_eq(shown.count, 2, "each uid's");
	cr_expect_eq(shown.steps[0], -1);
	cr_expect_eq(shown.steps[1], 3);
	cr_expect_neq(shown.uids[0], shown.uids[1]);
	end();
}

/* A lost job of uid 0, and a job of uid 7 that has begun under its name. */
static void take_name(void)
{
	struct attach_options options = { .world = 1, .uid = 7 };

	lose();
	options.config = config;
	cr_assert_eq(actor_attach(&node, &actors[0], &options), 0, "%s", actors[0].text.chars);
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	node_settle(&node);
}

static void expect_both(void)
{
	struct shown shown = { .count = 0 };

	(void)zero_report(node.zero, "train", take_shown, &shown);
	cr_assert_eq(shown.count, 2);
	cr_expect_eq(shown.uids[0], 7);
	cr_expect_eq(shown.steps[0], -1);
	cr_expect_eq(shown.uids[1], 0);
	cr_expect_eq(shown.steps[1], 3, "its owner is still told");
}

Test(zero_recover, a_lost_job_stays_known_when_another_uid_takes_its_name)
{
	struct attach_options options = { .world = 1 };

	take_name();
	expect_both();
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0);
	actors[0].rank = NULL;
	node_settle(&node);
	cr_expect_eq(lost_shown(), 3);
	options.config = config;
	cr_assert_eq(actor_attach(&node, &actors[0], &options), 0, "%s", actors[0].text.chars);
	cr_expect_eq(zero_lost_step(actors[0].rank), 3);
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_expect_eq(zero_lost_step(actors[0].rank), -1, "it has begun");
	cr_expect_eq(node.zero->lost_count, 0);
	end();
}

static bool is_deleted;

static void delete_done(struct zero_snapshot_op *op)
{
	(void)op;
	is_deleted = true;
}

Test(zero_recover, lost_job_is_shown_until_it_is_deleted)
{
	struct zero_snapshot_op op = { .job = "train", .done = delete_done };

	lose();
	zero_job_delete(node.zero, &op);
	while (!is_deleted)
		node_turn(&node);
	cr_assert_eq(op.result, 0, "%s", op.text.chars);
	cr_assert_eq(lost_shown(), -1);
	node_settle(&node);
	node_stop(&node);
	node.lost_count = 0;
	node_start(&node);
	cr_assert_eq(node.lost_count, 0, "the catalog has forgotten it");
	end();
}

Test(zero_recover, a_lost_job_is_deleted_beside_a_job_of_another_uid)
{
	struct zero_snapshot_op op = { .job = "train", .uid = 0, .done = delete_done };

	take_name();
	zero_job_delete(node.zero, &op);
	while (!is_deleted)
		node_turn(&node);
	cr_expect_eq(op.result, 0, "%s", op.text.chars);
	cr_expect_eq(node.zero->lost_count, 0);
	cr_assert(node_job(&node, "train")->is_stored, "the catalog still has the other uid's job");
	model_write(actors, 1);
	actor_leave(&actors[0], true);
	node_settle(&node);
	node_stop(&node);
	node.lost_count = 0;
	node_start(&node);
	cr_assert_eq(node.lost_count, 1, "the catalog has it as well");
	end();
}

Test(zero_recover, state_in_memory_survives_its_trainers)
{
	struct zi_step_options options = model_options();

	begin(2, ZI_DTYPE_BF16, ZI_OFFLOAD_NONE);
	cr_assert_eq(model_step(actors, 2, 1, &options), 0);
	plain_step(&plain, 1, &options);
	for (uint32_t i = 0; i < 2; i++)
		actor_leave(&actors[i], false);
	run(2, 2, 3, 0);
	end();
}

Test(zero_recover, job_that_never_committed_is_gone)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0);
	crash();
	node_start(&node);
	cr_assert_null(node_job(&node, "train"));
	cr_assert_eq(node.lost_count, 0, "nothing was lost");
	end();
}

static void sql(const char *statement, bool is_sealed)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/catalog.db", node.directory);
	change_file(path, statement, is_sealed);
}

/* After @statement nobody may attach to job 'train'; another job beside it goes on. */
static void refused_as(const char *statement, bool is_sealed, int error, const char *head,
                       const char *word)
{
	struct attach_options options = { .job = "other", .world = 1 };
	int r;

	begin(1, ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	crash();
	sql(statement, is_sealed);
	node_start(&node);
	options.config = config;
	r = actor_attach(&node, &actors[0],
	                 &(struct attach_options){ .world = 1, .config = config });
	cr_assert_eq(r, error, "%d", r);
	cr_assert_not_null(strstr(actors[0].text.chars, head), "%s", actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, word), "%s", actors[0].text.chars);
	cr_assert_eq(actor_attach(&node, &actors[0], &options), 0);
	/* Damage is kept for whoever can mend it: the other job has what is left of the space. */
	node_job(&node, "other")->config.staging_bytes = 0;
	end();
}

static void refused(const char *statement, int error, const char *head, const char *word)
{
	refused_as(statement, true, error, head, word);
}

static void refused_unsealed(const char *statement, const char *word)
{
	refused_as(statement, false, -EUCLEAN, "job 'train' is damaged", word);
}

static void damaged(const char *statement, const char *word)
{
	refused(statement, -EUCLEAN, "job 'train' is damaged", word);
}

Test(zero_recover, extent_in_use_twice_is_refused)
{
	damaged("UPDATE extent SET offset = (SELECT min(offset) FROM extent WHERE bytes > 0) "
	        "WHERE bytes > 0",
	        "in use twice");
}

Test(zero_recover, extent_outside_its_store_is_refused)
{
	damaged("UPDATE extent SET offset = 1099511627776 WHERE subgroup = 1 AND bytes > 0",
	        "outside its store");
}

Test(zero_recover, extent_of_the_wrong_length_is_refused)
{
	damaged("UPDATE extent SET bytes = bytes + 4096 WHERE subgroup = 1 AND bytes > 0",
	        "wrong length");
}

Test(zero_recover, store_that_is_not_configured_is_asked_for)
{
	refused("UPDATE extent SET store_uuid = x'00112233445566778899aabbccddeeff' "
	        "WHERE bytes > 0",
	        -ENODEV, "job 'train' is kept as it is",
	        "a store that the configuration does not name");
}

Test(zero_recover, strategy_that_there_is_not_is_refused)
{
	damaged("UPDATE start SET training = CAST(x'09' || zeroblob(127) AS BLOB)", "strategy");
}

Test(zero_recover, missing_extent_is_refused)
{
	damaged("DELETE FROM extent WHERE plane = 0 AND unit = 1 AND subgroup = 1",
	        "parameters without an extent");
}

Test(zero_recover, extent_of_no_subgroup_is_refused)
{
	damaged("UPDATE extent SET subgroup = 99 WHERE plane = 0 AND unit = 0",
	        "an extent of no subgroup");
}

Test(zero_recover, missing_state_does_not_pass_for_zero)
{
	damaged("DELETE FROM extent WHERE plane = 1 AND unit = 1 AND subgroup = 1",
	        "optimizer state without an extent");
}

/* Its tables would need petabytes: the daemon starts all the same, and the other job trains. */
Test(zero_recover, absurd_shape_refuses_its_job_alone)
{
	damaged("UPDATE param SET shape = x'0000000000800000' WHERE param = 0",
	        "a layout larger than its extents");
}

Test(zero_recover, shape_beyond_all_limits_is_refused)
{
	damaged("UPDATE param SET shape = x'ffffffffffffffff' WHERE param = 0",
	        "passes 2^48 elements");
}

Test(zero_recover, bit_in_a_blob_or_a_layout_is_noticed)
{
	refused_unsealed("UPDATE blob SET bytes = x'00'", "checksum of a row in table blob");
	refused_unsealed("UPDATE unit SET name = 'heed' WHERE unit = 0",
	                 "checksum of a row in table unit");
}

/* The first row is the one that is wrong: all those behind it are kept as well. */
Test(zero_recover, space_of_a_damaged_job_is_given_to_nobody)
{
	uint64_t free_bytes;

	begin(1, ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	crash();
	sql("UPDATE extent SET hashes = x'' WHERE plane = 0 AND unit = 0 AND subgroup = 0", true);
	node_start(&node);
	cr_assert_eq(node_job(&node, "train")->refusal, -EUCLEAN);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	end();
}

Test(zero_recover, job_beyond_its_quota_is_refused_with_figures_and_kept)
{
	begin(1, ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	crash();
	node.uid_nvme_bytes = MIB;
	node_start(&node);
	cr_assert_eq(actor_attach(&node, &actors[0],
	                          &(struct attach_options){ .world = 1, .config = config }),
	             -EDQUOT);
	cr_assert_not_null(strstr(actors[0].text.chars, "needs twice its state"));
	node_stop(&node);
	node.uid_nvme_bytes = UINT64_MAX;
	node_start(&node);
	run(1, 1, 1, 0);
	end();
}
