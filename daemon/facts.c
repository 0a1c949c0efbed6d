/* SPDX-License-Identifier: Apache-2.0 */
/* What ADMIN shows of the daemon beside sessions and jobs. Floor 7. */
#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "daemon/daemon.h"
#include "daemon/limits.h"
#include "kernels/kernels.h"
#include "nvme/nvme.h"

/* Context: shard thread. */
static void engine_facts(void *arg, struct sess_engine_facts *ret_facts)
{
	const struct daemon *daemon = arg;
	struct nvme_engine_stats stats;

	*ret_facts = (struct sess_engine_facts){ .backend = "none" };
	if (!daemon->shard.engine)
		return;
	nvme_engine_stats(daemon->shard.engine, &stats);
	ret_facts->backend = nvme_engine_backend(daemon->shard.engine);
	ret_facts->registered_bytes = stats.registered_bytes;
	ret_facts->unregistered_bytes = stats.unregistered_bytes;
	ret_facts->request_count = stats.read_count + stats.write_count;
	ret_facts->error_count = stats.error_count;
	ret_facts->short_count = stats.short_count;
	ret_facts->late_count = stats.late_count;
	ret_facts->held_count = stats.held_count;
}

/* Context: control thread. */
static void sessions_changed(void *arg, uint32_t session_count)
{
	struct daemon *daemon = arg;

	if (!daemon->is_stopping)
		notify_send(&daemon->notify, "STATUS=%u of %llu sessions", session_count,
		            (unsigned long long)daemon->config->sessions);
}

static void fill_limits(struct daemon *daemon)
{
	const struct config *config = daemon->config;
	const struct sess_limit_fact facts[] = {
		{ "sessions", "limits.sessions", config->sessions },
		{ "sessions_per_uid", "limits.sessions_per_uid", config->sessions_per_uid },
		{ "connections", "limits.connections", config->connections },
		{ "connections_per_uid", "limits.connections_per_uid",
		  config->connections_per_uid },
		{ "descriptors_per_uid", "limits.descriptors_per_uid",
		  limits_uid_descriptors(config) },
		{ "answers_per_uid", "limits.answers_per_uid", config->answers_per_uid },
		{ "answer_bytes_per_uid", "limits.answer_bytes_per_uid",
		  config->answer_bytes_per_uid },
		{ "jobs", "limits.jobs", config->jobs },
		{ "jobs_per_uid", "limits.jobs_per_uid", config->jobs_per_uid },
		{ "units", "limits.units", config->units },
		{ "params", "limits.params", config->params },
		{ "ring_entries", "limits.ring_entries", config->ring_entries },
		{ "inflight_ops", "limits.inflight_ops", config->inflight_ops },
		{ "handshake_ms", "limits.handshake_ms", config->handshake_ms },
		{ "coll_timeout_s", "daemon.coll_timeout_s", config->coll_timeout_s },
		{ "spin_us", "daemon.spin_us", config->spin_us },
		{ "uid_cpu_bytes", "quota.uid_cpu", config->uid_cpu_bytes },
		{ "uid_nvme_bytes", "quota.uid_nvme", config->uid_nvme_bytes },
		{ "uid_gpu_bytes", "quota.uid_gpu", config->uid_gpu_bytes },
		{ "uid_write_bytes_per_day", "quota.uid_write_per_day",
		  config->uid_write_bytes ? config->uid_write_bytes : UINT64_MAX },
		{ "staging_bytes", "step.staging", config->staging_bytes },
	};

	static_assert(ZI_COUNT_OF(facts) <= DAEMON_LIMITS_MAX, "room for all");
	for (uint32_t i = 0; i < ZI_COUNT_OF(facts); i++)
		daemon->limit_facts[i] = facts[i];
	daemon->limit_fact_count = ZI_COUNT_OF(facts);
}

/* @daemon: everything but sessions is made; the facts live and die with it. Context: main thread.
 * */
void daemon_fill_facts(struct daemon *daemon)
{
	fill_limits(daemon);
	daemon->facts = (struct sess_facts){
		.socket_path = daemon->socket_path,
		.state_dir = daemon->config->state_dir,
		.isa = kern_isa_name(kern_isa_best()),
		.cpu_tiers = daemon->cpu_tiers,
		.cpu_tier_count = daemon->cpu_tier_count,
		.nvme_tiers = daemon->nvme_tiers,
		.nvme_tier_count = daemon->nvme_tier_count,
		.topo = daemon->topo,
		.limits = daemon->limit_facts,
		.limit_count = daemon->limit_fact_count,
		.huge_free_bytes = topo_huge_free_bytes,
		.engine = engine_facts,
		.engine_arg = daemon,
		.bench = daemon_bench,
		.bench_arg = daemon,
		.changed = sessions_changed,
		.changed_arg = daemon,
	};
}
