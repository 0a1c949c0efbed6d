/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the commit before stays whole beside the one in force for as long as it was asked to, and
 * nothing ever takes the one for the other. Method: every kind of request on a job with one stand
 * and with two, both compared field by field by the next catalog; a process that dies at each
 * write. */
#include <sys/wait.h>

#include "tests/unit/catalog/fault_vfs.h"
#include "tests/unit/catalog/slots.h"

TestSuite(slots_new, .init = slots_begin_new, .fini = slots_end);
TestSuite(slots, .init = slots_begin, .fini = slots_end);

Test(slots_new, the_commit_before_stays_beside_the_one_in_force)
{
	cr_assert_eq(slots_commit(0, false), 0);
	slots_assert(0, -1);
	for (int64_t step = 1; step < 5; step++) {
		cr_assert_eq(slots_commit(step, true), 0, "%s", fixture.text.chars);
		slots_assert(step, step - 1);
	}
}

/* The first commit of several nodes: what the job was made with is the former one. */
Test(slots_new, the_first_commit_keeps_that_there_was_none)
{
	struct catalog_job *job;

	cr_assert_eq(slots_commit(0, true), 0);
	fixture_reopen(&fixture);
	job = fixture_load(&fixture);
	assert_committed(job, &sample);
	cr_assert_not_null(job->former);
	cr_assert_eq(job->former->step, -1);
	cr_assert_eq(job->former->extent_count, 0);
	cr_assert_eq(job->former->damage.chars[0], '\0');
	job = catalog_job_free(job);
}

/* Commit 4, behind step 3, names @extent_count of its extents and @blob_count blobs. Return: what
 * the next catalog says; the caller's. */
static struct catalog_job *commit_part(uint32_t extent_count, uint32_t blob_count, bool is_whole)
{
	struct catalog_request request = { .kind = CATALOG_COMMIT,
		                           .keeps_former = true,
		                           .is_whole = is_whole };
	struct catalog_job part;
	struct catalog_job *job;

	sample_set_step(&sample, 4);
	part = sample.job;
	part.extents = &sample.extents[8];
	part.extent_count = extent_count;
	part.blob_count = blob_count;
	request.job = &part;
	cr_assert_eq(fixture_run(&fixture, &request), 0, "%s", request.text.chars);
	fixture_reopen(&fixture);
	job = fixture_load(&fixture);
	cr_assert_eq(job->damage.chars[0], '\0', "%s", job->damage.chars);
	cr_assert_eq(job->step, 4);
	return job;
}

Test(slots, extents_that_the_commit_does_not_name_are_in_both)
{
	struct catalog_job *job = commit_part(1, 1, false);

	cr_assert_eq(job->extent_count, SLOTS_EXTENTS);
	cr_assert_eq(job->blob_count, 1, "a blob of step 3 is not one of step 4");
	for (uint32_t i = 0; i < SLOTS_EXTENTS; i++) {
		const struct catalog_extent *extent = &job->extents[i];
		bool is_named = extent->unit == 0 && extent->subgroup == 4;

		cr_assert_eq(extent->step, is_named ? 4 : 3);
		cr_assert_eq(extent->extent.offset_bytes >> 24, extent->step);
	}
	sample_set_step(&sample, 3);
	assert_committed(job->former, &sample);
	job = catalog_job_free(job);
}

/* A node that holds something else than before: what it does not name is not in it, and is in the
 * former one as it was. One of the two stays, either. */
Test(slots, a_commit_that_is_whole_inherits_nothing)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct catalog_job *job = commit_part(2, 0, true);

		cr_assert_eq(job->extent_count, 2);
		cr_assert_eq(job->blob_count, 0);
		for (uint32_t k = 0; k < 2; k++)
			cr_assert_eq(job->extents[k].step, 4);
		sample_set_step(&sample, 3);
		assert_committed(job->former, &sample);
		job = catalog_job_free(job);
		cr_assert_eq(catalog_start(fixture.catalog), 0);
		if (!i) {
			cr_assert_eq(slots_step_back_to(3), 0, "%s", fixture.text.chars);
			slots_assert(3, -1);
		}
	}
}

