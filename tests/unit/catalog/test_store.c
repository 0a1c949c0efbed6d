/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a store and a catalog that do not belong together are never used together. Method: every
 * combination of known and unknown, just made and found, empty and in use. */
#include "tests/unit/catalog/fixture.h"

static const uint8_t uuid_a[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
static const uint8_t uuid_b[16] = { 0xb };

static int adopt(struct fixture *fixture, const char *name, const uint8_t *uuid, bool is_created)
{
	return catalog_adopt_store(fixture->catalog, name, uuid, is_created, &fixture->text);
}

Test(store, one_that_was_just_made_is_recorded_and_known_from_then_on)
{
	struct fixture fixture;

	fixture_init(&fixture);
	cr_assert_eq(fixture_open(&fixture), 0);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, true), 0, "%s", fixture.text.chars);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, false), 0);
	fixture_reopen(&fixture);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, false), 0);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, true), 0,
	             "a crash after the making: the same");
	cr_assert_eq(adopt(&fixture, "slow", uuid_b, true), 0, "a second one beside it");
	fixture_deinit(&fixture);
}

Test(store, one_that_was_found_and_is_not_known_is_refused)
{
	struct fixture fixture;

	fixture_init(&fixture);
	cr_assert_eq(fixture_open(&fixture), 0);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, false), -EUCLEAN);
	cr_assert_not_null(strstr(fixture.text.chars, "'fast'"), "%s", fixture.text.chars);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, true), 0);
	cr_assert_eq(adopt(&fixture, "fast", uuid_b, false), -EUCLEAN, "another one, found");
	fixture_deinit(&fixture);
}

/* A section was renamed, or two have each other's path: advice for a stranger's store would have
 * theirs deleted. */
Test(store, one_that_is_known_by_another_name_is_told_that_name)
{
	struct fixture fixture;

	fixture_init(&fixture);
	cr_assert_eq(fixture_open(&fixture), 0);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, true), 0);
	cr_assert_eq(adopt(&fixture, "slow", uuid_b, true), 0);
	cr_assert_eq(adopt(&fixture, "new", uuid_a, false), -EUCLEAN);
	cr_assert_not_null(strstr(fixture.text.chars, "[nvme fast]"), "%s", fixture.text.chars);
	cr_assert_eq(adopt(&fixture, "slow", uuid_a, false), -EUCLEAN);
	cr_assert_not_null(strstr(fixture.text.chars, "[nvme fast]"), "%s", fixture.text.chars);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, false), 0);
	cr_assert_eq(adopt(&fixture, "slow", uuid_b, false), 0);
	fixture_deinit(&fixture);
}

Test(store, a_new_one_takes_the_place_of_an_empty_one_only)
{
	struct fixture fixture;
	struct sample sample;

	fixture_begin(&fixture, &sample, 4); /* Its extents will lie on uuid_a. */
	fixture_reopen(&fixture);
	cr_assert_eq(adopt(&fixture, "fast", uuid_b, true), 0);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, true), 0, "nothing lay on b");
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	sample_set_step(&sample, 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0);
	fixture_reopen(&fixture);
	cr_assert_eq(adopt(&fixture, "fast", uuid_b, true), -EUCLEAN);
	cr_assert_not_null(strstr(fixture.text.chars, "4 extents"), "%s", fixture.text.chars);
	cr_assert_eq(adopt(&fixture, "fast", uuid_a, false), 0, "the old one is still the one");
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}
