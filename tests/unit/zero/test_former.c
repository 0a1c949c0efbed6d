/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the commit before the one in force, while it is kept, is held against everybody, is gone
 * back to with its own bits, and goes without a trace; rows of one that was released harm nobody,
 * whoever has its space since. Method: commits that the other nodes leave open, daemons that are
 * started anew, jobs, snapshots and paths beside them; free space counted anew from every holder.
 */
#include "daemon/catalog/catalog_private.h"
#include "tests/unit/catalog/reseal.h"
#include "tests/unit/zero/voted.h"

static struct kept kept;
static struct actor others[1];

static uint64_t used(uint32_t index)
{
	return tier_member_used_bytes(&node.nvme.members[index]);
}

static void snapshot(const char *name)
{
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", name), 0, "%s",
	             kept.op.text.chars);
}

static void sql(const char *statement, bool is_sealed)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/catalog.db", node.directory);
	change_file(path, statement, is_sealed);
}

/* Stands at 2, beside it 1: left open. */
static void begin_open(uint32_t world)
{
	votes_begin_nvme(world);
	step(world, 1);
	step_left_open(world, 2);
}

/* What came first was nothing: the job has never committed then. */
Test(zero_former, before_the_first_commit_there_was_nothing)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	ballots_forget();
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0);
	ballot = ballot_give(job());
	ballot->errors[BALLOT_COMMITTED] = -EPIPE;
	for (uint32_t unit = 0; unit < UNITS; unit++)
		model_write_unit(actors, 1, unit, 900);
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), -EPIPE);
	cr_assert(actors[0].is_broken);
	leave_all(1);
	cr_assert_eq(job()->committed_step, 0);
	cr_assert_eq(job()->former.step, -1);
	restart();
	cr_assert_eq(job()->former.step, -1);
	ballot = ballot_give(job());
	ballot->is_back = true;
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, -1);
	cr_assert_eq(held_bytes(), 0);
	model_write(actors, 1);
	step(1, 1);
	end(1);
}

/* State that counts as zero since it was written anew comes back as it was. */
Test(zero_former, state_that_was_cleared_comes_back)
{
	votes_begin_nvme(1);
	step(1, 1);
	model_write_unit(actors, 1, 1, 77);
	ballot->errors[BALLOT_COMMITTED] = -EPIPE;
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), -EPIPE);
	leave_all(1);
	cr_assert_lt(held_bytes(), 2 * state_bytes());
	node_check_space(&node);
	restart();
	node_check_space(&node);
	ballot = ballot_give(job());
	ballot->is_back = true;
	come_back(1, 1);
	step(1, 2);
	end(1);
}

/* A job that no longer asks anybody goes on with the newer one, and the catalog has that alone. */
Test(zero_former, job_without_votes_goes_on_with_the_newer_one)
{
	struct zi_step_options options = model_options();

	begin_open(2);
	restart();
	cr_assert(job()->former.is_kept);
	plain_step(&plain, 2, &options);
	come_back(2, 2);
	cr_assert_eq(held_bytes(), state_bytes());
	leave_all(2);
	restart();
	cr_assert_not(former_is_open(job()));
	cr_assert_eq(held_bytes(), state_bytes());
	come_back(2, 2);
	step(2, 3);
	end(2);
}

/* Another job has committed where the former commit lay: neither of them is damaged. */
Test(zero_former, rows_of_what_was_released_harm_nobody_who_has_its_space)
{
	struct zi_step_options options = model_options();

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	votes_begin_in(1, &config, 32 * MIB);
	node_check_space(&node);
	step(1, 1);
	step(1, 2);
	leave_untidily(1);
	model_begin(&node, others, 1, &(struct attach_options){ .job = "other", .config = config });
	for (uint64_t number = 1; number <= 4; number++)
		cr_assert_eq(model_step(others, 1, number, &options), 0, "%s",
		             others[0].text.chars);
	actors_leave(others, 1, false);
	node_settle(&node);
	cr_assert_eq(held_bytes(), 2 * state_bytes());
	restart();
	cr_assert_eq(node_job(&node, "other")->refusal, 0);
	cr_assert_eq(job()->refusal, 0);
	cr_assert(job()->former.is_stored);
	cr_assert_not(job()->former.is_kept, "its space is another's");
	cr_assert_eq(held_bytes(), 2 * state_bytes());
	node_check_space(&node);
	come_back(1, 2);
	cr_assert_not(former_is_open(job()));
	step(1, 3);
	end(1);
}

static void other_step(uint64_t number, int error)
{
	struct zi_step_options options = model_options();

	model_gradients(others, 1, number, &options);
	cr_assert_eq(actor_call(&others[0], zero_step, NULL), error, "%s", others[0].text.chars);
}

/* Where the job's released former commit lay the other one has committed, and keeps that: it is
 * needed. @is_refused: the job is damaged as well. */