/* What one node does, also where there is another slot: evacuations before it is dropped. */
Test(slots, a_commit_in_place_leaves_the_other_slot_alone)
{
	cr_assert_eq(slots_commit(4, false), 0);
	slots_assert(4, 2);
	cr_assert_eq(slots_commit(5, true), 0);
	slots_assert(5, 4);
}

Test(slots, a_step_back_drops_the_other_one_whichever_stays)
{
	cr_assert_eq(slots_step_back_to(3), 0, "%s", fixture.text.chars);
	slots_assert(3, -1);
	cr_assert_eq(slots_commit(4, true), 0);
	cr_assert_eq(slots_step_back_to(3), 0, "%s", fixture.text.chars);
	slots_assert(3, -1);
	cr_assert_eq(slots_step_back_to(3), 0, "nothing is left to drop");
	/* The same number again, of other extents. */
	cr_assert_eq(slots_commit(4, true), 0);
	slots_assert(4, 3);
}

Test(slots, a_step_back_to_what_is_not_there_changes_nothing)
{
	struct sample missing;

	sample_set_step(&sample, 3);
	cr_assert_eq(slots_step_back(4, sample.job.line + 1), -ENODATA);
	cr_assert_not_null(strstr(fixture.text.chars, "no commit 4 of line f00d000000000004"), "%s",
	                   fixture.text.chars);
	cr_assert_eq(slots_step_back(1, sample.job.line), -ENODATA);
	sample_init(&missing, "absent", 1);
	cr_assert_eq(fixture_do(&fixture, CATALOG_STEP_BACK, &missing.job), -ENOENT);
	slots_assert(3, 2);
	sample_deinit(&missing);
}

static int64_t count_rows(void)
{
	static const char sql[] = "SELECT (SELECT count(*) FROM job) + (SELECT count(*) FROM stand)"
				  " + (SELECT count(*) FROM extent) + (SELECT count(*) FROM blob)"
				  " + (SELECT count(*) FROM member_set) + (SELECT count(*) FROM"
				  " unit) + (SELECT count(*) FROM param) + (SELECT count(*) FROM"
				  " start) + (SELECT count(*) FROM incarnation)";
	sqlite3_stmt *row = NULL;
	sqlite3 *db = NULL;
	int64_t count;

	cr_assert_eq(sqlite3_open(fixture.file, &db), SQLITE_OK);
	cr_assert_eq(sqlite3_prepare_v2(db, sql, -1, &row, NULL), SQLITE_OK);
	cr_assert_eq(sqlite3_step(row), SQLITE_ROW);
	count = sqlite3_column_int64(row, 0);
	cr_assert_eq(sqlite3_finalize(row), SQLITE_OK);
	cr_assert_eq(sqlite3_close(db), SQLITE_OK);
	return count;
}

Test(slots, a_deleted_job_leaves_no_row_of_either)
{
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &sample.job), 0);
	fixture.catalog = catalog_close(fixture.catalog);
	cr_assert_eq(count_rows(), 0);
}

Test(slots, incarnations_and_snapshots_leave_both_alone)
{
	struct catalog_job record;

	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_INCARNATION, &sample.job), 0);
	record = sample.job;
	record.incarnation_count = 0;
	cr_assert_eq(zi_copy_name(record.snapshot, sizeof(record.snapshot), "first"), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &record), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &record), 0);
	slots_assert(3, 2);
}

/* ---- what fails ---- */

static void begin_failing(void)
{
	fault_install();
	slots_begin();
}

TestSuite(slots_failing, .init = begin_failing, .fini = slots_end);

