/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: memory that a rank received stays, and stays charged, until that rank leaves, and not
 * longer; refusals name its process. Method: holders that come and go around one segment.
 */
#include <stdio.h>

#include "daemon/tier/holder.h"
#include "tests/unit/tier/fixture.h"

struct held {
	struct fixture fixture;
	struct tier_holders *holders;
	struct tier_holder *ranks[2];
	struct tier_segment *segment;
};

static void held_init(struct held *held)
{
	*held = (struct held){ .segment = NULL };
	fixture_init(&held->fixture, MIB);
	cr_assert_eq(tier_holders_new(&held->holders), 0);
	tier_holders_watch(held->holders, &held->fixture.tier);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(tier_holder_new(held->holders, 4711 + i, &held->ranks[i]), 0);
	cr_assert_eq(tier_segment_new(&held->fixture.tier, &held->fixture.job, "a", MIB / 2,
	                              TIER_PAGES_HUGE, NULL, &held->segment),
	             0);
}

static void held_deinit(struct held *held)
{
	held->segment = tier_segment_unref(held->segment);
	for (int i = 0; i < 2; i++)
		held->ranks[i] = tier_holder_free(held->ranks[i]);
	held->holders = tier_holders_free(held->holders);
	fixture_deinit(&held->fixture);
}

Test(holder, keeps_a_segment_until_its_rank_leaves)
{
	struct held held;

	held_init(&held);
	cr_assert_eq(tier_holders_count(held.holders), 0);
	cr_assert_eq(tier_holder_add(held.ranks[0], held.segment), 0);
	cr_assert_eq(tier_holder_add(held.ranks[0], held.segment), 0, "twice is once");
	cr_assert_eq(held.segment->ref_count, 2);
	cr_assert_eq(held.segment->holder_count, 1);
	cr_assert_eq(tier_holders_count(held.holders), 1);
	held.segment = tier_segment_unref(held.segment);
	cr_assert_eq(held.fixture.tier.used_bytes, MIB / 2, "the rank may still see it");
	held.ranks[0] = tier_holder_free(held.ranks[0]);
	cr_assert_eq(tier_holders_count(held.holders), 0);
	cr_assert_eq(held.fixture.tier.used_bytes, 0);
	held_deinit(&held);
}

Test(holder, is_named_when_memory_is_refused)
{
	struct held held;
	struct tier_charge charge = { 0 };

	held_init(&held);
	cr_assert_eq(tier_holder_add(held.ranks[0], held.segment), 0);
	cr_assert_eq(tier_charge_take(&charge, &held.fixture.tier, &held.fixture.job, MIB,
	                              &held.fixture.text),
	             TIER_E_FULL);
	cr_assert_null(strstr(held.fixture.text.chars, "pid"), "its owner has not let go of it");
	held.segment = tier_segment_unref(held.segment);
	cr_assert_eq(tier_charge_take(&charge, &held.fixture.tier, &held.fixture.job, MIB,
	                              &held.fixture.text),
	             TIER_E_FULL);
	says(&held.fixture, "pid 4711");
	says(&held.fixture, "512 KiB are still held");
	held.ranks[0] = tier_holder_free(held.ranks[0]);
	cr_assert_eq(tier_charge_take(&charge, &held.fixture.tier, &held.fixture.job, MIB, NULL),
	             0);
	tier_charge_return(&charge);
	held_deinit(&held);
}

Test(holder, two_ranks_hold_it_until_both_have_left)
{
	struct held held;
	pid_t pid = 0;

	held_init(&held);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(tier_holder_add(held.ranks[i], held.segment), 0);
	held.segment = tier_segment_unref(held.segment);
	cr_assert_eq(tier_holders_lingering_bytes(held.holders, &held.fixture.tier, &pid), MIB / 2,
	             "counted once");
	cr_assert_eq(pid, 4711);
	held.ranks[0] = tier_holder_free(held.ranks[0]);
	cr_assert_eq(held.fixture.tier.used_bytes, MIB / 2);
	held.ranks[1] = tier_holder_free(held.ranks[1]);
	cr_assert_eq(held.fixture.tier.used_bytes, 0);
	held_deinit(&held);
}