static void former_of_two(bool is_other_first, uint64_t steps, bool is_refused)
{
	struct attach_options other = { .job = "other", .config = { 0 } };
	uint64_t number = 1;

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	other.config = config;
	ballots_forget();
	node_init(&node);
	node.store_bytes = 26 * MIB; /* So that nobody has space that was nobody's. */
	node_start(&node);
	plain_init(&plain, &config, 1);
	if (is_other_first)
		model_begin(&node, others, 1, &other);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	ballot = ballot_give(job());
	step(1, 1);
	step(1, 2);
	leave_untidily(1);
	if (!is_other_first)
		model_begin(&node, others, 1, &other);
	ballot = ballot_give(node_job(&node, "other"));
	for (; number <= steps; number++)
		other_step(number, 0);
	ballot->errors[BALLOT_COMMITTED] = -EPIPE;
	other_step(number, -EPIPE);
	actors_leave(others, 1, false);
	node_settle(&node);
	cr_assert_eq(held_bytes(), 3 * state_bytes());
	node_stop(&node);
	if (is_refused)
		sql("UPDATE extent SET step = step + 1 WHERE job_id = (SELECT id FROM job "
		    "WHERE name = 'train') AND slot = (SELECT slot FROM stand WHERE step = 2)",
		    false);
	ballots_forget();
	node_start(&node);
	cr_assert_eq(job()->refusal, is_refused ? -EUCLEAN : 0);
	cr_assert_not(job()->former.is_kept);
	cr_assert(node_job(&node, "other")->former.is_kept, "it is needed");
	cr_assert_eq(node_job(&node, "other")->former.step, (int64_t)number - 1);
	ballot = ballot_give(node_job(&node, "other"));
	ballot->is_back = true;
	model_attach(&node, others, 1, &other);
	cr_assert_eq(model_materialize(others, 1), 0, "%s", others[0].text.chars);
	cr_assert_eq(others[0].memory.committed_step, (int64_t)number - 1);
	actors_leave(others, 1, false);
	end(1);
}

Test(zero_former, commit_that_is_needed_goes_before_one_that_was_released)
{
	for (uint64_t steps = 2; steps <= 3; steps++) {
		former_of_two(false, steps, false);
		former_of_two(true, steps, false);
		former_of_two(false, steps, true);
		former_of_two(true, steps, true);
	}
}

/* Where the former commit lay the next step was about to write: on with the newer one. Who goes
 * back all the same is told what is damaged, and given nothing. */
static void written_over(bool is_back)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	/* Twice the state, and an extent. */
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	votes_begin_in(1, &config, 16 * MIB);
	step(1, 1);
	step(1, 2);
	model_gradients(actors, 1, 3, &options);
	node_settle(&node);
	leave_untidily(1);
	restart();
	cr_assert(job()->former.is_kept, "nobody else has its space");
	cr_assert_eq(job()->former.step, 1);
	ballot = ballot_give(job());
	ballot->is_back = is_back;
	if (is_back) {
		model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
		cr_assert_eq(model_materialize(actors, 1), -EBADMSG, "%s", actors[0].text.chars);
		cr_assert_not_null(strstr(actors[0].text.chars, "damaged"), "%s",
		                   actors[0].text.chars);
	} else {
		come_back(1, 2);
		step(1, 3);
	}
	end(1);
}

Test(zero_former, what_was_released_and_written_on_is_never_taken)
{
	written_over(false);
	written_over(true);
}

/* Nobody comes to decide between them: there is one. */
Test(zero_former, job_at_rest_leaves_no_rows_of_what_was_released)
{
	votes_begin_nvme(2);
	step(2, 1);
	step(2, 2);
	cr_assert(job()->former.is_stored);
	leave_all(2);
	cr_assert_not(former_is_open(job()));
	restart();
	cr_assert_not(former_is_open(job()));
	cr_assert_eq(job()->committed_step, 2);
	cr_assert_eq(held_bytes(), state_bytes());
	come_back(2, 2);
	step(2, 3);
	end(2);
}

/* Ranks that come meanwhile wait for it. */
Test(zero_former, ranks_that_come_wait_until_the_rows_are_gone)
{
	votes_begin_nvme(1);
	step(1, 1);
	step(1, 2);
	actor_leave(&actors[0], false);
	cr_assert(job()->busy_count, "the catalog is asked");
	come_back(1, 2);
	cr_assert_not(former_is_open(job()));
	end(1);
}

/* Tried once, and nothing else depends on it. */
Test(zero_former, rows_that_cannot_be_dropped_stay_until_the_next_commit)
{
	votes_begin_nvme(1);
	step(1, 1);
	step(1, 2);
	cr_assert_eq(sqlite3_exec(node.catalog->db,
	                          "CREATE TEMP TRIGGER full BEFORE DELETE ON main.stand BEGIN "
	                          "SELECT RAISE(ABORT, 'full'); END",
	                          NULL, NULL, NULL),
	             SQLITE_OK);
	leave_all(1);
	cr_assert(job()->former.is_stored);
	cr_assert(job()->former.is_stuck);
	cr_assert_eq(held_bytes(), state_bytes());
	cr_assert_eq(sqlite3_exec(node.catalog->db, "DROP TRIGGER full", NULL, NULL, NULL),
	             SQLITE_OK);
	come_back(1, 2);
	ballot = ballot_give(job());
	step(1, 3);
	leave_all(1);
	cr_assert_not(former_is_open(job()));
	end(1);
}

