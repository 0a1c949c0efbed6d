/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: names of incarnations are as true as commits: stored with what they belong to, all of them
 * or none, the newest ones kept, gone with their job. Method: requests, the catalog closed and
 * opened again, and the names compared. */
#include "tests/unit/catalog/fixture.h"

/* Stores names for the numbers [@first, @last], as the newest of job 'train'. */
static int record(struct fixture *fixture, uint64_t first, uint64_t last)
{
	struct catalog_incarnation *names = calloc(last - first + 1, sizeof(*names));
	struct catalog_job job = { .name = "train",
		                   .incarnation_number = last,
		                   .incarnations = names };
	int r;

	cr_assert_not_null(names);
	for (uint64_t number = first; number <= last; number++) {
		struct catalog_incarnation *name = &names[job.incarnation_count++];

		name->number = number;
		(void)snprintf(name->name, sizeof(name->name), "run-%llu",
		               (unsigned long long)number - 1);
	}
	(void)snprintf(job.incarnation, sizeof(job.incarnation), "%s",
	               names[job.incarnation_count - 1].name);
	r = fixture_do(fixture, CATALOG_JOB_INCARNATION, &job);
	free(names);
	return r;
}

/* That the job's names are those of [@first, @last], in order. */
static void assert_names(struct fixture *fixture, uint64_t first, uint64_t last)
{
	struct catalog_job *job;

	fixture_reopen(fixture);
	job = fixture_load(fixture);
	cr_assert_not_null(job);
	cr_assert_eq(job->incarnation_number, last);
	cr_assert_eq(job->incarnation_count, last - first + 1, "%u", job->incarnation_count);
	for (uint32_t i = 0; i < job->incarnation_count; i++) {
		char wanted[ZI_NAME_BYTES];

		(void)snprintf(wanted, sizeof(wanted), "run-%llu",
		               (unsigned long long)(first + i - 1));
		cr_assert_eq(job->incarnations[i].number, first + i);
		cr_assert_str_eq(job->incarnations[i].name, wanted);
	}
	job = catalog_job_free(job);
}

Test(incarnation, names_are_stored_with_the_job_and_with_each_newer_one)
{
	struct fixture fixture;
	struct sample sample;

	fixture_begin(&fixture, &sample, 0);
	assert_names(&fixture, 1, 1);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	cr_assert_eq(record(&fixture, 2, 2), 0);
	cr_assert_eq(record(&fixture, 3, 5), 0, "also those that never came to it themselves");
	assert_names(&fixture, 1, 5);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(incarnation, the_oldest_names_give_way)
{
	const uint64_t newest = CATALOG_INCARNATIONS_MAX + 10;
	struct fixture fixture;
	struct sample sample;

	fixture_begin(&fixture, &sample, 0);
	cr_assert_eq(record(&fixture, 2, CATALOG_INCARNATIONS_MAX), 0);
	assert_names(&fixture, 1, CATALOG_INCARNATIONS_MAX);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	cr_assert_eq(record(&fixture, CATALOG_INCARNATIONS_MAX + 1, newest), 0);
	assert_names(&fixture, 11, newest);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(incarnation, names_go_with_their_job_and_only_with_it)
{
	struct fixture fixture;
	struct sample sample;
	struct sample other;
	struct catalog_job *job;

	fixture_begin(&fixture, &sample, 0);
	sample_init(&other, "other", 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &other.job), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &other.job), 0);
	assert_names(&fixture, 1, 1);
	/* The row number that the deleted one had is given out again. */
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &sample.job), 0);
	other.job.incarnation_count = 0;
	other.job.incarnation[0] = '\0';
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &other.job), 0);
	fixture_reopen(&fixture);
	job = fixture_load(&fixture);
	cr_assert_str_eq(job->name, "other");
	cr_assert_eq(job->incarnation_count, 0, "it was never named");
	job = catalog_job_free(job);
	sample_deinit(&other);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}
