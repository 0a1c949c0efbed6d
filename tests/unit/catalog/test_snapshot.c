/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a snapshot is a job's rows under a second name, on its own: whatever happens to the job, it
 * comes back as it was. Method: made, loaded by the next catalog, deleted, in every order. */
#include "tests/unit/catalog/fixture.h"

struct found {
	struct catalog_job *job, *snapshot;
};

static int find(void *arg, struct catalog_job *job)
{
	struct found *found = arg;
	struct catalog_job **place = job->snapshot[0] ? &found->snapshot : &found->job;

	cr_assert_null(*place, "one of each");
	*place = job;
	return 0;
}

static struct found load(struct fixture *fixture)
{
	struct found found = { NULL, NULL };

	fixture_reopen(fixture);
	cr_assert_eq(catalog_load_jobs(fixture->catalog, find, &found, &fixture->text), 0, "%s",
	             fixture->text.chars);
	return found;
}

static void found_free(struct found *found)
{
	found->job = catalog_job_free(found->job);
	found->snapshot = catalog_job_free(found->snapshot);
}

/* A job at @step with a snapshot 'first' of it. */
static struct catalog_job begin(struct fixture *fixture, struct sample *sample, int64_t step)
{
	struct catalog_job record;

	fixture_begin(fixture, sample, 40);
	sample_set_step(sample, step);
	cr_assert_eq(fixture_do(fixture, CATALOG_COMMIT, &sample->job), 0);
	record = sample->job;
	record.incarnation_count = 0;
	record.created_s = 1234567;
	record.is_automatic = true;
	cr_assert_eq(zi_copy_name(record.snapshot, sizeof(record.snapshot), "first"), 0);
	cr_assert_eq(fixture_do(fixture, CATALOG_JOB_CREATE, &record), 0, "%s",
	             fixture->text.chars);
	return record;
}

Test(snapshot, it_stays_at_its_step_while_the_job_goes_on)
{
	struct fixture fixture;
	struct sample sample, kept;
	struct found found;

	(void)begin(&fixture, &sample, 3);
	sample_set_step(&sample, 4);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0);
	found = load(&fixture);
	cr_assert_not_null(found.job);
	cr_assert_not_null(found.snapshot);
	assert_committed(found.job, &sample);
	sample_init(&kept, "train", 40);
	sample_set_step(&kept, 3);
	assert_committed(found.snapshot, &kept);
	cr_assert_str_eq(found.snapshot->name, "train");
	cr_assert_str_eq(found.snapshot->snapshot, "first");
	cr_assert_eq(found.snapshot->created_s, 1234567);
	cr_assert(found.snapshot->is_automatic);
	cr_assert_eq(found.snapshot->unit_count, 2);
	cr_assert_eq(found.snapshot->param_count, 3);
	cr_assert_str_eq(found.snapshot->params[1].name, "attn.weight");
	found_free(&found);
	sample_deinit(&kept);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(snapshot, it_outlives_its_job_and_is_deleted_alone)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_job record = begin(&fixture, &sample, 3);
	struct found found;

	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &sample.job), 0);
	found = load(&fixture);
	cr_assert_null(found.job);
	cr_assert_not_null(found.snapshot);
	assert_committed(found.snapshot, &sample);
	found_free(&found);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &record), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &record), -ENOENT);
	cr_assert_not_null(strstr(fixture.text.chars, "'train/first' is not in the catalog"), "%s",
	                   fixture.text.chars);
	found = load(&fixture);
	cr_assert_null(found.snapshot);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(snapshot, name_is_taken_once)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_job record = begin(&fixture, &sample, 3);

	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &record), -EEXIST);
	cr_assert_not_null(strstr(fixture.text.chars, "'train/first'"), "%s", fixture.text.chars);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(snapshot, one_without_a_step_is_damage)
{
	struct fixture fixture;
	struct sample sample;
	struct found found = { NULL, NULL };

	(void)begin(&fixture, &sample, 0);
	fixture.catalog = catalog_close(fixture.catalog);
	change_and_seal(&fixture, "DELETE FROM extent; DELETE FROM blob;"
	                          "UPDATE stand SET step = -1, blob_count = 0 WHERE job_id ="
	                          " (SELECT id FROM job WHERE snapshot = 'first')");
	cr_assert_eq(fixture_open(&fixture), 0);
	cr_assert_eq(catalog_load_jobs(fixture.catalog, find, &found, &fixture.text), 0);
	cr_assert_str_eq(found.snapshot->snapshot, "first");
	cr_assert_not_null(strstr(found.snapshot->damage.chars, "range in table stand"), "%s",
	                   found.snapshot->damage.chars);
	found_free(&found);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(snapshot, copy_owns_all_it_points_to)
{
	struct sample sample;
	struct catalog_job *copy = NULL;

	sample_init(&sample, "train", 40);
	sample_set_step(&sample, 7);
	cr_assert_eq(catalog_job_copy(&sample.job, &copy), 0);
	cr_assert_neq(copy->extents, sample.job.extents);
	cr_assert_eq(copy->extent_count, 40);
	cr_assert_eq(copy->blob_count, 2);
	/* Overwritten at the source. */
	sample_set_step(&sample, 8);
	cr_assert_eq(copy->extents[39].step, 7);
	cr_assert_eq(copy->extents[39].hashes[2], 8 * 0x9e3779b97f4a7c15ull + 39 * TILES + 2);
	cr_assert_str_eq(copy->blobs[1].bytes, "rank 1 at step 7");
	sample_deinit(&sample);
	cr_assert_str_eq(copy->params[0].name, "wte");
	copy = catalog_job_free(copy);
}