Test(slots_failing, a_commit_that_fails_leaves_both_as_they_were)
{
	for (uint32_t i = 0; i < 4; i++) {
		fail_next(OP_WRITE, true, i & 1 ? SQLITE_FULL : SQLITE_IOERR_WRITE);
		fault.countdown = i * 3;
		cr_assert_eq(slots_commit(4, true), i & 1 ? -ENOSPC : -EIO);
		cr_assert_eq(fault.failed_count, 1);
		fail_next(OP_WRITE, true, SQLITE_IOERR_WRITE);
		cr_assert_eq(slots_step_back_to(2), -EIO);
		slots_assert(3, 2);
	}
	/* Its very last row. */
	sample.job.beta2_power = 0;
	sample.blobs[1].rank = 0;
	cr_assert_eq(slots_commit(4, true), -EEXIST);
	sample.blobs[1].rank = 1;
	slots_assert(3, 2);
	cr_assert_eq(slots_commit(4, true), 0);
	slots_assert(4, 3);
}

/* Never returns. */
static void die_in(int64_t step, enum catalog_request_kind kind, bool is_log, uint32_t write_count)
{
	struct catalog_request request = {
		.kind = kind,
		.job = &sample.job,
		.keeps_former = kind == CATALOG_COMMIT,
		.is_durable = write_count & 1,
	};

	if (fixture_open(&fixture) || catalog_start(fixture.catalog))
		_exit(1);
	sample_set_step(&sample, step);
	fail_next(OP_WRITE, is_log, SQLITE_IOERR_WRITE);
	fault.is_killing = true;
	fault.countdown = write_count;
	if (fixture_run(&fixture, &request))
		_exit(2);
	fixture.catalog = catalog_close(fixture.catalog); /* Folds the log into the file. */
	_exit(0);
}

/* Whether it came to its end. */
static bool run_and_die(int64_t step, enum catalog_request_kind kind, bool is_log,
                        uint32_t write_count)
{
	pid_t child;
	int status;

	fixture.catalog = catalog_close(fixture.catalog);
	child = fork();
	cr_assert_geq(child, 0);
	if (!child)
		die_in(step, kind, is_log, write_count);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status), "%x", (unsigned)status);
	cr_assert(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == FAULT_KILLED, "%d",
	          WEXITSTATUS(status));
	cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
	return WEXITSTATUS(status) == 0;
}

/* What is in force now, without a look at the rest. */
static int64_t step_of(bool *ret_has_former)
{
	struct catalog_job *job = fixture_load(&fixture);
	int64_t step = job->step;

	*ret_has_former = job->former != NULL;
	job = catalog_job_free(job);
	return step;
}

static void die_at_each_write_of_a_commit(bool is_log)
{
	bool has_ended = false;
	uint32_t write_count = 0;
	int64_t step = 3;

	for (; !has_ended; write_count++) {
		bool has_former;
		int64_t now;

		has_ended = run_and_die(step + 1, CATALOG_COMMIT, is_log, write_count);
		now = step_of(&has_former);
		/* Before its last write it never is; what only folds the log changes nothing. */
		cr_assert(now == step || now == step + 1);
		cr_assert(now == step + 1 || (is_log && !has_ended));
		slots_assert(now, now - 1);
		step = now;
	}
	cr_assert_gt(write_count, 4, "it died at %u writes", write_count - 1);
}

Test(slots_failing, a_process_that_dies_at_a_write_of_the_log_leaves_both_of_one_commit)
{
	die_at_each_write_of_a_commit(true);
}

Test(slots_failing, a_process_that_dies_while_the_log_is_folded_leaves_both)
{
	die_at_each_write_of_a_commit(false);
}

Test(slots_failing, a_process_that_dies_while_it_steps_back_has_done_so_or_not)
{
	bool has_ended = false;
	uint32_t write_count = 0;
	int64_t step = 3;

	for (; !has_ended; write_count++) {
		int64_t stays = step - (write_count & 1);
		bool has_former;
		int64_t now;

		has_ended = run_and_die(stays, CATALOG_STEP_BACK, true, write_count);
		now = step_of(&has_former);
		cr_assert(has_former ? now == step && !has_ended : now == stays);
		slots_assert(now, has_former ? step - 1 : -1);
		cr_assert_eq(slots_commit(now + 1, true), 0);
		step = now + 1;
	}
	cr_assert_gt(write_count, 2);
}
