/* SPDX-License-Identifier: Apache-2.0 */
/* ADMIN: limits and their present use, as JSON. Floor 6, shard thread. */
#include "daemon/session/admin/answer_limits.h"

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

static uint64_t used_of_job_owner(struct sess_shard *shard, const char *name,
                                  const struct limits_uid *uid)
{
	const struct tier_account *account;

	if (!strcmp(name, "jobs_per_uid"))
		return uid->job_count;
	account = zero_account(shard->zero, uid->uid);
	if (!account)
		return 0;
	if (!strcmp(name, "descriptors_per_uid"))
		return account->used_fds;
	return account->used_bytes[!strcmp(name, "uid_cpu_bytes") ? TIER_CPU : TIER_NVME];
}

/* Of what belongs to jobs. */
static struct limits_use use_of_jobs(struct sess_shard *shard, const char *name,
                                     const struct limits_jobs *jobs, uid_t asker, bool is_admin)
{
	struct limits_uid self = { .uid = asker };
	struct limits_use use = { .uid = asker, .is_of_uid = true };

	for (uint32_t i = 0; i < jobs->uid_count; i++)
		if (jobs->uids[i].uid == asker)
			self = jobs->uids[i];
	use.used = used_of_job_owner(shard, name, &self);
	for (uint32_t i = 0; is_admin && i < jobs->uid_count; i++) {
		uint64_t used = used_of_job_owner(shard, name, &jobs->uids[i]);

		if (used > use.used)
			use = (struct limits_use){ used, jobs->uids[i].uid, true };
	}
	return use;
}

static struct limits_use use_per_uid(struct sess_shard *shard, const struct sess_limit_fact *fact,
                                     const struct limits_jobs *jobs, uid_t asker)
{
	struct limits_use use = { .uid = asker };
	bool is_admin = asker == 0 || asker == geteuid();
	enum sess_uid_kind kind;

	if (!strcmp(fact->name, "jobs_per_uid") || !strcmp(fact->name, "descriptors_per_uid") ||
	    !strcmp(fact->name, "uid_cpu_bytes") || !strcmp(fact->name, "uid_nvme_bytes"))
		return use_of_jobs(shard, fact->name, jobs, asker, is_admin);
	if (!sess_uid_find_kind(fact->key, &kind))
		return use;
	use.is_of_uid = true;
	use.used = is_admin ? sess_uid_most(shard->uids, kind, &use.uid)
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
