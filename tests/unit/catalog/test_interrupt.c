/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a statement that fails is told, wherever it stands: a catalog is not taken for one with
 * less in it, and a request that failed has changed nothing. Method: each connection counts its
 * statements, and interrupts a chosen one. */
#include "daemon/catalog/catalog_private.h"
#include "tests/unit/catalog/fixture.h"

/* The statement with this number from now on; UINT32_MAX: none. */
static uint32_t countdown = UINT32_MAX;
static bool is_interrupted;

static int count_statement(unsigned int what, void *arg, void *statement, void *text)
{
	(void)what;
	(void)statement;
	(void)text;
	if (countdown == UINT32_MAX || is_interrupted)
		return 0;
	if (countdown--)
		return 0;
	is_interrupted = true;
	sqlite3_interrupt(arg);
	return 0;
}

static int watch(sqlite3 *db, char **ret_error, const void *api)
{
	(void)ret_error;
	(void)api;
	return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, count_statement, db);
}

static void interrupt_at(uint32_t number)
{
	is_interrupted = false;
	countdown = number;
}

static void setup(void)
{
	cr_assert_eq(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
}

TestSuite(catalog_interrupt, .init = setup, .timeout = 240);

#define STATEMENTS_MAX 2000u

static uint64_t traffic_bytes;

static void add_traffic(void *arg, const struct catalog_traffic *traffic)
{
	(void)arg;
	cr_assert_not_null(traffic);
	traffic_bytes += traffic->write_bytes;
}

/* All that a daemon reads when it starts. */
static int read_all(struct fixture *fixture, struct catalog_job **ret_job)
{
	const uint8_t uuid[16] = { 7 };
	int r = fixture_open(fixture);

	traffic_bytes = 0;
	if (!r)
		r = catalog_adopt_store(fixture->catalog, "fast", uuid, false, &fixture->text);
	if (!r)
		r = catalog_load_jobs(fixture->catalog, keep_job, ret_job, &fixture->text);
	if (!r)
		r = catalog_load_traffic(fixture->catalog, add_traffic, NULL, &fixture->text);
	return r;
}

Test(catalog_interrupt, nothing_is_missed_where_reading_fails)
{
	const struct catalog_traffic figures = { .subject = "uid:7", .write_bytes = 99 };
	struct catalog_request request = { .kind = CATALOG_COMMIT,
		                           .traffic = &figures,
		                           .traffic_count = 1 };
	const uint8_t uuid[16] = { 7 };
	struct fixture fixture;
	struct sample sample;
	uint32_t failed_count = 0;

	fixture_begin(&fixture, &sample, 3);
	request.job = &sample.job;
	sample_set_step(&sample, 5);
	cr_assert_eq(fixture_run(&fixture, &request), 0, "%s", request.text.chars);
	fixture_reopen(&fixture);
	cr_assert_eq(catalog_adopt_store(fixture.catalog, "fast", uuid, true, &fixture.text), 0);
	fixture.catalog = catalog_close(fixture.catalog);
	for (uint32_t number = 0;; number++) {
		struct catalog_job *job = NULL;
		int r;

		cr_assert_lt(number, STATEMENTS_MAX, "they never end");
		interrupt_at(number);
		r = read_all(&fixture, &job);
		countdown = UINT32_MAX;
		if (r) {
			cr_assert(is_interrupted, "%s", fixture.text.chars);
			cr_expect_not_null(strstr(fixture.text.chars, "interrupted"), "%u: %s",
			                   number, fixture.text.chars);
			cr_expect_null(strstr(fixture.text.chars, "damaged"), "%u: %s", number,
			               fixture.text.chars);
			failed_count++;
		} else {
			cr_assert_not_null(job, "statement %u", number);
			assert_committed(job, &sample);
			cr_expect_str_eq(job->damage.chars, "", "statement %u", number);
			cr_expect_eq(traffic_bytes, 99, "statement %u", number);
		}
		job = catalog_job_free(job);
		fixture.catalog = catalog_close(fixture.catalog);
		if (!r && !is_interrupted)
			break;
	}
	cr_assert_gt(failed_count, 20, "%u", failed_count);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

/* Each request is made again until no statement of it is left to be interrupted. */
static void interrupt_request(struct fixture *fixture, struct catalog_request *request)
{
	uint32_t failed_count = 0;
	int r;

	for (uint32_t number = 0;; number++) {
		cr_assert_lt(number, STATEMENTS_MAX, "they never end");
		interrupt_at(number);
		r = fixture_run(fixture, request);
		countdown = UINT32_MAX;
		if (!r)
			break;
		cr_assert(is_interrupted, "%s", request->text.chars);
		cr_expect_not_null(strstr(request->text.chars, "interrupted"), "%u: %s", number,
		                   request->text.chars);
		failed_count++;
	}
	cr_assert_gt(failed_count, 0);
}

Test(catalog_interrupt, request_that_fails_changes_nothing)
{
	struct fixture fixture;
	struct sample sample, other;
	struct catalog_request request = { .kind = CATALOG_COMMIT };

	fixture_begin(&fixture, &sample, 3);
	request.job = &sample.job;
	for (int64_t step = 0; step < 3; step++) {
		sample_set_step(&sample, step);
		request.is_durable = step == 1;
		request.keeps_former = step == 2;
		interrupt_request(&fixture, &request);
	}
	sample_init(&other, "other", 3);
	sample_set_step(&other, 9);
	request = (struct catalog_request){ .kind = CATALOG_JOB_CREATE, .job = &other.job };
	interrupt_request(&fixture, &request);
	request.kind = CATALOG_JOB_INCARNATION;
	interrupt_request(&fixture, &request);
	request.kind = CATALOG_JOB_DELETE;
	interrupt_request(&fixture, &request);
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&other);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}
