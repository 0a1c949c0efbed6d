/* SPDX-License-Identifier: Apache-2.0 */
/* Tallies and budgets of what is written. Floor 4. */
#include "daemon/tier/tally.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"

#define TALLY_DAY_MS (24ull * 3600 * 1000)

void tier_tally_add(struct tier_tally *tally, bool is_write, uint64_t bytes)
{
	for (; tally; tally = tally->parent)
		*(is_write ? &tally->write_bytes : &tally->read_bytes) += bytes;
}

/* A clock that is set back begins no day anew. */
void tier_tally_roll(struct tier_tally *tally, uint64_t now_ms)
{
	uint64_t day = now_ms / TALLY_DAY_MS;

	if (day <= tally->day)
		return;
	if (tally->day) /* Else it is new: all there is was written today. */
		tally->day_start_bytes = tally->write_bytes;
	tally->day = day;
	tally->is_told = false;
	tally->paced_until_ms = 0;
}

void tier_tally_restore(struct tier_tally *tally, uint64_t read_bytes, uint64_t write_bytes,
                        uint64_t day, uint64_t day_write_bytes)
{
	tally->read_bytes = read_bytes;
	tally->write_bytes = write_bytes;
	tally->day = day;
	tally->day_start_bytes = write_bytes - ZI_MIN(day_write_bytes, write_bytes);
}

const char *tier_budget_action_name(enum tier_budget_action action)
{
	switch (action) {
	case TIER_BUDGET_SLOW:
		return "slow";
	case TIER_BUDGET_REFUSE:
		return "refuse";
	case TIER_BUDGET_WARN:
	default:
		return "warn";
	}
}

static void say(const struct tier_tally *tally, uint64_t step_bytes, const char *who,
                const char *key, uint64_t left_ms, struct zi_text *text)
{
	static const char *const outcomes[] = {
		[TIER_BUDGET_WARN] = "steps go on",
		[TIER_BUDGET_SLOW] = "steps are spread over the day",
		[TIER_BUDGET_REFUSE] = "no step until then",
	};

	zi_text_set(
		text,
		"%s: %s written today and %s by this step, of %s a day (%s), which starts again "
		"at midnight UTC, in %llu h %llu min: %s",
		who, zi_format_bytes(tier_tally_day_bytes(tally)).chars,
		zi_format_bytes(step_bytes).chars, zi_format_bytes(tally->budget.day_bytes).chars,
		key, (unsigned long long)(left_ms / 3600000),
		(unsigned long long)(left_ms / 60000 % 60), outcomes[tally->budget.action]);
}

/**
 * tier_budget_ask() - may a step be begun
 * @now_ms: since 1970, UTC
 * @step_bytes: that it is expected to write
 * @who: whose budget, "store 'disk'"; @key: of the configuration
 *
 * Return: 0, or a condition (tally.h) with @text. Counts nothing.
 */
int tier_budget_ask(struct tier_tally *tally, uint64_t now_ms, uint64_t step_bytes, const char *who,
                    const char *key, struct zi_text *text, uint64_t *ret_wait_ms)
{
	uint64_t left_ms = TALLY_DAY_MS - now_ms % TALLY_DAY_MS;
	uint64_t day_bytes;

	tier_tally_roll(tally, now_ms);
	day_bytes = tier_tally_day_bytes(tally);
	if (!tally->budget.day_bytes || (day_bytes <= tally->budget.day_bytes &&
	                                 step_bytes <= tally->budget.day_bytes - day_bytes))
		return 0;
	switch (tally->budget.action) {
	case TIER_BUDGET_REFUSE:
		say(tally, step_bytes, who, key, left_ms, text);
		return TIER_BUDGET_E_REFUSED;
	case TIER_BUDGET_SLOW:
		if (now_ms < tally->paced_until_ms) {
			say(tally, step_bytes, who, key, left_ms, text);
			*ret_wait_ms = ZI_MIN(tally->paced_until_ms - now_ms, left_ms);
			return TIER_BUDGET_E_WAIT;
		}
		break;
	case TIER_BUDGET_WARN:
	default:
		break;
	}
	if (tally->is_told)
		return 0;
	tally->is_told = true;
	say(tally, step_bytes, who, key, left_ms, text);
	return TIER_BUDGET_E_TELL;
}

/* After tier_budget_ask() let it pass. Up to the budget, steps cost nothing. */
void tier_budget_spend(struct tier_tally *tally, uint64_t now_ms, uint64_t step_bytes)
{
	const struct tier_budget *budget = &tally->budget;
	uint64_t day_bytes = tier_tally_day_bytes(tally);

	if (!budget->day_bytes || budget->action != TIER_BUDGET_SLOW)
		return;
	if (day_bytes <= budget->day_bytes && step_bytes <= budget->day_bytes - day_bytes)
		return;
	tally->paced_until_ms = now_ms + (uint64_t)((double)step_bytes * (double)TALLY_DAY_MS /
	                                            (double)budget->day_bytes);
}
