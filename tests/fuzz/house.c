/* SPDX-License-Identifier: Apache-2.0 */
/* See house.h. */
#include "tests/fuzz/house.h"

#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "daemon/catalog/catalog_private.h"
#include "daemon/zero/job/delete.h"
#include "daemon/zero/step/step.h"
#include "tests/fuzz/fuzz.h"

#define MIB           (1ull << 20)
#define HOUSE_WAIT_NS (20 * ZI_NS_PER_S)
/* Turns in which a commit is under way: clients act meanwhile. */
#define HOUSE_COMMIT_TURNS 3u

struct house house;

/* Requests in order of submission; the first one is under way for so many turns more. */
static struct {
	struct catalog_request *first, *last;
	struct zi_post turn;
	uint32_t turns_left;
} commits;

static void commit_turn(struct zi_post *post)
{
	struct catalog_request *request = commits.first;

	if (--commits.turns_left) {
		zi_loop_post(request->loop, post, commit_turn);
		return;
	}
	commits.first = request->next;
	request->next = NULL;
	request->started_ns = zi_clock_now_ns();
	request->result = catalog_commit(house.catalog, request);
	request->is_uncertain = house.catalog->broken != 0;
	request->finished_ns = zi_clock_now_ns();
	if (request->result && !request->text.chars[0])
		zi_text_set(&request->text, "%s", strerror(-request->result));
	if (commits.first) {
		commits.turns_left = HOUSE_COMMIT_TURNS;
		zi_loop_post(house.loop, post, commit_turn);
	}
	request->done(request); /* May free it, or submit again. */
}

/* In place of catalog_submit() (fuzz.mk): the same, without the thread. */
void __wrap_catalog_submit(struct catalog *catalog, struct catalog_request *request);
void __wrap_catalog_submit(struct catalog *catalog, struct catalog_request *request)
{
	fuzz_check(catalog == house.catalog, "a request for another catalog");
	fuzz_check(request->job && request->done && request->loop == house.loop,
	           "a request without its parts");
	request->next = NULL;
	request->result = 0;
	request->is_uncertain = false;
	request->text.chars[0] = '\0';
	if (commits.first) {
		commits.last->next = request;
	} else {
		commits.first = request;
		commits.turns_left = HOUSE_COMMIT_TURNS;
		zi_loop_post(house.loop, &commits.turn, commit_turn);
	}
	commits.last = request;
}

static void reap(struct zi_source *source, uint32_t events)
{
	(void)source;
	(void)events;
	(void)nvme_engine_reap(house.engine); /* A count. */
}

/* The engine's threads end before the folder goes. */
static void demolish(void)
{
	house.catalog = catalog_close(house.catalog);
	zi_loop_remove(&house.engine_source);
	house.engine = nvme_engine_free(house.engine);
	house.store = nvme_store_close(house.store);
	house.loop = zi_loop_free(house.loop);
}

void house_build(void)
{
	static char store_path[320];
	struct zi_text text = { "" };

	zi_log_set_level(ZI_LOG_ERROR); /* What a client may cause is warned of. */
	(void)signal(SIGPIPE, SIG_IGN); /* As the daemon's main thread does. */
	(void)snprintf(store_path, sizeof(store_path), "%s/store", fuzz_directory()); /* Fits. */
	fuzz_check(!zi_loop_new(&house.loop), "zi_loop_new");
	fuzz_check(!catalog_open(fuzz_directory(), &text, &house.catalog), text.chars);
	fuzz_check(!nvme_store_open(&(struct nvme_store_options){ .name = "fuzz",
	                                                          .path = store_path,
	                                                          .bytes = 24 * MIB },
	                            &text, &house.store),
	           text.chars);
	fuzz_check(!catalog_adopt_store(house.catalog, "fuzz", house.store->uuid,
	                                house.store->is_created, &text),
	           text.chars);
	fuzz_check(
		!nvme_engine_new(&(struct nvme_engine_options){ .backend = "threads", .depth = 4 },
	                         &text, &house.engine),
		text.chars);
	fuzz_check(!nvme_engine_register_store(house.engine, house.store), "register_store");
	fuzz_check(!zi_loop_add(house.loop, &house.engine_source, nvme_engine_fd(house.engine),
	                        EPOLLIN, reap),
	           "zi_loop_add");
	fuzz_check(!atexit(demolish), "atexit");
}

static void make_zero(void)
{
	const struct zero_options options = {
		.loop = house.loop,
		.catalog = house.catalog,
		.engine = house.engine,
		.holders = house.holders,
		.cpu_tiers = &house.cpu,
		.cpu_tier_count = 1,
		.devices = &house.device,
		.nvme_tiers = &house.nvme,
		.nvme_tier_count = 1,
		.default_staging_bytes = 8 * MIB,
		.is_staging_kept = true,
		.uid_cpu_limit_bytes = UINT64_MAX,
		.uid_nvme_limit_bytes = UINT64_MAX,
		.jobs_max = 3,
		.jobs_per_uid_max = 2,
		.units_max = HOUSE_UNITS_MAX,
		.params_max = HOUSE_PARAMS_MAX,
	};

	fuzz_check(!zero_new(&options, &house.zero), "zero_new");
}