/* What both name lies there once, and is nobody's twice. */
static void snapshots_beside(bool is_back)
{
	struct zi_step_options options = model_options();

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	votes_begin_in(1, &config, 48 * MIB);
	step(1, 1);
	snapshot("one");
	step_left_open(1, 2);
	snapshot("two");
	node_check_space(&node);
	restart();
	node_check_space(&node);
	cr_assert(job()->former.is_kept);
	ballot = ballot_give(job());
	ballot->is_back = is_back;
	if (!is_back)
		plain_step(&plain, 2, &options);
	come_back(1, is_back ? 1 : 2);
	step(1, is_back ? 2 : 3);
	leave_all(1);
	node_check_space(&node);
	cr_assert_eq(held_bytes(), 3 * state_bytes());
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "one"), 0);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "two"), 0);
	cr_assert_eq(held_bytes(), state_bytes());
	node_check_space(&node);
	end(1);
}

Test(zero_former, snapshots_keep_what_the_job_lets_go)
{
	snapshots_beside(false);
	snapshots_beside(true);
}

Test(zero_former, job_that_is_destroyed_leaves_neither)
{
	begin_open(1);
	restart();
	cr_assert_eq(actor_attach(&node, &actors[0],
	                          &(struct attach_options){ .world = 1, .config = config }),
	             0);
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0);
	actors[0].rank = NULL;
	node_settle(&node);
	cr_assert_eq(held_bytes(), 0);
	end(1);
}

Test(zero_former, job_put_back_to_a_snapshot_has_no_former_commit)
{
	votes_begin_nvme(1);
	step(1, 1);
	snapshot("one");
	step_left_open(1, 2);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_restore, "train", "one"), 0, "%s",
	             kept.op.text.chars);
	cr_assert_not(job()->former.is_kept);
	node_check_space(&node);
	restart();
	cr_assert_eq(job()->refusal, 0);
	cr_assert_eq(job()->committed_step, 1);
	come_back(1, 1);
	step(1, 2);
	end(1);
}

/* Neither moves while it is not known which of them goes, and that is told. */
Test(zero_former, path_is_left_when_it_is_known_which_commit_stays)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	ballots_forget();
	node_init(&node);
	node.store_count = 2;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	ballot = ballot_give(job());
	step(1, 1);
	step_left_open(1, 2);
	node.nvme.members[1].is_draining = true;
	zero_evacuate(node.zero);
	node_settle(&node);
	cr_assert_gt(used(1), 0);
	cr_assert_not_null(strstr(node.stuck_text.chars, "has commits 2 and 3"), "%s",
	                   node.stuck_text.chars);
	ballot->is_back = true;
	come_back(1, 1);
	leave_all(1);
	node_settle(&node);
	cr_assert_eq(used(1), 0);
	node_check_space(&node);
	restart();
	come_back(1, 1);
	step(1, 2);
	end(1);
}

/* Rows of the former commit that are damaged, or cannot be, cost that one alone. */
static void former_lost(const char *statement, bool is_sealed)
{
	struct zi_step_options options = model_options();

	begin_open(1);
	node_stop(&node);
	sql(statement, is_sealed);
	ballots_forget();
	node_start(&node);
	cr_assert_eq(job()->refusal, 0, "%s: %s", statement, job()->refusal_text.chars);
	cr_assert(job()->former.is_stored);
	cr_assert_not(job()->former.is_kept, "%s", statement);
	cr_assert_eq(held_bytes(), state_bytes(), "%s", statement);
	node_check_space(&node);
	plain_step(&plain, 2, &options);
	come_back(1, 2);
	step(1, 3);
	end(1);
}

#define FORMER " WHERE slot = (SELECT slot FROM stand WHERE step = 1)"

Test(zero_former, damage_in_its_rows_costs_the_former_commit_alone)
{
	former_lost("UPDATE extent SET offset = offset + 4096" FORMER, false);
	former_lost("DELETE FROM extent" FORMER " AND unit = 1 AND plane = 1", true);
	former_lost("UPDATE extent SET offset = 1099511627776" FORMER " AND unit = 1", true);
	former_lost("UPDATE extent SET bytes = bytes + 4096" FORMER " AND unit = 1", true);
	former_lost("UPDATE extent SET subgroup = 7" FORMER " AND unit = 2 AND plane = 0", true);
	former_lost("UPDATE extent SET store_uuid = x'00112233445566778899aabbccddeeff'" FORMER
	            " AND unit = 0",
	            true);
	former_lost("UPDATE extent SET bytes = 0, hashes = x''" FORMER
	            " AND plane = 0 AND unit = 0",
	            true);
	/* Of what is in force: two rows that say something else of one place. */
	former_lost(
		"UPDATE extent SET offset = (SELECT offset FROM extent AS e WHERE e.unit = 1 AND "
		"e.subgroup = 0 AND e.plane = 1 AND e.slot != extent.slot)" FORMER
		" AND unit = 1 AND subgroup = 0 AND plane = 1",
		true);
	former_lost("UPDATE blob SET bytes = zeroblob(65537)" FORMER, true);
}
