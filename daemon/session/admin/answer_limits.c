/* SPDX-License-Identifier: Apache-2.0 */
/* ADMIN: limits and their present use, as JSON. Floor 6, shard thread. */
#include "daemon/session/admin/answer_limits.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/sess.h"

/* Uids with jobs that are told apart for root; what others have is shown to themselves. */
#define LIMITS_UIDS_MAX 256u

struct limits_uid {
	uid_t uid;
	uint64_t job_count;
};

/* Jobs, by uid. */
struct limits_jobs {
	uint64_t count;
	struct limits_uid uids[LIMITS_UIDS_MAX];
	uint32_t uid_count;
};

/* What is limited per uid, of the uid that has most of those that the asker may see. */
struct limits_use {
	uint64_t used;
	uid_t uid;
	bool is_of_uid; /* and counted */
};

static void count_job(void *arg, const struct zero_job_report *report)
{
	struct limits_jobs *jobs = arg;
	uint32_t index = 0;

	jobs->count++;
	while (index < jobs->uid_count && jobs->uids[index].uid != report->uid)
		index++;
	if (index == LIMITS_UIDS_MAX)
		return;
	if (index == jobs->uid_count)
		jobs->uids[jobs->uid_count++] = (struct limits_uid){ .uid = report->uid };
	jobs->uids[index].job_count++;
}

uint64_t sess_answer_job_count(struct sess_shard *shard)
{
	struct limits_jobs jobs = { .count = 0 };

	(void)zero_report(shard->zero, NULL, count_job, &jobs); /* Finds all there are. */
	return jobs.count;
}

/* The largest use, of the uids that the asker may see. */
struct limits_search {
	const char *name;
	uid_t asker;
	bool is_admin;
	struct limits_use use;
};

static void search_take(struct limits_search *search, uid_t uid, uint64_t used)
{
	if ((search->is_admin || uid == search->asker) && used > search->use.used)
		search->use = (struct limits_use){ used, uid, true };
}

/* Of "uid_cpu_bytes" and its like. _TIER_KIND_COUNT: another limit. */
static enum tier_kind kind_of(const char *name)
{
	char kind_name[32];

	for (enum tier_kind kind = 0; kind < _TIER_KIND_COUNT; kind++) {
		(void)snprintf(kind_name, sizeof(kind_name), "uid_%s_bytes",
		               tier_kind_name(kind)); /* Fits. */
		if (!strcmp(name, kind_name))
			return kind;
	}
	return _TIER_KIND_COUNT;
}

static void look_at_account(void *arg, uint32_t uid, const struct tier_account *account,
                            uint64_t today_write_bytes)
{
	struct limits_search *search = arg;
	uint64_t used;

	if (!strcmp(search->name, "descriptors_per_uid"))
		used = account->used_fds;
	else if (!strcmp(search->name, "uid_write_bytes_per_day"))
		used = today_write_bytes;
	else
		used = account->used_bytes[kind_of(search->name)];
	search_take(search, uid, used);
}

static bool is_of_account(const char *name)
{
	return !strcmp(name, "descriptors_per_uid") || !strcmp(name, "uid_write_bytes_per_day") ||
	       kind_of(name) != _TIER_KIND_COUNT;
}

static struct limits_use use_per_uid(struct sess_shard *shard, const struct sess_limit_fact *fact,
                                     const struct limits_jobs *jobs, uid_t asker)
{
	struct limits_search search = { .name = fact->name,
		                        .asker = asker,
		                        .is_admin = asker == 0 || asker == geteuid(),
		                        .use = { .uid = asker, .is_of_uid = true } };
	struct limits_use use = { .uid = asker };
	enum sess_uid_kind kind;

	if (is_of_account(fact->name)) {
		zero_account_each(shard->zero, look_at_account, &search);
		return search.use;
	}
	if (!strcmp(fact->name, "jobs_per_uid")) {
		for (uint32_t i = 0; i < jobs->uid_count; i++)
			search_take(&search, jobs->uids[i].uid, jobs->uids[i].job_count);
		return search.use;
	}
	if (!sess_uid_find_kind(fact->key, &kind))
		return use;
	use.is_of_uid = true;
	use.used = search.is_admin ? sess_uid_most(shard->uids, kind, &use.uid)
	                           : sess_uid_used(shard->uids, asker, kind);
	return use;
}

static json_t *answer_use(struct sess_shard *shard, const struct sess_limit_fact *fact,
                          const struct limits_jobs *jobs)
{
	if (!strcmp(fact->name, "sessions"))
		return answer_integer(shard->polled_count);
	if (!strcmp(fact->name, "connections"))
		return answer_integer(sess_uid_sum(shard->uids, SESS_UID_CONNECTIONS));
	if (!strcmp(fact->name, "jobs"))
		return answer_integer(jobs->count);
	if (!strcmp(fact->name, "inflight_ops"))
		return answer_integer(zi_pool_used_count(&shard->ops));
	return json_null();
}

json_t *sess_answer_limits(struct sess_shard *shard, const struct sess_facts *facts, uid_t uid)
{
	struct limits_jobs jobs = { .count = 0 };
	json_t *limits = json_array();

	(void)zero_report(shard->zero, NULL, count_job, &jobs); /* Finds all there are. */
	for (uint32_t i = 0; i < facts->limit_count; i++) {
		const struct sess_limit_fact *fact = &facts->limits[i];
		struct limits_use use = use_per_uid(shard, fact, &jobs, uid);
		json_t *limit = json_object();

		answer_word(limit, "name", fact->name);
		answer_word(limit, "key", fact->key);
		answer_number(limit, "value", fact->value);
		answer_put(limit, "used",
		           use.is_of_uid ? answer_integer(use.used)
		                         : answer_use(shard, fact, &jobs));
		answer_put(limit, "uid", use.is_of_uid ? json_integer(use.uid) : json_null());
		(void)json_array_append_new(limits, limit);
	}
	return limits;
}
