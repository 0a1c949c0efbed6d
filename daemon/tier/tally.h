/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was read and written on behalf of somebody (a store, a uid, a job) in all its life and
 * today, and what may be written a day. Floor 4, shard thread; plain figures, no clock: who asks
 * says what time it is.
 *
 * Flash wears by what is written; a budget makes a training run spend a drive's life on purpose.
 * A day begins at midnight UTC: a figure that two people can compare, and that a restart keeps with
 * one word. Beyond the budget of the day
 *
 *   WARN    steps go on; it is said once
 *   SLOW    steps go on at the budget's own pace: after one that writes B bytes the next may begin
 *           B ÷ (budget ÷ 1 day) later. So a day writes twice its budget at most
 *   REFUSE  steps are refused until the day is over
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

enum tier_budget_action { TIER_BUDGET_WARN = 0, TIER_BUDGET_SLOW, TIER_BUDGET_REFUSE };

struct tier_budget {
	uint64_t day_bytes; /* 0: none */
	enum tier_budget_action action;
};

struct tier_tally {
	struct tier_tally *parent; /* counts too; NULL: none */
	struct tier_budget budget;
	uint64_t read_bytes, write_bytes; /* in all its life */
	uint64_t day;                     /* since 1970 */
	uint64_t day_start_bytes;         /* write_bytes when it began */
	bool is_told;                     /* WARN, this day */
	uint64_t paced_until_ms;          /* SLOW: no step before */
};

enum { _TIER_BUDGET_E_SUCCESS, TIER_BUDGET_E_TELL, TIER_BUDGET_E_WAIT, TIER_BUDGET_E_REFUSED };

/* @bytes were moved on behalf of @tally and its parents. */
void tier_tally_add(struct tier_tally *tally, bool is_write, uint64_t bytes);
/* It is @now_ms since 1970, UTC. What was written since the last call counts to the day before. */
void tier_tally_roll(struct tier_tally *tally, uint64_t now_ms);
/* As kept over a restart. */
void tier_tally_restore(struct tier_tally *tally, uint64_t read_bytes, uint64_t write_bytes,
                        uint64_t day, uint64_t day_write_bytes);
static inline uint64_t tier_tally_day_bytes(const struct tier_tally *tally)
{
	return tally->write_bytes - tally->day_start_bytes;
}
/* May @step_bytes be written now? 0; TIER_BUDGET_E_TELL: yes, and it is to be said (once a day);
 * TIER_BUDGET_E_WAIT: not before @ret_wait_ms; TIER_BUDGET_E_REFUSED. But for 0 with figures, in
 * terms of @who and @key. */
int tier_budget_ask(struct tier_tally *tally, uint64_t now_ms, uint64_t step_bytes, const char *who,
                    const char *key, struct zi_text *text, uint64_t *ret_wait_ms);
/* It is being written: SLOW has its price. */
void tier_budget_spend(struct tier_tally *tally, uint64_t now_ms, uint64_t step_bytes);
const char *tier_budget_action_name(enum tier_budget_action action);
