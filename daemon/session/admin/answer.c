/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ADMIN is told, as JSON (docs/ANSWERS.md names every key). Floor 6, shard thread. Jansson
 * builds with NULL in place of what it could not allocate and says so at the end, so errors are
 * looked for once. Other uids than root and the daemon's own see their own jobs only.
 */
#include "daemon/session/admin/answer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/admin/answer_jobs.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/admin/answer_limits.h"
#include "daemon/session/admin/answer_snapshots.h"
#include "daemon/session/admin/answer_tiers.h"
#include "daemon/session/admin/answer_topo.h"
#include "daemon/session/poll.h"
#include "daemon/session/sess.h"
#include "daemon/tier/move.h"

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
		answer_word(thread, "name", atoi(entry->d_name) == getpid() ? "control" : name);
		answer_number(thread, "cpu_ns", strtoull(times, NULL, 10));
		(void)json_array_append_new(threads, thread); /* Seen by whoever misses it. */
	}
	if (folder)
		(void)closedir(folder); /* Only read. */
	return threads;
}

static uint64_t find_limit(const struct sess_facts *facts, const char *name)
{
	for (uint32_t i = 0; i < facts->limit_count; i++)
		if (!strcmp(facts->limits[i].name, name))
			return facts->limits[i].value;
	return 0;
}

static void add_trouble(json_t *troubles, const char *gpu, const char *why, pid_t ending_pid,
                        uint64_t killed_ns)
{
	json_t *trouble = json_object();

	answer_word(trouble, "gpu", gpu);
	answer_word(trouble, "reason", why);
	sess_answer_ending(trouble, ending_pid, killed_ns);
	(void)json_array_append_new(troubles, trouble); /* Seen by whoever misses it. */
}

/* GPUs that cannot be used, and those whose zinf-gpu was killed and lives on. */
static json_t *answer_troubles(struct tier_arenas *arenas)
{
	json_t *troubles = json_array();

	for (uint32_t i = 0; arenas && i < tier_arenas_count(arenas); i++) {
		const struct dev_gpu *gpu = tier_arenas_tier(arenas, i)->gpu;

		if (gpu->ending_pid)
			add_trouble(troubles, gpu->facts.uuid, gpu->down.chars, gpu->ending_pid,
			            gpu->killed_ns);
	}
	for (uint32_t i = 0; arenas && i < TIER_GPUS_MAX; i++) {
		const struct tier_gpu_trouble *trouble = tier_arenas_trouble(arenas, i);
		char number[12];

		(void)snprintf(number, sizeof(number), "%u", i); /* Fits. */
		if (trouble->text.chars[0] || trouble->ending_pid)
			add_trouble(troubles, number, trouble->text.chars, trouble->ending_pid,
			            trouble->killed_ns);
	}
	return troubles;
}

/* How many GPUs there are, and why there are not more. */
static void answer_gpus(json_t *status, struct tier_arenas *arenas)
{
	const char *why = arenas ? tier_arenas_explanation(arenas) : "";

	answer_number(status, "gpus", arenas ? tier_arenas_count(arenas) : 0);
	answer_put(status, "gpus_missing", *why ? answer_text(why) : json_null());
	answer_put(status, "gpu_troubles", answer_troubles(arenas));
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
	answer_word(status, "version", ZINF_VERSION);
	answer_word(status, "protocol", protocol);
	answer_number(status, "pid", (uint64_t)getpid());
	answer_number(status, "uid", geteuid());
	answer_number(status, "uptime_s", (zi_clock_now_ns() - inquiry->started_ns) / ZI_NS_PER_S);
	answer_put(status, "is_stopping", json_boolean(shard->is_stopping));
	if (zero_frozen(shard->zero))
		answer_word(status, "catalog_error", zero_frozen(shard->zero));
	else
		answer_put(status, "catalog_error", json_null());
	answer_word(status, "socket", facts->socket_path);
	answer_word(status, "state_dir", facts->state_dir);
	answer_word(status, "engine", engine.backend);
	answer_word(status, "isa", facts->isa);
	answer_number(status, "registered_bytes", engine.registered_bytes);
	answer_number(status, "unregistered_bytes", engine.unregistered_bytes);
	answer_number(status, "io_requests", engine.request_count);
	answer_number(status, "io_errors", engine.error_count);
	answer_number(status, "io_shorts", engine.short_count);
	answer_number(status, "io_late", engine.late_count);
	answer_number(status, "io_held", engine.held_count);
	answer_number(status, "sessions", shard->polled_count);
	answer_number(status, "sessions_max", shard->limits.sessions_max);
	answer_number(status, "sessions_ending", shard->ending_count);
	answer_number(status, "holders", tier_holders_count(shard->holders));
	answer_number(status, "jobs", sess_answer_job_count(shard));
	answer_number(status, "jobs_max", find_limit(facts, "jobs"));
	answer_gpus(status, shard->arenas);
	answer_number(status, "inflight_ops", zi_pool_used_count(&shard->ops));
	answer_number(status, "requests", shard->request_count);
	answer_number(status, "wakeups", shard->wakeup_count);
	answer_number(status, "cpus", shard->cpu_count);
	answer_number(status, "spin_us", sess_poller.spin_ns(shard) / ZI_NS_PER_US);
	answer_put(status, "threads", answer_threads());
	return status;
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
		inquiry->answer = sess_answer_tiers(shard, facts);
		break;
	case SESS_ASK_JOBS:
		inquiry->answer = sess_answer_jobs(shard, uid, inquiry);
		break;
	case SESS_ASK_DRAIN:
	case SESS_ASK_UNDRAIN:
		inquiry->answer = sess_answer_drain(shard, facts, inquiry);
		break;
	case SESS_ASK_LIMITS:
		inquiry->answer = sess_answer_limits(shard, facts, uid);
		break;
	case SESS_ASK_TOPO:
		inquiry->answer = sess_answer_topo(shard, facts);
		break;
	case SESS_ASK_SNAPSHOT_LIST:
		inquiry->answer = sess_answer_snapshot_list(shard, uid, inquiry);
		break;
	case SESS_ASK_SNAPSHOT_CREATE:
	case SESS_ASK_SNAPSHOT_REMOVE:
	case SESS_ASK_EXPORT_OPEN:
	case SESS_ASK_EXPORT_READ:
	case SESS_ASK_EXPORT_WAIT:
	case SESS_ASK_BENCH:
	default:
		assert(false); /* It takes its time: ask.c. */
		break;
	}
	if (!inquiry->answer && !inquiry->result)
		inquiry->result =
			zi_text_error(&inquiry->text, err_origin(-ENOMEM), "out of memory");
}
