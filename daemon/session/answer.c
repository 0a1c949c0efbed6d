/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ADMIN is told, as JSON (docs/ADMIN.md names every key). Floor 6, shard thread. Jansson
 * builds with NULL in place of what it could not allocate and says so at the end, so errors are
 * looked for once. Other uids than root and the daemon's own see their own jobs only.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/sess.h"

static json_t *number(uint64_t value)
{
	/* JSON's integers are signed here; "no limit" is the largest of them. */
	return json_integer((json_int_t)ZI_MIN(value, (uint64_t)INT64_MAX));
}

static void put(json_t *object, const char *key, json_t *value)
{
	/* Fails with no memory, or a value that failed: the whole answer is dropped then. */
	if (json_object_set_new(object, key, value))
		(void)json_object_set_new(object, "error", json_string("out of memory"));
}

static void put_number(json_t *object, const char *key, uint64_t value)
{
	put(object, key, number(value));
}

static void put_word(json_t *object, const char *key, const char *value)
{
	put(object, key, json_string(value));
}

/* ---- status ---- */

/* This process's threads with the CPU time each has had, from /proc: needs no book-keeping. */
static json_t *answer_threads(void)
{
	json_t *threads = json_array();
	DIR *folder = opendir("/proc/self/task");
	struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		char path[320];
		char name[32];
		char times[64];
		json_t *thread;

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		if (zi_read_text(path, name, sizeof(name)))
			continue; /* It has just ended. */
		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", entry->d_name);
		if (zi_read_text(path, times, sizeof(times)))
			times[0] = '\0'; /* A kernel without schedstat. */
		thread = json_object();
		/* The process is named after its program; its first thread is the control thread.
		 * */
		put_word(thread, "name", atoi(entry->d_name) == getpid() ? "control" : name);
		put_number(thread, "cpu_ns", strtoull(times, NULL, 10));
		(void)json_array_append_new(threads, thread); /* Seen by whoever misses it. */
	}
	if (folder)
		(void)closedir(folder); /* Only read. */
	return threads;
}

static void count_job(void *arg, const struct zero_job_report *report)
{
	uint64_t *count = arg;

	(void)report;
	*count += 1;
}

static uint64_t find_limit(const struct sess_facts *facts, const char *name)
{
	for (uint32_t i = 0; i < facts->limit_count; i++)
		if (!strcmp(facts->limits[i].name, name))
			return facts->limits[i].value;
	return 0;
}

static uint64_t job_count(struct sess_shard *shard)
{
	uint64_t count = 0;

	(void)zero_report(shard->zero, NULL, count_job, &count); /* Finds all there are. */
	return count;
}

static json_t *answer_status(struct sess_shard *shard, const struct sess_facts *facts,
                             const struct sess_inquiry *inquiry)
{
	struct sess_engine_facts engine = { .backend = "none" };
	json_t *status = json_object();
	char protocol[16];

	(void)snprintf(protocol, sizeof(protocol), "%u.%u", ZI_PROTOCOL_MAJOR, ZI_PROTOCOL_MINOR);
	if (facts->engine)
		facts->engine(facts->engine_arg, &engine);
	put_word(status, "version", ZINF_VERSION);
	put_word(status, "protocol", protocol);
	put_number(status, "pid", (uint64_t)getpid());
	put_number(status, "uid", geteuid());
	put_number(status, "uptime_s", (zi_clock_now_ns() - inquiry->started_ns) / ZI_NS_PER_S);
	put(status, "is_stopping", json_boolean(shard->is_stopping));
	put_word(status, "socket", facts->socket_path);
	put_word(status, "state_dir", facts->state_dir);
	put_word(status, "engine", engine.backend);
	put_word(status, "isa", facts->isa);
	put_number(status, "registered_bytes", engine.registered_bytes);
	put_number(status, "unregistered_bytes", engine.unregistered_bytes);
	put_number(status, "io_errors", engine.error_count);
	put_number(status, "io_shorts", engine.short_count);
	put_number(status, "sessions", shard->polled_count);
	put_number(status, "sessions_max", shard->limits.sessions_max);
	put_number(status, "sessions_ending", shard->ending_count);
	put_number(status, "holders", tier_holders_count(shard->holders));
	put_number(status, "jobs", job_count(shard));
	put_number(status, "jobs_max", find_limit(facts, "jobs"));
	put_number(status, "inflight_ops", zi_pool_used_count(&shard->ops));
	put_number(status, "requests", shard->request_count);
	put_number(status, "wakeups", shard->wakeup_count);
	put_number(status, "cpus", shard->cpu_count);
	put_number(status, "spin_us", sess_poller.spin_ns(shard) / ZI_NS_PER_US);
	put(status, "threads", answer_threads());
	return status;
}

/* ---- tiers ---- */

static json_t *answer_tier(const struct tier *tier)
{
	json_t *object = json_object();

	put_word(object, "name", tier->name);
	put_word(object, "kind", tier->kind == TIER_CPU ? "cpu" : "nvme");
	put_number(object, "node", tier->node);
	put_number(object, "capacity_bytes", tier->capacity_bytes);
	put_number(object, "used_bytes", tier->used_bytes);
	put_number(object, "peak_bytes", tier->peak_bytes);
	put_number(object, "read_bytes", tier->read_bytes);
	put_number(object, "write_bytes", tier->write_bytes);
	return object;
}

