/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever fails below SQLite, a commit that was reported as failed is not in force, one that
 * was reported as done is, and what asks for durability is synced in the right order. Method: a VFS
 * that passes everything on to the system's, counts syncs, and fails one chosen operation. */
#include "tests/unit/catalog/fault_vfs.h"

static void begin(struct fixture *fixture, struct sample *sample, uint32_t extent_count)
{
	fault_install();
	fixture_begin(fixture, sample, extent_count);
	sample_set_step(sample, 0);
	cr_assert_eq(fixture_do(fixture, CATALOG_COMMIT, &sample->job), 0);
}

static int commit(struct fixture *fixture, struct sample *sample, int64_t step, bool is_durable)
{
	struct catalog_request request = {
		.kind = CATALOG_COMMIT,
		.job = &sample->job,
		.is_durable = is_durable,
	};
	int r;

	sample_set_step(sample, step);
	r = fixture_run(fixture, &request);
	fixture->text = request.text;
	return r;
}

static void copy_file(const char *source, const char *target)
{
	static uint8_t buffer[64 << 20];
	FILE *from = fopen(source, "rb");
	FILE *to = fopen(target, "wb");
	size_t byte_count;

	cr_assert_not_null(to);
	byte_count = from ? fread(buffer, 1, sizeof(buffer), from) : 0;
	cr_assert_lt(byte_count, sizeof(buffer));
	cr_assert_eq(fwrite(buffer, 1, byte_count, to), byte_count);
	(void)fclose(to);
	if (from)
		(void)fclose(from);
}

/* What a daemon would find that is started after this one is killed now. */
static int64_t step_after_kill(const struct fixture *fixture)
{
	struct fixture later;
	struct catalog_job *job;
	char source[192];
	char target[192];
	int64_t step;

	fixture_init(&later);
	copy_file(fixture->file, later.file);
	(void)snprintf(source, sizeof(source), "%s-wal", fixture->file);
	(void)snprintf(target, sizeof(target), "%s-wal", later.file);
	copy_file(source, target);
	cr_assert_eq(fixture_open(&later), 0, "%s", later.text.chars);
	job = fixture_load(&later);
	step = job->step;
	for (uint32_t i = 0; i < job->extent_count; i++)
		cr_assert_eq(job->extents[i].step, (uint64_t)step);
	job = catalog_job_free(job);
	fixture_deinit(&later);
	return step;
}

