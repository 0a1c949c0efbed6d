/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what was read and written rides in a commit's transaction, is there after a restart, goes
 * with its job, and refuses nobody when it is damaged. Method: commits with figures, a row changed
 * by SQL. */
#include "tests/unit/catalog/fixture.h"

static struct catalog_traffic seen[4];
static uint32_t seen_count, damaged_count;

static void see(void *arg, const struct catalog_traffic *traffic)
{
	(void)arg;
	if (!traffic)
		damaged_count++;
	else
		seen[seen_count++] = *traffic;
}

static void load(struct fixture *fixture)
{
	seen_count = damaged_count = 0;
	fixture_reopen(fixture);
	cr_assert_eq(catalog_load_traffic(fixture->catalog, see, NULL, &fixture->text), 0, "%s",
	             fixture->text.chars);
}

static const struct catalog_traffic figures[] = {
	{ .subject = "job:train",
	  .read_bytes = 1,
	  .write_bytes = 2,
	  .day = 3,
	  .day_write_bytes = 4 },
	{ .subject = "uid:1000", .read_bytes = UINT64_MAX, .write_bytes = 6, .day = 7 },
};

/* A sample's job with a step, and the figures beside it. */
static void commit(struct fixture *fixture, struct sample *sample)
{
	struct catalog_request request = {
		.kind = CATALOG_COMMIT, .job = &sample->job, .traffic = figures, .traffic_count = 2
	};

	fixture_begin(fixture, sample, 4);
	sample_set_step(sample, 1);
	cr_assert_eq(fixture_run(fixture, &request), 0, "%s", request.text.chars);
}

Test(traffic, is_there_after_a_restart)
{
	struct fixture fixture;
	struct sample sample;

	commit(&fixture, &sample);
	load(&fixture);
	cr_assert_eq(seen_count, 2);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(memcmp(&seen[i], &figures[i], sizeof(seen[i])), 0, "row %u", i);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(traffic, of_a_commit_that_failed_is_not)
{
	struct catalog_request request = { .kind = CATALOG_COMMIT,
		                           .traffic = figures,
		                           .traffic_count = 2 };
	struct fixture fixture;
	struct sample sample;

	fixture_begin(&fixture, &sample, 4);
	sample_set_step(&sample, 1);
	(void)zi_copy_name(sample.job.name, sizeof(sample.job.name), "nobody");
	request.job = &sample.job;
	cr_assert_eq(fixture_run(&fixture, &request), -ENOENT);
	load(&fixture);
	cr_assert_eq(seen_count, 0);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(traffic, that_is_damaged_is_told_of_and_the_rest_stays)
{
	struct fixture fixture;
	struct sample sample;

	commit(&fixture, &sample);
	fixture.catalog = catalog_close(fixture.catalog);
	change_by_sql(&fixture, "UPDATE traffic SET write_bytes = 9 WHERE subject = 'job:train'");
	load(&fixture);
	cr_assert_eq(damaged_count, 1);
	cr_assert_eq(seen_count, 1);
	cr_assert_str_eq(seen[0].subject, "uid:1000");
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}
