/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a charge is all or nothing, on the tier and every account above; refusals say figures.
 * Method: charges around the limits, and the sums after each.
 */
#include "tests/unit/tier/fixture.h"

Test(account, charge_counts_on_tier_and_every_account_and_comes_back)
{
	struct fixture fixture;
	struct tier_charge charge = { 0 };

	fixture_init(&fixture, 10 * MIB);
	cr_assert_eq(tier_charge_take(&charge, &fixture.tier, &fixture.job, 4 * MIB, NULL), 0);
	cr_assert_eq(fixture.tier.used_bytes, 4 * MIB);
	cr_assert_eq(fixture.job.used_bytes[TIER_CPU], 4 * MIB);
	cr_assert_eq(fixture.uid.used_bytes[TIER_CPU], 4 * MIB);
	cr_assert_eq(fixture.uid.used_bytes[TIER_NVME], 0);
	cr_assert_eq(tier_free_bytes(&fixture.tier), 6 * MIB);
	tier_charge_return(&charge);
	tier_charge_return(&charge);
	cr_assert_eq(fixture.tier.used_bytes, 0);
	cr_assert_eq(fixture.tier.peak_bytes, 4 * MIB);
	fixture_deinit(&fixture);
}

Test(account, full_tier_is_refused_with_figures_and_nothing_is_charged)
{
	struct fixture fixture;
	struct tier_charge first = { 0 }, second = { 0 };

	fixture_init(&fixture, 10 * MIB);
	cr_assert_eq(tier_charge_take(&first, &fixture.tier, &fixture.job, 7 * MIB, NULL), 0);
	cr_assert_eq(tier_charge_take(&second, &fixture.tier, &fixture.job, 4 * MIB, &fixture.text),
	             TIER_E_FULL);
	says(&fixture, "4 MiB");
	says(&fixture, "3 MiB free of 10 MiB");
	says(&fixture, "raise tier.cpu.capacity");
	says(&fixture, "cpu:0");
	cr_assert_null(second.tier);
	cr_assert_eq(fixture.uid.used_bytes[TIER_CPU], 7 * MIB);
	cr_assert_eq(tier_charge_take(&second, &fixture.tier, &fixture.job, 3 * MIB, NULL), 0,
	             "the rest fits exactly");
	tier_charge_return(&first);
	tier_charge_return(&second);
	fixture_deinit(&fixture);
}

Test(account, room_is_the_least_that_any_payer_has_left)
{
	struct fixture fixture;
	struct tier_charge charge = { 0 };

	fixture_init(&fixture, 10 * MIB);
	cr_assert_eq(tier_charge_room_bytes(&fixture.tier, &fixture.job), 10 * MIB);
	cr_assert_eq(tier_charge_take(&charge, &fixture.tier, &fixture.job, 4 * MIB, NULL), 0);
	cr_assert_eq(tier_charge_room_bytes(&fixture.tier, &fixture.job), 6 * MIB);
	fixture.uid.limit_bytes[TIER_CPU] = 9 * MIB;
	cr_assert_eq(tier_charge_room_bytes(&fixture.tier, &fixture.job), 5 * MIB);
	fixture.job.limit_bytes[TIER_CPU] = 5 * MIB;
	cr_assert_eq(tier_charge_room_bytes(&fixture.tier, &fixture.job), MIB);
	fixture.uid.limit_bytes[TIER_CPU] = 3 * MIB;
	cr_assert_eq(tier_charge_room_bytes(&fixture.tier, &fixture.job), 0, "beyond it already");
	tier_charge_return(&charge);
	fixture_deinit(&fixture);
}

Test(account, quota_of_a_uid_binds_its_jobs_together)
{
	struct fixture fixture;
	struct tier_account other;
	struct tier_charge first = { 0 }, second = { 0 };

	fixture_init(&fixture, 100 * MIB);
	tier_account_init(&other, "job other", &fixture.uid);
	fixture.uid.limit_bytes[TIER_CPU] = 10 * MIB;
	cr_assert_eq(tier_charge_take(&first, &fixture.tier, &fixture.job, 8 * MIB, NULL), 0);
	cr_assert_eq(tier_charge_take(&second, &fixture.tier, &other, 3 * MIB, &fixture.text),
	             TIER_E_QUOTA);
	says(&fixture, "uid 1000 holds 8 MiB of the 10 MiB");
	cr_assert_eq(other.used_bytes[TIER_CPU], 0, "all or nothing");
	cr_assert_eq(fixture.tier.used_bytes, 8 * MIB);
	tier_charge_return(&first);
	tier_account_deinit(&other);
	fixture_deinit(&fixture);
}

Test(account, limit_below_what_is_held_refuses_and_does_not_wrap)
{
	struct fixture fixture;
	struct tier_charge first = { 0 }, second = { 0 };

	fixture_init(&fixture, 100 * MIB);
	cr_assert_eq(tier_charge_take(&first, &fixture.tier, &fixture.job, 8 * MIB, NULL), 0);
	fixture.job.limit_bytes[TIER_CPU] = MIB;
	cr_assert_eq(tier_charge_take(&second, &fixture.tier, &fixture.job, 1, NULL), TIER_E_QUOTA);
	tier_charge_return(&first);
	fixture_deinit(&fixture);
}

Test(account, huge_request_is_refused_and_does_not_wrap)
{
	struct fixture fixture;
	struct tier_charge first = { 0 }, second = { 0 };

	fixture_init(&fixture, 10 * MIB);
	cr_assert_eq(tier_charge_take(&first, &fixture.tier, &fixture.job, MIB, NULL), 0);
	cr_assert_eq(tier_charge_take(&second, &fixture.tier, &fixture.job, UINT64_MAX, NULL),
	             TIER_E_FULL);
	tier_charge_return(&first);
	fixture_deinit(&fixture);
}

Test(account, long_names_are_cut)
{
	struct tier_account account;
	char name[200];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	tier_account_init(&account, name, NULL);
	cr_assert_eq(strlen(account.name), sizeof(account.name) - 1);
	tier_account_deinit(&account);
}

Test(account, descriptors_are_counted_upward_and_refused_with_the_figures)
{
	struct fixture fixture;

	fixture_init(&fixture, MIB);
	fixture.uid.limit_fds = 5;
	cr_assert_eq(tier_account_take_fds(&fixture.job, 3, NULL), 0);
	cr_assert_eq(fixture.uid.used_fds, 3);
	cr_assert_eq(tier_account_take_fds(&fixture.job, 3, &fixture.text), TIER_E_QUOTA);
	says(&fixture, "uid 1000 holds 3 descriptors of zinfd and needs 3 more, 5 are allowed");
	says(&fixture, "limits.descriptors_per_uid");
	cr_assert_eq(fixture.job.used_fds, 3);
	cr_assert_eq(tier_account_take_fds(&fixture.uid, 2, NULL), 0, "the rest fits exactly");
	tier_account_give_fds(&fixture.uid, 2);
	tier_account_give_fds(&fixture.job, 3);
	cr_assert_eq(fixture.uid.used_fds, 0);
	fixture_deinit(&fixture);
}