Test(fault, process_durability_syncs_only_to_fold_the_log_and_power_every_commit)
{
	struct fixture fixture;
	struct sample sample;
	int64_t step = 1;

	begin(&fixture, &sample, 200);
	file_sync_count = log_sync_count = 0;
	for (; step < 20; step++)
		cr_assert_eq(commit(&fixture, &sample, step, false), 0);
	cr_assert_eq(file_sync_count + log_sync_count, 0);
	cr_assert_eq(commit(&fixture, &sample, step, true), 0);
	cr_assert_eq(file_sync_count, 0);
	cr_assert_eq(log_sync_count, 1);
	for (step++; step < 40; step++)
		cr_assert_eq(commit(&fixture, &sample, step, false), 0);
	cr_assert_eq(log_sync_count, 1, "others go on as they were");
	for (; !file_sync_count && step < 2000; step++)
		cr_assert_eq(commit(&fixture, &sample, step, false), 0);
	cr_assert_geq(file_sync_count, 1, "what is folded into the file");
	cr_assert_geq(log_sync_count, 2, "the log before that");
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(fault, making_and_deleting_a_power_job_is_synced)
{
	struct fixture fixture;
	struct sample sample;
	struct sample durable;
	struct catalog_request request = { .kind = CATALOG_JOB_DELETE, .is_durable = true };
	uint32_t before_count;

	begin(&fixture, &sample, 5);
	sample_init(&durable, "durable", 0);
	durable.job.config.durability = ZI_DURABILITY_POWER;
	before_count = log_sync_count;
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &durable.job), 0);
	cr_assert_eq(log_sync_count, before_count + 1);
	fixture_reopen(&fixture);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	cr_assert_eq(commit(&fixture, &sample, 1, false), 0);
	before_count = log_sync_count;
	request.job = &durable.job;
	cr_assert_eq(fixture_run(&fixture, &request), 0);
	cr_assert_eq(log_sync_count, before_count + 1);
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&durable);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(fault, a_failed_write_of_the_log_fails_the_commit_alone)
{
	static const struct {
		int code;
		int error;
	} failures[] = { { SQLITE_IOERR_WRITE, -EIO }, { SQLITE_FULL, -ENOSPC } };
	struct fixture fixture;
	struct sample sample;
	int64_t step = 1;

	begin(&fixture, &sample, 300);
	for (size_t i = 0; i < ZI_COUNT_OF(failures); i++) {
		for (uint32_t countdown = 0; countdown < 200; countdown += 7) {
			int r;

			fail_next(OP_WRITE, true, failures[i].code);
			fault.countdown = countdown;
			r = commit(&fixture, &sample, step, false);
			if (!fault.failed_count) {
				cr_assert_eq(r, 0, "%s", fixture.text.chars);
				fault.operation = OP_NONE;
			} else {
				cr_assert_eq(r, failures[i].error, "%s", fixture.text.chars);
				cr_assert_eq(step_after_kill(&fixture), step - 1);
				cr_assert_eq(commit(&fixture, &sample, step, false), 0, "%s",
				             fixture.text.chars);
			}
			cr_assert_eq(step_after_kill(&fixture), step);
			step++;
		}
	}
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(fault, a_commit_whose_sync_failed_is_not_in_force_after_a_kill)
{
	struct fixture fixture;
	struct sample sample;

	begin(&fixture, &sample, 100);
	cr_assert_eq(commit(&fixture, &sample, 1, true), 0);
	fail_next(OP_SYNC, true, SQLITE_IOERR_FSYNC);
	cr_assert_eq(commit(&fixture, &sample, 2, true), -EIO, "%s", fixture.text.chars);
	cr_assert_eq(fault.failed_count, 1);
	cr_assert_eq(step_after_kill(&fixture), 1, "the log does not hold step 2 any more");
	cr_assert_eq(commit(&fixture, &sample, 2, true), 0, "%s", fixture.text.chars);
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(fault, a_log_that_cannot_be_mended_ends_all_commits_until_a_restart)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_request request = { .kind = CATALOG_COMMIT };

	begin(&fixture, &sample, 100);
	cr_assert_eq(commit(&fixture, &sample, 1, true), 0);
	fail_next(OP_SYNC, true, SQLITE_IOERR_FSYNC);
	fault.is_lasting = true;
	cr_assert_eq(commit(&fixture, &sample, 2, true), -EIO);
	cr_assert_eq(fault.failed_count, 2);
	fault.operation = OP_NONE;
	request.job = &sample.job;
	cr_assert_eq(fixture_run(&fixture, &request), -EIO);
	cr_assert_not_null(strstr(request.text.chars, "started again"), "%s", request.text.chars);
	fixture_reopen(&fixture);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	cr_assert_eq(commit(&fixture, &sample, 3, true), 0, "%s", fixture.text.chars);
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

static void folding_fails(enum operation operation, int code)
{
	struct fixture fixture;
	struct sample sample;
	int64_t step = 1;

	begin(&fixture, &sample, 200);
	fail_next(operation, false, code);
	fault.is_lasting = true;
	for (; fault.failed_count < 3 && step < 2000; step++)
		cr_assert_eq(commit(&fixture, &sample, step, false), 0, "%s", fixture.text.chars);
	cr_assert_geq(fault.failed_count, 3);
	cr_assert_eq(step_after_kill(&fixture), step - 1);
	fault.operation = OP_NONE;
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(fault, folding_the_log_may_fail_without_harm_to_a_commit)
{
	folding_fails(OP_WRITE, SQLITE_IOERR_WRITE);
}

Test(fault, the_log_goes_on_when_the_file_cannot_be_synced)
{
	folding_fails(OP_SYNC, SQLITE_IOERR_FSYNC);
}

Test(fault, a_disk_that_cannot_be_read_is_no_damage)
{
	struct fixture fixture;
	struct sample sample;
	uint32_t failed_count = 0;

	begin(&fixture, &sample, 100);
	for (uint32_t countdown = 0; countdown < 40; countdown++) {
		struct catalog_job *job = NULL;
		int r;

		fixture.catalog = catalog_close(fixture.catalog);
		fail_next(OP_READ, false, SQLITE_IOERR_READ);
		fault.countdown = countdown;
		r = fixture_open(&fixture);
		if (!r)
			r = catalog_load_jobs(fixture.catalog, keep_job, &job, &fixture.text);
		cr_assert_eq(r, fault.failed_count ? -EIO : 0, "%u: %s", countdown,
		             fixture.text.chars);
		failed_count += fault.failed_count;
		fault.operation = OP_NONE;
		job = catalog_job_free(job);
	}
	cr_assert_gt(failed_count, 5);
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(fault, a_store_that_cannot_be_looked_up_or_recorded_is_refused)
{
	static const uint8_t uuid[16] = { 0xa };
	struct fixture fixture;
	struct sample sample;

	begin(&fixture, &sample, 10);
	fixture_reopen(&fixture);
	fail_next(OP_WRITE, true, SQLITE_IOERR_WRITE);
	cr_assert_eq(catalog_adopt_store(fixture.catalog, "fast", uuid, true, &fixture.text), -EIO);
	cr_assert_not_null(strstr(fixture.text.chars, "recording"), "%s", fixture.text.chars);
	cr_assert_eq(catalog_adopt_store(fixture.catalog, "fast", uuid, false, NULL), -EUCLEAN);
	cr_assert_eq(catalog_adopt_store(fixture.catalog, "fast", uuid, true, NULL), 0);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(fault, a_catalog_whose_making_fails_is_made_by_the_next_daemon)
{
	uint32_t failed_count = 0;

	fault_install();
	for (uint32_t countdown = 0; countdown < 24; countdown++) {
		struct fixture fixture;

		fixture_init(&fixture);
		fail_next(OP_WRITE, countdown & 1, SQLITE_IOERR_WRITE);
		fault.countdown = countdown / 2;
		if (fixture_open(&fixture)) {
			cr_assert_eq(fault.failed_count, 1);
			failed_count++;
		}
		fault.operation = OP_NONE;
		fixture_reopen(&fixture);
		cr_assert_null(fixture_load(&fixture));
		fixture_deinit(&fixture);
	}
	cr_assert_gt(failed_count, 5);
}
