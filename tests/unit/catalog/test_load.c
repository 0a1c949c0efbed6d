/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no job is handed out whose rows say what they cannot say. Method: a sound catalog, one
 * value changed by SQL; quick_check passes, loading does not. */
#include "tests/unit/catalog/fixture.h"

static int count_jobs(void *arg, struct catalog_job *job)
{
	++*(uint32_t *)arg;
	job = catalog_job_free(job);
	return 0;
}

Test(load, values_out_of_range_are_damage_that_names_job_and_table)
{
	static const struct {
		const char *sql;
		const char *table;
	} damages[] = {
		{ "UPDATE job SET world_size = 65", "table job" },
		{ "UPDATE job SET world_size = 0", "table job" },
		{ "UPDATE job SET uid = -1", "table job" },
		{ "UPDATE job SET step = -2", "table job" },
		{ "UPDATE job SET optimizer = 99", "table job" },
		{ "UPDATE job SET incarnation = printf('%.64c', 'x')", "table job" },
		{ "UPDATE job SET step = 4", "table extent" },
		{ "UPDATE unit SET unit = 7 WHERE unit = 1", "table unit" },
		{ "UPDATE unit SET name = printf('%.96c', 'x')", "table unit" },
		{ "UPDATE param SET unit = 2", "table param" },
		{ "DELETE FROM param WHERE param = 0", "table param" },
		{ "UPDATE param SET shape = x'0102'", "table param" },
		{ "UPDATE param SET shape = zeroblob(72)", "table param" },
		{ "UPDATE extent SET plane = 2 WHERE subgroup = 3", "table extent" },
		{ "UPDATE extent SET unit = 2 WHERE subgroup = 3 AND unit = 1", "table extent" },
		{ "UPDATE extent SET subgroup = -3 WHERE subgroup = 3 AND unit = 0",
		  "table extent" },
		{ "UPDATE extent SET hashes = x'010203'", "table extent" },
		{ "UPDATE extent SET store_uuid = x'00'", "table extent" },
		{ "UPDATE extent SET step = -1 WHERE subgroup = 9", "table extent" },
		{ "UPDATE blob SET rank = 64 WHERE rank = 1", "table blob" },
		{ "UPDATE incarnation SET number = 2", "table incarnation" },
		{ "UPDATE incarnation SET number = -1", "table incarnation" },
		{ "UPDATE incarnation SET name = ''", "table incarnation" },
		{ "UPDATE incarnation SET name = printf('%.64c', 'x')", "table incarnation" },
		{ "UPDATE job SET incarnation_number = 9999;"
		  "INSERT INTO incarnation SELECT DISTINCT 1,"
		  " subgroup * 100 + unit * 50 + tile + 2,"
		  " 'x' FROM extent, (WITH RECURSIVE c(tile) AS (SELECT 0 UNION ALL SELECT tile + 1"
		  " FROM c WHERE tile < 40) SELECT tile FROM c)",
		  "table incarnation" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(damages); i++) {
		struct fixture fixture;
		struct sample sample;
		uint32_t job_count = 0;

		make_catalog(&fixture, &sample);
		change_by_sql(&fixture, damages[i].sql);
		cr_assert_eq(fixture_open(&fixture), 0, "well-formed: %s", fixture.text.chars);
		cr_assert_eq(
			catalog_load_jobs(fixture.catalog, count_jobs, &job_count, &fixture.text),
			-EUCLEAN, "%s", damages[i].sql);
		cr_assert_not_null(strstr(fixture.text.chars, damages[i].table), "%s: %s",
		                   damages[i].sql, fixture.text.chars);
		cr_assert_eq(job_count, 0, "no half job is handed out");
		sample_deinit(&sample);
		fixture_deinit(&fixture);
	}
}

static int refuse_job(void *arg, struct catalog_job *job)
{
	(void)arg;
	job = catalog_job_free(job);
	return -ENOMEM;
}

Test(load, a_caller_who_fails_ends_the_walk_over_the_jobs)
{
	struct fixture fixture;
	struct sample sample;

	make_catalog(&fixture, &sample);
	cr_assert_eq(fixture_open(&fixture), 0);
	cr_assert_eq(catalog_load_jobs(fixture.catalog, refuse_job, NULL, NULL), -ENOMEM);
	cr_assert_null(catalog_job_free(NULL));
	cr_assert_null(catalog_close(NULL));
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}