static json_t *answer_tiers(struct sess_shard *shard, const struct sess_facts *facts)
{
	struct sess_engine_facts engine = { .backend = "none" };
	json_t *tiers = json_array();

	if (facts->engine)
		facts->engine(facts->engine_arg, &engine);
	for (uint32_t i = 0; i < facts->cpu_tier_count; i++) {
		const struct tier *tier = &facts->cpu_tiers[i];
		json_t *object = answer_tier(tier);

		put(object, "wants_huge", json_boolean(tier->wants_huge));
		put_number(object, "huge_free_bytes",
		           facts->huge_free_bytes ? facts->huge_free_bytes() : 0);
		put_number(object, "lingering_bytes",
		           tier_holders_lingering_bytes(shard->holders, tier, NULL));
		(void)json_array_append_new(tiers, object);
	}
	for (uint32_t i = 0; i < facts->nvme_tier_count; i++) {
		const struct tier *tier = &facts->nvme_tiers[i];
		json_t *object = answer_tier(tier);

		put_word(object, "path", tier->store->path);
		put_number(object, "free_bytes", tier_free_bytes(tier));
		put(object, "is_direct", json_boolean(tier->store->is_direct));
		put(object, "is_block_device", json_boolean(tier->store->is_block_device));
		put_word(object, "engine", engine.backend);
		put_number(object, "registered_bytes", engine.registered_bytes);
		put_number(object, "unregistered_bytes", engine.unregistered_bytes);
		(void)json_array_append_new(tiers, object);
	}
	return tiers;
}

/* ---- jobs ---- */

struct job_answer {
	json_t *jobs;
	uid_t uid;
	bool is_all;
};

static json_t *answer_held(const struct zero_job_report *report)
{
	const struct {
		const char *plane;
		uint64_t cpu_bytes, nvme_bytes;
	} planes[] = {
		{ "param", report->param_cpu_bytes, report->param_nvme_bytes },
		{ "grad", report->grad_cpu_bytes, 0 },
		{ "accum", report->accum_cpu_bytes, 0 },
		{ "state", report->state_cpu_bytes, report->state_nvme_bytes },
		{ "staging", report->staging_cpu_bytes, 0 },
	};
	json_t *held = json_object();

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		json_t *plane = json_object();

		put_number(plane, "cpu_bytes", planes[i].cpu_bytes);
		put_number(plane, "nvme_bytes", planes[i].nvme_bytes);
		put(held, planes[i].plane, plane);
	}
	return held;
}

static json_t *answer_config(const struct zi_job_config *config)
{
	json_t *object = json_object();

	put_word(object, "param_dtype", zi_dtype_name((enum zi_dtype)config->param_dtype));
	put_word(object, "grad_dtype", zi_dtype_name((enum zi_dtype)config->grad_dtype));
	put_word(object, "optimizer", zi_optimizer_name((enum zi_optimizer)config->optimizer));
	put_word(object, "schedule", zi_schedule_name((enum zi_schedule)config->schedule));
	put_word(object, "offload_optimizer",
	         zi_offload_name((enum zi_offload)config->offload_optimizer));
	put_word(object, "offload_param", zi_offload_name((enum zi_offload)config->offload_param));
	put_word(object, "durability",
	         config->durability == ZI_DURABILITY_POWER ? "power" : "process");
	put_number(object, "resident_bytes", config->resident_bytes);
	put_number(object, "staging_bytes", config->staging_bytes);
	return object;
}

static json_t *answer_step(const struct zi_step_stats *stats)
{
	json_t *object = json_object();

	put_number(object, "step", stats->step);
	put(object, "is_skipped", json_boolean(stats->is_skipped));
	/* JSON knows no NaN: a norm that was not taken is null. */
	put(object, "norm", stats->norm == stats->norm ? json_real(stats->norm) : json_null());
	put(object, "clip", stats->clip == stats->clip ? json_real(stats->clip) : json_null());
	put_number(object, "read_bytes", stats->read_bytes);
	put_number(object, "write_bytes", stats->write_bytes);
	put_number(object, "step_ns", stats->step_ns);
	put_number(object, "grad_wait_ns", stats->grad_wait_ns);
	put_number(object, "norm_wait_ns", stats->norm_wait_ns);
	put_number(object, "io_read_ns", stats->io_read_ns);
	put_number(object, "io_write_ns", stats->io_write_ns);
	put_number(object, "cpu_ns", stats->cpu_ns);
	put_number(object, "commit_ns", stats->commit_ns);
	return object;
}

static json_t *answer_ranks(const struct zero_job_report *report)
{
	json_t *ranks = json_array();

	for (uint32_t i = 0; i < report->world_size && i < ZI_WORLD_MAX; i++) {
		json_t *rank = json_object();

		put_number(rank, "rank", i);
		put(rank, "is_attached", json_boolean(report->ranks[i].is_attached));
		put(rank, "pid", json_integer(report->ranks[i].pid));
		put_word(rank, "doing", report->ranks[i].doing ? report->ranks[i].doing : "");
		put_number(rank, "doing_ns", report->ranks[i].doing_ns);
		(void)json_array_append_new(ranks, rank);
	}
	return ranks;
}

