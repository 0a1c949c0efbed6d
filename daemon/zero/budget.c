/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What jobs write, by store, uid and job: kept in the catalog with each commit, and held against
 * the budgets of the day when a step begins. Floor 5, shard thread.
 *
 * A step is expected to write what the job's last one wrote; the first after a start is not known,
 * and passes. What a daemon had written since the last commit when it died is not counted.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/internal.h"

static uint64_t budget_now_ms(const struct zero *zero)
{
	struct timespec now = { 0 };

	if (zero->options.now_ms)
		return zero->options.now_ms(zero->options.now_arg);
	(void)clock_gettime(CLOCK_REALTIME, &now); /* Always there. */
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* "store:" and 32 digits. */
static void name_store(char *subject, const uint8_t uuid[16])
{
	memcpy(subject, "store:", 7);
	for (uint32_t i = 0; i < 16; i++)
		(void)snprintf(&subject[6 + 2 * i], 3, "%02x", uuid[i]); /* Two digits. */
}

static void record(struct catalog_traffic *traffic, struct tier_tally *tally, uint64_t now_ms)
{
	tier_tally_roll(tally, now_ms);
	traffic->read_bytes = tally->read_bytes;
	traffic->write_bytes = tally->write_bytes;
	traffic->day = tally->day;
	traffic->day_write_bytes = tier_tally_day_bytes(tally);
}

/* For the commit that is about to be submitted: job->record_traffic. Return: how many. */
uint32_t budget_record(struct zero_job *job)
{
	struct catalog_traffic *traffic = job->record_traffic;
	uint64_t now_ms = budget_now_ms(job->zero);
	uint32_t count = 0;

	static_assert(CATALOG_SUBJECT_BYTES >= sizeof("store:") + 32, "an identity fits");
	static_assert(CATALOG_SUBJECT_BYTES >= sizeof("job:") + ZI_NAME_BYTES, "a name fits");
	(void)snprintf(traffic[count].subject, CATALOG_SUBJECT_BYTES, "job:%s", job->name);
	record(&traffic[count++], &job->tally, now_ms);
	(void)snprintf(traffic[count].subject, CATALOG_SUBJECT_BYTES, "uid:%u", job->uid);
	record(&traffic[count++], job->tally.parent, now_ms);
	for (uint32_t i = 0; job->nvme_tier && i < job->nvme_tier->member_count; i++) {
		struct tier_member *member = &job->nvme_tier->members[i];

		name_store(traffic[count].subject, member->uuid);
		record(&traffic[count++], &member->tally, now_ms);
	}
	assert(count <= ZI_COUNT_OF(job->record_traffic));
	return count;
}

/* Whose figures these are; NULL: of nobody who is here. */
static struct tier_tally *find(struct zero *zero, const char *subject)
{
	if (!strncmp(subject, "job:", 4)) {
		struct zero_job *job = job_find(zero, subject + 4);

		return job ? &job->tally : NULL;
	}
	if (!strncmp(subject, "uid:", 4)) {
		unsigned uid;
		struct zero_account *account =
			sscanf(subject + 4, "%u", &uid) == 1 ? zero_account_of(zero, uid) : NULL;

		return account ? &account->tally : NULL;
	}
	for (uint32_t i = 0; i < zero->options.nvme_tier_count; i++)
		for (uint32_t j = 0; j < zero->options.nvme_tiers[i].member_count; j++) {
			struct tier_member *member = &zero->options.nvme_tiers[i].members[j];
			char name[CATALOG_SUBJECT_BYTES];

			name_store(name, member->uuid);
			if (!strcmp(name, subject))
				return &member->tally;
		}
	return NULL;
}

/* At start, when all jobs are there. */
void budget_restore(void *arg, const struct catalog_traffic *traffic)
{
	struct zero *zero = arg;
	struct zi_text text = { "" };
	struct tier_tally *tally;

	if (!traffic) {
		zi_text_set(&text, "a row of the catalog's traffic is damaged: what it counted "
		                   "begins anew at 0");
		if (zero->options.told)
			zero->options.told(zero->options.told_arg, &text);
		return;
	}
	tally = find(zero, traffic->subject);
	if (!tally)
		return;
	tier_tally_restore(tally, traffic->read_bytes, traffic->write_bytes, traffic->day,
	                   traffic->day_write_bytes);
	tier_tally_roll(tally, budget_now_ms(zero));
}

/* One budget. Return: 0; -EDQUOT with a sentence; BUDGET_E_WAIT. */
static int ask(struct zero_job *job, struct tier_tally *tally, const char *who, const char *key,
               uint64_t now_ms, struct zi_text *text, uint64_t *wait_ms)
{
	struct zi_text why = { "" };
	uint64_t mine_ms = 0;
	int r;

	r = tier_budget_ask(tally, now_ms, job->last_stats.write_bytes, who, key, &why, &mine_ms);
	if (r == TIER_BUDGET_E_REFUSED) {
		*text = why;
		return err_origin(-EDQUOT);
	}
	if (r == TIER_BUDGET_E_TELL && job->zero->options.told)
		job->zero->options.told(job->zero->options.told_arg, &why);
	*wait_ms = ZI_MAX(*wait_ms, mine_ms);
	return r == TIER_BUDGET_E_WAIT ? BUDGET_E_WAIT : 0;
}

static void pace_due(struct zi_timer *timer)
{
	struct zero_job *job = container_of(timer, struct zero_job, pace_timer);
	struct zero *zero = job->zero;

	job->is_paced = false;
	ops_retry(job);
	zero_drain(zero);
}

static void spend(struct zero_job *job, uint64_t now_ms)
{
	uint64_t bytes = job->last_stats.write_bytes;

	tier_budget_spend(job->tally.parent, now_ms, bytes);
	for (uint32_t i = 0; i < job->nvme_tier->member_count; i++)
		tier_budget_spend(&job->nvme_tier->members[i].tally, now_ms, bytes);
}

/**
 * budget_take() - may a step of this job begin now
 * @text: of a refusal
 *
 * Return: 0, and its price is paid; BUDGET_E_WAIT: ops_retry() comes when it may; -EDQUOT with
 * what was written, the budget, and when it begins anew.
 */
int budget_take(struct zero_job *job, struct zi_text *text)
{
	uint64_t now_ms = budget_now_ms(job->zero);
	uint64_t wait_ms = 0;
	char who[ZI_NAME_BYTES + 16];
	int r;

	if (!job_is_nvme(job))
		return 0;
	(void)snprintf(who, sizeof(who), "uid %u", job->uid); /* Fits, as below. */
	r = ask(job, job->tally.parent, who, "quota.uid_write_per_day", now_ms, text, &wait_ms);
	for (uint32_t i = 0; r >= 0 && i < job->nvme_tier->member_count; i++) {
		struct tier_member *member = &job->nvme_tier->members[i];

		(void)snprintf(who, sizeof(who), "store '%s'", member->name);
		r = ask(job, &member->tally, who, "write_budget_per_day", now_ms, text, &wait_ms);
	}
	if (r < 0)
		return err_trace(r);
	if (!wait_ms) {
		spend(job, now_ms);
		return 0;
	}
	job->is_paced = true;
	zi_loop_arm(job->zero->options.loop, &job->pace_timer,
	            zi_clock_deadline_ns(wait_ms * ZI_NS_PER_MS), pace_due);
	return BUDGET_E_WAIT;
}
