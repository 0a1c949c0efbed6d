/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What jobs write, by store, uid and job: kept in the catalog with each commit, and held against
 * the budgets of the day when a step begins. Floor 5, shard thread.
 *
 * A step is asked for when its extents are reserved, so what it will write where is known: the
 * whole of its state, or with commit_interval what streams. What a daemon had written since the
 * last commit when it died is not counted.
 */
#include "daemon/zero/step/budget.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/grad/spill_space.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/place/extent.h"

#define BUDGET_DAY_MS    (24ull * 3600 * 1000)
#define BUDGET_LOOK_MS   (3600ull * 1000)
#define BUDGET_WHO_BYTES (ZI_NAME_BYTES + 16)

/* What a step wants of one budget. */
struct budget_part {
	struct tier_tally *tally;
	const char *key; /* of the configuration */
	uint64_t bytes;
	char who[BUDGET_WHO_BYTES];
};

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
	record(&traffic[count++], &job->account->tally, now_ms);
	(void)snprintf(traffic[count].subject, CATALOG_SUBJECT_BYTES, "uid:%u", job->uid);
	record(&traffic[count++], job->account->tally.parent, now_ms);
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

		return job ? &job->account->tally : NULL;
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

/* Bytes that the step to come writes: (member_count,), and their sum. */
static uint64_t due_bytes(const struct zero_job *job, uint64_t ret_bytes[TIER_MEMBERS_MAX])
{
	uint64_t sum = 0;

	memset(ret_bytes, 0, TIER_MEMBERS_MAX * sizeof(*ret_bytes));
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++) {
			const struct tier_extent *next = &job->subgroups[i].places[plane].next;

			if (!next->bytes)
				continue;
			ret_bytes[next->member - job->nvme_tier->members] += next->bytes;
			sum += next->bytes;
		}
	spill_add_due(job, ret_bytes, &sum);
	return sum;
}

/* One budget, of which the step wants a part. Return: 0; -EDQUOT with a sentence. @wait_ms: grows.
 */
static int ask(struct zero *zero, const struct budget_part *part, uint64_t now_ms,
               struct zi_text *text, uint64_t *wait_ms)
{
	struct zi_text why = { "" };
	uint64_t mine_ms = 0;
	int r;

	if (!part->bytes) /* It has no affair with it. */
		return 0;
	r = tier_budget_ask(part->tally, now_ms, part->bytes, part->who, part->key, &why, &mine_ms);
	if (r == TIER_BUDGET_E_REFUSED) {
		*text = why;
		return err_origin(-EDQUOT);
	}
	if (r == TIER_BUDGET_E_TELL && zero->options.told)
		zero->options.told(zero->options.told_arg, &why);
	*wait_ms = ZI_MAX(*wait_ms, mine_ms);
	return 0;
}

static void pace_due(struct zi_timer *timer)
{
	struct zero_job *job = container_of(timer, struct zero_job, pace_timer);
	struct zero *zero = job->zero;

	job->is_paced = false;
	ops_retry(job);
	zero_drain(zero);
}

/* Of the uid, then of each path that the step writes to. Return: how many. */
static uint32_t list_parts(struct zero_job *job, struct budget_part parts[1 + TIER_MEMBERS_MAX])
{
	uint64_t bytes[TIER_MEMBERS_MAX];
	uint32_t count = 0;

	parts[count] = (struct budget_part){ .tally = job->account->tally.parent,
		                             .key = "quota.uid_write_per_day",
		                             .bytes = due_bytes(job, bytes) };
	(void)snprintf(parts[count++].who, BUDGET_WHO_BYTES, "uid %u", job->uid); /* Fits. */
	for (uint32_t i = 0; i < job->nvme_tier->member_count; i++) {
		struct tier_member *member = &job->nvme_tier->members[i];

		parts[count] = (struct budget_part){ .tally = &member->tally,
			                             .key = "write_budget_per_day",
			                             .bytes = bytes[i] };
		(void)snprintf(parts[count++].who, BUDGET_WHO_BYTES, "store '%s'",
		               member->name); /* Fits. */
	}
	return count;
}

/**
 * budget_take() - may a step of this job begin now
 * @job: the extents that the step will write are reserved
 * @text: of a refusal
 *
 * Return: 0, and its price is paid; BUDGET_E_WAIT: ops_retry() comes when it may; -EDQUOT with
 * what was written, the budget, and when it begins anew.
 */
int budget_take(struct zero_job *job, struct zi_text *text)
{
	uint64_t now_ms = budget_now_ms(job->zero);
	struct budget_part parts[1 + TIER_MEMBERS_MAX];
	uint64_t wait_ms = 0;
	uint32_t count;
	int r = 0;

	if (!job_is_nvme(job))
		return 0;
	count = list_parts(job, parts);
	for (uint32_t i = 0; i < count && !r; i++)
		r = ask(job->zero, &parts[i], now_ms, text, &wait_ms);
	if (r)
		return err_trace(r);
	if (!wait_ms) {
		for (uint32_t i = 0; i < count; i++)
			tier_budget_spend(parts[i].tally, now_ms, parts[i].bytes);
		return 0;
	}
	job->is_paced = true;
	zi_loop_arm(job->zero->options.loop, &job->pace_timer,
	            zi_clock_deadline_ns(wait_ms * ZI_NS_PER_MS), pace_due);
	return BUDGET_E_WAIT;
}

/* ---- midnight ---- */

static void midnight_due(struct zi_timer *timer)
{
	budget_watch(container_of(timer, struct zero, midnight_timer));
}

/* What has moved until now counts to the day that was; comes again at midnight. At least each hour,
 * as clocks are set and machines sleep. */
void budget_watch(struct zero *zero)
{
	uint64_t now_ms = budget_now_ms(zero);
	uint64_t left_ms = BUDGET_DAY_MS - now_ms % BUDGET_DAY_MS;

	for (uint32_t i = 0; i < zero->options.nvme_tier_count; i++)
		for (uint32_t j = 0; j < zero->options.nvme_tiers[i].member_count; j++)
			tier_tally_roll(&zero->options.nvme_tiers[i].members[j].tally, now_ms);
	zi_list_for_each(link, &zero->accounts) {
		tier_tally_roll(&container_of(link, struct zero_account, accounts_link)->tally,
		                now_ms);
	}
	zi_list_for_each(link, &zero->jobs) {
		tier_tally_roll(&container_of(link, struct zero_job, jobs_link)->account->tally,
		                now_ms);
	}
	zi_loop_arm(zero->options.loop, &zero->midnight_timer,
	            zi_clock_deadline_ns(ZI_MIN(left_ms, BUDGET_LOOK_MS) * ZI_NS_PER_MS),
	            midnight_due);
}
