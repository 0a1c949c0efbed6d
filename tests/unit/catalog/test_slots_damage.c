/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: damage of a commit that is kept beside the one in force costs that one alone, and neither
 * is ever taken for the other. Method: two commits, one value or row changed by SQL in either slot;
 * loading names the damage, and whose it is. */
#include "tests/unit/catalog/slots.h"

enum whose { JOB, FORMER };

/* Of a job that stands at 3 in slot 1, with 2 in slot 0. */
static void expect_damage(const char *sql, bool is_sealed, enum whose whose, const char *words)
{
	struct catalog_job *job;
	const struct zi_text *damage;

	slots_begin();
	fixture.catalog = catalog_close(fixture.catalog);
	change_file(fixture.file, sql, is_sealed);
	cr_assert_eq(fixture_open(&fixture), 0, "well-formed: %s", fixture.text.chars);
	job = fixture_load(&fixture);
	damage = whose == JOB ? &job->damage : &job->former->damage;
	cr_assert_not_null(strstr(damage->chars, words), "%s: '%s'", sql, damage->chars);
	if (whose == FORMER) {
		cr_assert_eq(job->damage.chars[0], '\0', "%s: %s", sql, job->damage.chars);
		sample_set_step(&sample, 3);
		assert_committed(job, &sample);
	} else if (job->former && !job->former->damage.chars[0] && job->former->step == 2) {
		sample_set_step(&sample, 2);
		assert_committed(job->former, &sample);
	}
	job = catalog_job_free(job);
	slots_end();
}

Test(slots_damage, damage_of_the_former_commit_is_its_own_and_that_of_the_newer_one_the_jobs)
{
	static const struct {
		const char *change; /* of rows in a slot */
		const char *words;
	} damages[] = {
		{ "UPDATE extent SET offset = offset + 4096 WHERE unit = 1 AND subgroup = 3",
		  "the checksum of a row in table extent" },
		{ "DELETE FROM extent WHERE unit = 1 AND subgroup = 3",
		  "rows of another commit in table extent or blob" },
		{ "DELETE FROM blob WHERE rank = 1", "the number of rows in table blob" },
		{ "UPDATE blob SET bytes = x'00' WHERE rank = 0",
		  "the checksum of a row in table blob" },
		{ "UPDATE extent SET slot = 7 WHERE unit = 0 AND subgroup = 2",
		  "rows of another commit in table extent or blob" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(damages); i++)
		for (int slot = 0; slot < 2; slot++) {
			char sql[256];

			(void)snprintf(sql, sizeof(sql), "%s AND slot = %d", damages[i].change,
			               slot);
			expect_damage(sql, false, slot ? JOB : FORMER, damages[i].words);
		}
}

/* A row is whole in either slot, and of one commit all the same. */
Test(slots_damage, a_row_of_the_other_slot_does_not_pass)
{
	static const char change[] =
		"DELETE FROM extent WHERE slot = %d AND unit = 1 AND subgroup = 3;"
		"UPDATE extent SET slot = %d WHERE slot = %d AND unit = 1 AND subgroup = 3";
	char sql[256];

	for (int slot = 0; slot < 2; slot++) {
		(void)snprintf(sql, sizeof(sql), change, slot, slot, 1 - slot);
		expect_damage(sql, false, JOB, "rows of another commit in table extent");
	}
}

Test(slots_damage, where_it_is_not_sure_which_is_newer_the_job_is_damaged)
{
	static const struct {
		const char *sql;
		bool is_sealed;
		const char *words;
	} damages[] = {
		{ "UPDATE stand SET number = number + 1 WHERE slot = 0", false,
		  "checksum of a row in table stand" },
		{ "UPDATE stand SET number = number - 1 WHERE slot = 0", false,
		  "which commit is the newer one in table stand" },
		{ "UPDATE stand SET step = step + 2 WHERE slot = 0", false,
		  "which commit is the newer one in table stand" },
		{ "UPDATE stand SET step = step + 2 WHERE slot = 1", false,
		  "checksum of a row in table stand" },
		{ "DELETE FROM stand WHERE slot = 0", false,
		  "which commit is the newer one in table stand" },
		{ "DELETE FROM stand WHERE slot = 1", false,
		  "which commit is the newer one in table stand" },
		{ "DELETE FROM stand", false, "table " },
		{ "UPDATE stand SET slot = 5 WHERE slot = 0", false, "range in table stand" },
		{ "UPDATE stand SET number = 3", true, "two commits of one number in table stand" },
		{ "UPDATE job SET snapshot = 'kept'", true,
		  "a former commit of a snapshot in table stand" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(damages); i++)
		expect_damage(damages[i].sql, damages[i].is_sealed, JOB, damages[i].words);
}