static void make_sessions(void)
{
	static const struct sess_limit_fact limits[] = { { "jobs", "limits.jobs", 3 } };

	house.limits = (struct sess_limits){
		.sessions_max = HOUSE_SESSIONS,
		.sessions_per_uid_max = HOUSE_SESSIONS,
		.connections_max = 64,
		.connections_per_uid_max = 64,
		.answers_per_uid_max = 64,
		.answer_bytes_per_uid_max = 16 << 20,
		.units_max = HOUSE_UNITS_MAX,
		.params_max = HOUSE_PARAMS_MAX,
		.ring_entries = HOUSE_RING_ENTRIES,
		.inflight_ops_max = 8 * HOUSE_SESSIONS,
		.handshake_ns = 60 * ZI_NS_PER_S,
	};
	house.facts = (struct sess_facts){
		.socket_path = "/run/fuzz.sock",
		.state_dir = "/var/fuzz",
		.isa = "ref",
		.cpu_tiers = &house.cpu,
		.cpu_tier_count = 1,
		.nvme_tiers = &house.nvme,
		.nvme_tier_count = 1,
		.limits = limits,
		.limit_count = 1,
	};
	fuzz_check(!sess_shard_new(&(struct sess_shard_options){ .loop = house.loop,
	                                                         .zero = house.zero,
	                                                         .ring_tier = &house.cpu,
	                                                         .holders = house.holders,
	                                                         .worker = house.device,
	                                                         .limits = &house.limits,
	                                                         .cpu_count = 2,
	                                                         .pool_threads = 2 },
	                           &house.shard),
	           "sess_shard_new");
	fuzz_check(!sess_control_new(&(struct sess_control_options){ .loop = house.loop,
	                                                             .shard_loop = house.loop,
	                                                             .shard = house.shard,
	                                                             .limits = &house.limits,
	                                                             .facts = &house.facts },
	                             &house.control),
	           "sess_control_new");
}

void house_open(void)
{
	house.is_quiet = house.is_stopped = false;
	tier_init_cpu(&house.cpu, 0, HOUSE_CPU_BYTES, NULL, false);
	fuzz_check(!tier_init_nvme(&house.nvme, house.store->name, 0), "tier_init_nvme");
	fuzz_check(!tier_member_add_store(&house.nvme, house.store), "tier_member_add_store");
	fuzz_check(!dev_fake_new(1, &house.device), "dev_fake_new");
	fuzz_check(!tier_holders_new(&house.holders), "tier_holders_new");
	make_zero();
	make_sessions();
}

void house_turn(void)
{
	zi_loop_stop(house.loop);
	fuzz_check(!zi_loop_run(house.loop), "zi_loop_run");
}

static bool is_still(void)
{
	zi_list_for_each(link, &house.zero->jobs) {
		const struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (job->busy_count || job->step.phase == ZERO_STEP_UPDATING ||
		    job->step.phase == ZERO_STEP_COMMITTING)
			return false;
	}
	return zi_list_is_empty(&house.zero->ghosts);
}

static bool is_gone(void)
{
	return house.is_quiet && house.is_stopped;
}

/* The engine's threads have the CPU meanwhile. */
static void turn_until(bool (*is_enough)(void), const char *what)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(HOUSE_WAIT_NS);

	while (!is_enough()) {
		house_turn();
		(void)sched_yield(); /* Always 0 on Linux. */
		fuzz_check(zi_clock_now_ns() < deadline_ns, what);
	}
}

void house_settle(void)
{
	for (int i = 0; i < 8; i++)
		house_turn();
	turn_until(is_still, "a job's work never ends");
	house_turn();
}

static void quiesced(void *arg)
{
	*(bool *)arg = true;
	sess_shard_stop(house.shard, "zinfd is stopping");
}

static void stopped(void *arg)
{
	*(bool *)arg = true;
}

static void delete_jobs(void)
{
	zi_list_for_each_safe(link, &house.zero->jobs)
		job_delete(container_of(link, struct zero_job, jobs_link));
	turn_until(is_still, "a job is never deleted");
}

void house_close(void)
{
	zero_quiesce(house.zero, quiesced, &house.is_quiet);
	sess_control_stop(house.control, stopped, &house.is_stopped);
	turn_until(is_gone, "the sessions never end");
	delete_jobs();
	house.control = sess_control_free(house.control);
	house.shard = sess_shard_free(house.shard);
	house.zero = zero_free(house.zero);
	house.holders = tier_holders_free(house.holders);
	house.device = dev_free(house.device);
	house_turn(); /* The device's last. */
	fuzz_check(!commits.first, "a commit is still under way");
	fuzz_check(!house.cpu.used_bytes, "memory is still charged");
	fuzz_check(!house.nvme.used_bytes, "space is still charged");
	fuzz_check(nvme_space_free_bytes(house.nvme.members[0].space) ==
	                   nvme_space_total_bytes(house.nvme.members[0].space),
	           "extents are still taken");
	tier_deinit(&house.cpu);
	tier_deinit(&house.nvme);
}