static void answer_job(void *arg, const struct zero_job_report *report)
{
	struct job_answer *answer = arg;
	json_t *job;

	if (!answer->is_all && report->uid != answer->uid)
		return;
	job = json_object();
	put_word(job, "name", report->name);
	put_number(job, "uid", report->uid);
	put_word(job, "phase", report->phase);
	put_word(job, "incarnation", report->incarnation);
	put_number(job, "incarnation_number", report->incarnation_number);
	put_number(job, "world_size", report->world_size);
	put_number(job, "attached", report->rank_count);
	put(job, "committed_step", json_integer(report->committed_step));
	put_number(job, "params", report->param_count);
	put_number(job, "units", report->unit_count);
	put_number(job, "subgroups", report->subgroup_count);
	put_number(job, "elements", report->element_count);
	put_number(job, "padded_elements", report->padded_count);
	put(job, "config", answer_config(&report->config));
	put(job, "held", answer_held(report));
	put_number(job, "reserved_nvme_bytes", report->reserved_nvme_bytes);
	put_number(job, "read_bytes", report->read_bytes);
	put_number(job, "write_bytes", report->write_bytes);
	put(job, "last_step", answer_step(&report->last_step));
	put(job, "ranks", answer_ranks(report));
	(void)json_array_append_new(answer->jobs, job);
}

/* "no job 'x'; there are: a, b" with those that this uid may see, cut where the text ends. */
static void name_jobs(const json_t *jobs, struct sess_inquiry *inquiry)
{
	char names[ZI_TEXT_BYTES] = "none";
	size_t used_bytes = 0;
	size_t index;
	json_t *job;

	json_array_foreach(jobs, index, job)
	{
		const char *name = json_string_value(json_object_get(job, "name"));

		if (used_bytes + ZI_NAME_BYTES >= sizeof(names))
			break;
		used_bytes += (size_t)snprintf(names + used_bytes, sizeof(names) - used_bytes,
		                               "%s%s", index ? ", " : "", name ? name : "");
	}
	zi_text_set(&inquiry->text, "no job '%s'; there are: %s", inquiry->job, names);
}

static json_t *answer_jobs(struct sess_shard *shard, uid_t uid, struct sess_inquiry *inquiry)
{
	struct job_answer answer = {
		.jobs = json_array(),
		.uid = uid,
		.is_all = uid == 0 || uid == geteuid(),
	};
	bool is_found = zero_report(shard->zero, inquiry->has_job ? inquiry->job : NULL, answer_job,
	                            &answer);

	/* A job of another uid is not there for this one. */
	if (inquiry->has_job && (!is_found || !json_array_size(answer.jobs))) {
		(void)zero_report(shard->zero, NULL, answer_job,
		                  &answer); /* Finds all there are. */
		name_jobs(answer.jobs, inquiry);
		json_decref(answer.jobs);
		inquiry->result = err_origin(-ENOENT);
		return NULL;
	}
	return answer.jobs;
}

/* ---- limits ---- */

static json_t *answer_limits(struct sess_shard *shard, const struct sess_facts *facts)
{
	json_t *limits = json_array();

	for (uint32_t i = 0; i < facts->limit_count; i++) {
		const struct sess_limit_fact *fact = &facts->limits[i];
		json_t *limit = json_object();

		put_word(limit, "name", fact->name);
		put_word(limit, "key", fact->key);
		put_number(limit, "value", fact->value);
		if (!strcmp(fact->name, "sessions"))
			put_number(limit, "used", shard->polled_count);
		else if (!strcmp(fact->name, "jobs"))
			put_number(limit, "used", job_count(shard));
		else if (!strcmp(fact->name, "inflight_ops"))
			put_number(limit, "used", zi_pool_used_count(&shard->ops));
		else
			put(limit, "used", json_null());
		(void)json_array_append_new(limits, limit);
	}
	return limits;
}

/**
 * sess_answer() - answer a question
 * @uid: who asks
 * @inquiry: gets the answer, or a result without one
 *
 * Context: shard thread.
 */
void sess_answer(struct sess_shard *shard, const struct sess_facts *facts, uid_t uid,
                 struct sess_inquiry *inquiry)
{
	inquiry->result = 0;
	switch (inquiry->question) {
	case SESS_ASK_STATUS:
		inquiry->answer = answer_status(shard, facts, inquiry);
		break;
	case SESS_ASK_TIERS:
		inquiry->answer = answer_tiers(shard, facts);
		break;
	case SESS_ASK_JOBS:
		inquiry->answer = answer_jobs(shard, uid, inquiry);
		break;
	case SESS_ASK_LIMITS:
		inquiry->answer = answer_limits(shard, facts);
		break;
	}
	if (!inquiry->answer && !inquiry->result)
		inquiry->result =
			zi_text_error(&inquiry->text, err_origin(-ENOMEM), "out of memory");
}
