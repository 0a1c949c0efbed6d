/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is written counts to its day and to all above; a budget warns once, slows to its own
 * pace, or refuses until midnight, and says so with figures. Method: a clock of the test's own. */
#include <criterion/criterion.h>
#include <string.h>

#include "daemon/tier/tally.h"

#define DAY_MS   (24ull * 3600 * 1000)
#define START_MS (20000 * DAY_MS)
#define MIB      (1ull << 20)

static struct zi_text text;
static uint64_t wait_ms;

static int ask(struct tier_tally *tally, uint64_t now_ms, uint64_t bytes)
{
	text.chars[0] = '\0';
	wait_ms = 0;
	return tier_budget_ask(tally, now_ms, bytes, "store 'disk'", "write_budget_per_day", &text,
	                       &wait_ms);
}

static void said(const char *words)
{
	cr_assert_not_null(strstr(text.chars, words), "'%s' lacks '%s'", text.chars, words);
}

Test(tally, counts_to_all_above_and_to_the_day)
{
	struct tier_tally uid = { .parent = NULL };
	struct tier_tally job = { .parent = &uid };

	tier_tally_roll(&job, START_MS);
	tier_tally_roll(&uid, START_MS);
	tier_tally_add(&job, true, 5);
	tier_tally_add(&job, false, 7);
	tier_tally_add(&uid, true, 1);
	cr_assert_eq(job.write_bytes, 5);
	cr_assert_eq(uid.write_bytes, 6);
	cr_assert_eq(uid.read_bytes, 7);
	tier_tally_roll(&uid, START_MS + DAY_MS - 1);
	cr_assert_eq(tier_tally_day_bytes(&uid), 6);
	tier_tally_roll(&uid, START_MS + DAY_MS);
	cr_assert_eq(tier_tally_day_bytes(&uid), 0);
	cr_assert_eq(uid.write_bytes, 6);
	/* A clock that goes back begins no day. */
	tier_tally_add(&uid, true, 2);
	tier_tally_roll(&uid, START_MS);
	cr_assert_eq(tier_tally_day_bytes(&uid), 2);
	tier_tally_add(NULL, true, 1); /* Nobody's. */
}

Test(tally, restored_goes_on_where_it_was)
{
	struct tier_tally tally = { .parent = NULL };

	tier_tally_restore(&tally, 10, 30, START_MS / DAY_MS, 20);
	tier_tally_roll(&tally, START_MS + 5);
	cr_assert_eq(tier_tally_day_bytes(&tally), 20);
	tier_tally_restore(&tally, 10, 30, START_MS / DAY_MS, 31); /* Cannot be. */
	cr_assert_eq(tier_tally_day_bytes(&tally), 30);
}

Test(budget, none_asks_nothing)
{
	struct tier_tally tally = { .write_bytes = UINT64_MAX / 2 };

	cr_assert_eq(ask(&tally, START_MS, UINT64_MAX / 2), 0);
}

Test(budget, warns_once_a_day)
{
	struct tier_tally tally = { .budget = { 100 * MIB, TIER_BUDGET_WARN } };

	cr_assert_eq(ask(&tally, START_MS, 100 * MIB), 0, "just as much");
	cr_assert_eq(ask(&tally, START_MS, 100 * MIB + 1), TIER_BUDGET_E_TELL);
	said("steps go on");
	cr_assert_eq(ask(&tally, START_MS, 200 * MIB), 0);
	cr_assert_eq(ask(&tally, START_MS + DAY_MS, 200 * MIB), TIER_BUDGET_E_TELL);
}

Test(budget, refuses_until_midnight_with_figures)
{
	struct tier_tally tally = { .budget = { 100 * MIB, TIER_BUDGET_REFUSE } };

	cr_assert_eq(ask(&tally, START_MS, 60 * MIB), 0);
	tier_tally_add(&tally, true, 60 * MIB);
	cr_assert_eq(ask(&tally, START_MS + DAY_MS - 90 * 60000, 60 * MIB), TIER_BUDGET_E_REFUSED);
	said("store 'disk': 60 MiB written today and 60 MiB by this step, of 100 MiB a day");
	said("in 1 h 30 min: no step until then");
	cr_assert_eq(ask(&tally, START_MS + DAY_MS, 60 * MIB), 0);
}

Test(budget, slows_to_its_own_pace)
{
	/* A thousandth of it is a thousandth of a day. */
	struct tier_tally tally = { .budget = { 1000 * MIB, TIER_BUDGET_SLOW } };

	cr_assert_eq(ask(&tally, START_MS, MIB), 0);
	tier_budget_spend(&tally, START_MS, MIB);
	tier_tally_add(&tally, true, 1000 * MIB);
	cr_assert_eq(ask(&tally, START_MS, MIB), TIER_BUDGET_E_TELL, "the first one beyond passes");
	said("spread over the day");
	tier_budget_spend(&tally, START_MS, MIB);
	cr_assert_eq(ask(&tally, START_MS + 400, MIB), TIER_BUDGET_E_WAIT);
	cr_assert_eq(wait_ms, 86000);
	cr_assert_eq(ask(&tally, START_MS + 86400, MIB), 0);
	tier_budget_spend(&tally, START_MS + 86400, MIB);
	cr_assert_eq(ask(&tally, START_MS + 86401, MIB), TIER_BUDGET_E_WAIT);
	/* No longer than the day, which begins without a debt. */
	tier_budget_spend(&tally, START_MS + DAY_MS - 10, 900 * MIB);
	cr_assert_eq(ask(&tally, START_MS + DAY_MS - 10, MIB), TIER_BUDGET_E_WAIT);
	cr_assert_eq(wait_ms, 10);
	cr_assert_eq(ask(&tally, START_MS + DAY_MS, MIB), 0);
}

Test(budget, actions_have_names)
{
	cr_assert_str_eq(tier_budget_action_name(TIER_BUDGET_WARN), "warn");
	cr_assert_str_eq(tier_budget_action_name(TIER_BUDGET_SLOW), "slow");
	cr_assert_str_eq(tier_budget_action_name(TIER_BUDGET_REFUSE), "refuse");
}
