/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no job is taken for sound whose rows say what they cannot say, or what nobody wrote; the
 * others are none the worse. Method: a sound catalog, one value changed by SQL, with the checksums
 * made right or not; quick_check passes, loading names the damage. */
#include "tests/unit/catalog/fixture.h"

/* Loads the one job after @sql; its damage must name @word. */
static void expect_damage(const char *sql, bool is_sealed, const char *word)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_job *job;

	make_catalog(&fixture, &sample);
	change_file(fixture.file, sql, is_sealed);
	cr_assert_eq(fixture_open(&fixture), 0, "well-formed: %s", fixture.text.chars);
	job = fixture_load(&fixture);
	cr_assert_not_null(job, "%s", sql);
	cr_assert_not_null(strstr(job->damage.chars, word), "%s: '%s'", sql, job->damage.chars);
	cr_assert_neq(job->name[0], '\0');
	job = catalog_job_free(job);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(load, values_out_of_range_are_damage_that_names_its_table)
{
	static const struct {
		const char *sql;
		const char *table;
	} damages[] = {
		{ "UPDATE stand SET world_size = 65", "range in table stand" },
		{ "UPDATE stand SET world_size = 0", "range in table stand" },
		{ "UPDATE stand SET step = -2", "range in table stand" },
		{ "UPDATE stand SET blob_count = 65", "range in table stand" },
		{ "UPDATE stand SET blob_count = 1", "number of rows in table blob" },
		{ "DELETE FROM stand", "table " },
		{ "UPDATE start SET name = printf('%.64c', 'x')", "range in table start" },
		{ "DELETE FROM start", "range in table incarnation" },
		{ "UPDATE job SET uid = -1", "range in table job" },
		{ "UPDATE job SET optimizer = 99", "range in table job" },
		{ "UPDATE job SET unit_count = 3", "number of rows in table unit" },
		{ "UPDATE job SET param_count = 2", "number of rows in table param" },
		{ "UPDATE job SET name = ''", "table job" },
		{ "UPDATE stand SET step = 4", "range in table extent" },
		{ "UPDATE unit SET unit = 7 WHERE unit = 1", "range in table unit" },
		{ "UPDATE unit SET name = printf('%.96c', 'x')", "range in table unit" },
		{ "UPDATE stand SET slot = 2", "range in table stand" },
		{ "UPDATE stand SET slot = 1", "number of rows in table blob" },
		{ "UPDATE stand SET number = -1", "range in table stand" },
		{ "UPDATE stand SET strategy = -1", "range in table stand" },
		{ "UPDATE stand SET shard_size = 1 << 32", "range in table stand" },
		{ "UPDATE stand SET node_count = 65", "range in table stand" },
		{ "UPDATE stand SET node_count = 2", "range in table stand" },
		{ "UPDATE stand SET node_count = 2, nodes = x'0001'", "range in table stand" },
		{ "UPDATE stand SET node_count = 2, nodes = x'000200'", "range in table stand" },
		{ "UPDATE stand SET node_count = 2, nodes = x'000102'", "range in table stand" },
		/* A node without ranks. */
		{ "UPDATE stand SET node_count = 2, nodes = x'000001'", "range in table stand" },
		{ "UPDATE stand SET nodes = x'0000'", "range in table stand" },
		{ "UPDATE stand SET scaler = zeroblob(65)", "range in table stand" },
		{ "UPDATE start SET training = zeroblob(127)", "range in table start" },
		{ "UPDATE job SET extra = zeroblob(65537)", "range in table job" },
		{ "UPDATE job SET set_count = 3", "number of rows in table member_set" },
		{ "UPDATE member_set SET number = 2 WHERE number = 1",
		  "range in table member_set" },
		{ "UPDATE member_set SET members = 0", "range in table member_set" },
		{ "UPDATE member_set SET name = printf('%.96c', 'x')",
		  "range in table member_set" },
		{ "UPDATE unit SET member_set = 2", "range in table unit" },
		{ "UPDATE param SET unit = 2", "range in table param" },
		{ "DELETE FROM param WHERE param = 0", "range in table param" },
		{ "UPDATE param SET shape = x'0102'", "range in table param" },
		{ "UPDATE param SET shape = zeroblob(72)", "range in table param" },
		{ "UPDATE extent SET plane = 2 WHERE subgroup = 3", "range in table extent" },
		{ "UPDATE extent SET unit = 2 WHERE subgroup = 3 AND unit = 1",
		  "range in table extent" },
		{ "UPDATE extent SET subgroup = -3 WHERE subgroup = 3 AND unit = 0",
		  "range in table extent" },
		{ "UPDATE extent SET hashes = x'010203'", "range in table extent" },
		{ "UPDATE extent SET store_uuid = x'00'", "range in table extent" },
		{ "UPDATE extent SET step = -1 WHERE subgroup = 9", "range in table extent" },
		{ "UPDATE blob SET rank = 64 WHERE rank = 1", "range in table blob" },
		{ "UPDATE incarnation SET number = 2", "range in table incarnation" },
		{ "UPDATE incarnation SET number = -1", "range in table incarnation" },
		{ "UPDATE incarnation SET name = ''", "range in table incarnation" },
		{ "UPDATE incarnation SET name = printf('%.64c', 'x')",
		  "range in table incarnation" },
		{ "UPDATE start SET number = 9999;"
		  "INSERT INTO incarnation SELECT DISTINCT 1,"
		  " subgroup * 100 + unit * 50 + tile + 2,"
		  " 'x', 0 FROM extent, (WITH RECURSIVE c(tile) AS (SELECT 0 UNION ALL SELECT tile"
		  " + 1 FROM c WHERE tile < 40) SELECT tile FROM c)",
		  "range in table incarnation" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(damages); i++)
		expect_damage(damages[i].sql, true, damages[i].table);
}

/* Plausible values: only their checksum tells. */
Test(load, a_value_that_nobody_wrote_is_damage_in_every_column_of_every_table)
{
	static const struct {
		const char *table, *column, *value;
	} changes[] = {
		{ "job", "name", "'tra1n'" },
		{ "job", "uid", "uid + 1" },
		{ "job", "param_dtype", "1" },
		{ "job", "grad_dtype", "2" },
		{ "job", "optimizer", "optimizer - 1" },
		{ "job", "schedule", "1 - schedule" },
		{ "job", "offload_optimizer", "1" },
		{ "job", "offload_param", "0" },
		{ "job", "durability", "1" },
		{ "start", "training", "zeroblob(128)" },
		{ "job", "extra", "x'00'" },
		{ "stand", "step", "step + 1" },
		{ "stand", "number", "number + 1" },
		{ "stand", "line", "line + 1" },
		{ "stand", "strategy", "5" },
		{ "stand", "shard_size", "2" },
		{ "stand", "node_count", "1" },
		{ "stand", "scaler", "zeroblob(40)" },
		{ "stand", "world_size", "3" },
		{ "stand", "update_count", "update_count + 1" },
		{ "stand", "beta1_power", "beta1_power * 1.000000000000001" },
		{ "stand", "beta2_power", "0.5" },
		{ "start", "number", "number + 1" },
		{ "start", "name", "'run-1'" },
		{ "member_set", "name", "name || 'x'" },
		{ "member_set", "members", "members | 8" },
		{ "unit", "name", "name || 'x'" },
		{ "unit", "member_set", "1 - member_set" },
		{ "param", "name", "'attn.we1ght'" },
		{ "param", "shape", "x'00030000000000000003000000000000'" },
		{ "extent", "plane", "0" },
		{ "extent", "store_uuid", "x'00112233445566778899aabbccddeeff'" },
		{ "extent", "offset", "offset + 4096" },
		{ "extent", "bytes", "bytes + 4096" },
		{ "extent", "step", "step - 1" },
		{ "extent", "hashes", "zeroblob(128)" },
		{ "blob", "bytes", "CAST(replace(bytes, 'step', 'stop') AS BLOB)" },
		{ "incarnation", "name", "'run-O'" },
		{ "unit", "checksum", "checksum + 1" },
		{ "blob", "checksum", "checksum - 1" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(changes); i++) {
		char sql[256];
		char word[64];

		(void)snprintf(sql, sizeof(sql), "UPDATE %s SET %s = %s", changes[i].table,
		               changes[i].column, changes[i].value);
		(void)snprintf(word, sizeof(word), "the checksum of a row in table %s",
		               changes[i].table);
		expect_damage(sql, false, word);
	}
}

/* What a lost write of a page leaves: rows of a former commit, each of them whole. */
Test(load, rows_of_another_commit_are_damage)
{
	static const char former_sql[] =
		"UPDATE extent SET step = step - 1, checksum = seal(job_id, plane, unit, subgroup,"
		" store_uuid, offset, bytes, step - 1, hashes) WHERE unit = 0 AND subgroup = 1";
	struct catalog_job *job;
	struct fixture fixture;
	struct sample sample;
	sqlite3 *db = NULL;

	make_catalog(&fixture, &sample);
	reseal_must(sqlite3_open(fixture.file, &db) == SQLITE_OK, fixture.file);
	reseal(db);
	reseal_run(db, former_sql);
	cr_assert_gt(sqlite3_changes(db), 0);
	cr_assert_eq(sqlite3_close(db), SQLITE_OK);
	cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
	job = fixture_load(&fixture);
	cr_assert_not_null(strstr(job->damage.chars, "rows of another commit in table extent"),
	                   "'%s'", job->damage.chars);
	job = catalog_job_free(job);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

/* It is not known what it was called, so it is the whole catalog's damage. */
Test(load, job_whose_own_row_is_gone_is_missed)
{
	struct catalog_job *job = NULL;
	struct fixture fixture;
	struct sample sample;

	make_catalog(&fixture, &sample);
	change_file(fixture.file, "DELETE FROM job", false);
	cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
	cr_assert_eq(catalog_load_jobs(fixture.catalog, keep_job, &job, &fixture.text), -EUCLEAN);
	cr_assert_not_null(strstr(fixture.text.chars, "lacks 1 rows"), "%s", fixture.text.chars);
	cr_assert_null(job);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

/* Rows that took each other's place are each whole, but not there. */
Test(load, rows_that_changed_places_are_damage)
{
	expect_damage("UPDATE blob SET rank = 1 - rank + 10; UPDATE blob SET rank = rank - 10",
	              false, "the checksum of a row in table blob");
	expect_damage("UPDATE unit SET unit = 11 - unit; UPDATE unit SET unit = unit - 10", false,
	              "the checksum of a row in table unit");
}

static int take_both(void *arg, struct catalog_job *job)
{
	struct catalog_job **jobs = arg;

	jobs[jobs[0] ? 1 : 0] = job;
	return 0;
}

Test(load, a_damaged_job_leaves_the_others_whole)
{
	struct fixture fixture;
	struct sample sample;
	struct sample other;
	struct catalog_job *jobs[2] = { NULL };

	make_catalog(&fixture, &sample);
	cr_assert_eq(fixture_open(&fixture), 0);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	sample_init(&other, "other", 40);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &other.job), 0);
	sample_set_step(&other, 9);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &other.job), 0);
	fixture.catalog = catalog_close(fixture.catalog);
	/* The name cannot be believed: it is called by its number. */
	change_by_sql(&fixture, "UPDATE job SET name = x'ff' || 'rain' WHERE id = 1");
	cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
	cr_assert_eq(catalog_load_jobs(fixture.catalog, take_both, jobs, &fixture.text), 0, "%s",
	             fixture.text.chars);
	cr_assert_str_eq(jobs[0]->name, "damaged-1");
	cr_assert_neq(jobs[0]->damage.chars[0], '\0');
	cr_assert_eq(jobs[0]->extent_count, 100, "where its data lies is still known");
	cr_assert_eq(jobs[1]->damage.chars[0], '\0', "%s", jobs[1]->damage.chars);
	assert_committed(jobs[1], &other);
	jobs[0] = catalog_job_free(jobs[0]);
	jobs[1] = catalog_job_free(jobs[1]);
	sample_deinit(&sample);
	sample_deinit(&other);
	fixture_deinit(&fixture);
}

Test(load, a_damaged_row_of_the_stores_is_named)
{
	static const uint8_t uuid[16] = { 0xa };
	struct fixture fixture;
	struct sample sample;

	make_catalog(&fixture, &sample);
	cr_assert_eq(fixture_open(&fixture), 0);
	cr_assert_eq(catalog_adopt_store(fixture.catalog, "fast", uuid, true, &fixture.text), 0);
	fixture.catalog = catalog_close(fixture.catalog);
	change_by_sql(&fixture, "UPDATE store SET name = 'east'");
	cr_assert_eq(fixture_open(&fixture), 0);
	cr_assert_eq(catalog_adopt_store(fixture.catalog, "fast", uuid, false, &fixture.text),
	             -EUCLEAN);
	cr_assert_not_null(strstr(fixture.text.chars, "checksum of a row of table store"), "%s",
	                   fixture.text.chars);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
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
