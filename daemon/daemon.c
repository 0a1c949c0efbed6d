/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making the daemon and taking it down. Floor 7, main thread. Nothing is made twice, so what is
 * wrong is found in the order: other daemon, limits, catalog, stores, memory, recovery, socket.
 * daemon_free() undoes it in reverse and accepts whatever was made.
 */
#include "daemon/daemon.h"
#include "daemon/gpus.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/wire/control.h"
#include "common/wire/starting.h"
#include "daemon/catalog/catalog.h"
#include "daemon/limits.h"
#include "daemon/zero/zero.h"

/* Two, so that one client's long answer does not keep all others waiting. */
#define WORKER_THREADS 2u
/* Behind jobs and the shard; ahead of what a site runs as batch (19). */
#define WORKER_NICE 10

/* A living daemon at our socket is found before anything of its is touched. Listening comes last,
 * so this is only the early word; zi_control_listen() decides. */
static int check_socket(const struct config *config, struct zi_text *text)
{
	int fd = -1;
	int r = zi_control_connect(config->socket, &fd);

	(void)zi_close(fd); /* Always -1. */
	if (r && r != -EAGAIN)
		return 0; /* Nobody there, or listening will say better what is wrong. */
	return zi_text_error(text, err_origin(-EADDRINUSE),
	                     "another daemon listens at '%s': stop it, or choose another path",
	                     config->socket);
}

static int make_state_dir(const struct config *config, struct zi_text *text)
{
	struct stat status;
	int r;

	if (mkdir(config->state_dir, 0700) && errno != EEXIST) {
		r = -errno;
		return zi_text_error(text, err_origin(r), "making daemon.state_dir '%s': %s",
		                     config->state_dir, strerror(-r));
	}
	if (stat(config->state_dir, &status) || !S_ISDIR(status.st_mode))
		return zi_text_error(text, err_origin(-ENOTDIR),
		                     "daemon.state_dir '%s' is not a folder", config->state_dir);
	if (access(config->state_dir, R_OK | W_OK | X_OK)) {
		r = -errno;
		return zi_text_error(text, err_origin(r), "daemon.state_dir '%s': %s",
		                     config->state_dir, strerror(-r));
	}
	return 0;
}

static int bind_to_node(void *arg)
{
	const struct daemon_node *node = arg;

	return err_trace(topo_bind_thread(node->topo, node->index));
}

/* What one client makes the daemon do goes behind what all jobs wait for. */
static int bind_worker(void *arg)
{
	(void)arg;
	(void)pthread_setname_np(pthread_self(), "admin"); /* Only a name. */
	/* Refused: it is as urgent as the others, no reason to go without. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), WORKER_NICE);
	return 0;
}

/* A CPU tier and a pool of threads for each NUMA node. */
static int make_nodes(struct daemon *daemon, uint64_t capacity_bytes, struct zi_text *text)
{
	const struct config *config = daemon->config;
	struct topo *topo = daemon->topo;
	uint64_t share_bytes =
		capacity_bytes / topo->node_count & ~(uint64_t)(ZI_STORE_ALIGN_BYTES - 1);
	uint32_t limit_count = (uint32_t)config->pool_threads;
	uint32_t cpu_count = zi_cpu_allowed_count();

	/* A control group may grant fewer CPUs than the affinity shows. */
	if (!limit_count)
		limit_count = ZI_MAX(1u, cpu_count / topo->node_count);
	for (uint32_t i = 0; i < topo->node_count; i++) {
		uint32_t thread_count = topo_pool_threads(topo, i, limit_count);
		int r;

		daemon->nodes[i] = (struct daemon_node){ .topo = topo, .index = i };
		r = dev_host_new(bind_to_node, &daemon->nodes[i], thread_count,
		                 &daemon->devices[i]);
		if (r)
			return zi_text_error(text, err_trace(r), "starting %u pool threads: %s",
			                     thread_count, strerror(-r));
		tier_init_cpu(&daemon->cpu_tiers[i], i, share_bytes, topo,
		              config->huge_pages != CONFIG_HUGE_NEVER);
		tier_holders_watch(daemon->shard.holders, &daemon->cpu_tiers[i]);
		daemon->cpu_tier_count++;
		daemon->pool_thread_count += thread_count;
	}
	return 0;
}

/* Says at start which jobs nobody may attach to, and why. */
static void tell_refused(void *arg, const struct zero_job_report *report)
{
	(void)arg;
	if (report->refusal)
		log_warning("%s", report->refusal);
}

static void job_lost(void *arg, const char *job, int64_t step)
{
	(void)arg;
	log_warning("Job '%s' lost its state of step %lld, which was only in memory of the "
	            "previous daemon: its next start begins at step 0",
	            job, (long long)step);
}

static void job_stuck(void *arg, const struct zi_text *text)
{
	(void)arg;
	log_warning("%s", text->chars);
}

static void catalog_broke(void *arg, const struct zi_text *text)
{
	(void)arg;
	log_error("%s", text->chars);
}

static void job_fell_back(void *arg, const struct zi_text *text)
{
	(void)arg;
	log_error("%s", text->chars);
}

static void zero_told(void *arg, const struct zi_text *text)
{
	(void)arg;
	log_warning("%s", text->chars);
}

static int make_zero(struct daemon *daemon, struct zi_text *text)
{
	const struct config *config = daemon->config;
	struct daemon_shard *shard = &daemon->shard;
	const struct zero_options options = {
		.loop = shard->loop,
		.catalog = daemon->catalog,
		.engine = shard->engine,
		.topo = daemon->topo,
		.holders = shard->holders,
		.cpu_tiers = daemon->cpu_tiers,
		.cpu_tier_count = daemon->cpu_tier_count,
		.devices = daemon->devices,
		.nvme_tiers = daemon->nvme_tiers,
		.nvme_tier_count = daemon->nvme_tier_count,
		.default_staging_bytes = config->staging_bytes,
		.is_staging_kept = config->is_staging_kept,
		.uid_cpu_limit_bytes = config->uid_cpu_bytes,
		.uid_nvme_limit_bytes = config->uid_nvme_bytes,
		.uid_gpu_limit_bytes = config->uid_gpu_bytes,
		.uid_fds_max = limits_uid_descriptors(config),
		.uid_write_budget = { .day_bytes = config->uid_write_bytes,
		                      .action = (enum tier_budget_action)config->uid_write_action },
		.told = zero_told,
		.jobs_max = (uint32_t)config->jobs,
		.jobs_per_uid_max = (uint32_t)config->jobs_per_uid,
		.units_max = (uint32_t)config->units,
		.params_max = (uint32_t)config->params,
		.frozen = catalog_broke,
		.fell_back = job_fell_back,
		.stuck = job_stuck,
	};
	int r;

	r = zero_new(&options, &shard->zero);
	if (!r)
		r = zero_recover(shard->zero, job_lost, NULL, text);
	if (!r)
		(void)zero_report(shard->zero, NULL, tell_refused, NULL); /* True: no name asked. */
	if (!r)
		r = catalog_start(daemon->catalog);
	return err_trace(r);
}

static int make_sessions(struct daemon *daemon)
{
	const struct config *config = daemon->config;
	struct daemon_shard *shard = &daemon->shard;
	const struct sess_limits limits = {
		.sessions_max = (uint32_t)config->sessions,
		.sessions_per_uid_max = (uint32_t)config->sessions_per_uid,
		.connections_max = (uint32_t)config->connections,
		.connections_per_uid_max = (uint32_t)config->connections_per_uid,
		.answers_per_uid_max = (uint32_t)config->answers_per_uid,
		.answer_bytes_per_uid_max = config->answer_bytes_per_uid,
		.units_max = (uint32_t)config->units,
		.params_max = (uint32_t)config->params,
		.ring_entries = (uint32_t)config->ring_entries,
		.inflight_ops_max = (uint32_t)config->inflight_ops,
		.handshake_ns = config->handshake_ms * ZI_NS_PER_MS,
		.spin_ns = config->spin_us * ZI_NS_PER_US,
		.coll_timeout_ms = (uint32_t)(config->coll_timeout_s * 1000),
	};
	const struct sess_shard_options shard_options = {
		.loop = shard->loop,
		.zero = shard->zero,
		.ring_tier = &daemon->cpu_tiers[0],
		.holders = shard->holders,
		.arenas = shard->arenas,
		.worker = daemon->worker,
		.limits = &limits,
		.cpu_count = zi_cpu_allowed_count(),
		.pool_threads = daemon->pool_thread_count,
	};
	int r;

	daemon_fill_facts(daemon);
	r = sess_shard_new(&shard_options, &shard->sessions);
	if (!r)
		r = sess_control_new(&(struct sess_control_options){ .loop = daemon->loop,
		                                                     .shard_loop = shard->loop,
		                                                     .shard = shard->sessions,
		                                                     .limits = &limits,
		                                                     .facts = &daemon->facts },
		                     &daemon->control);
	if (!r)
		r = daemon_watch_engine(shard);
	if (!r)
		r = daemon_start_wear(daemon);
	return err_trace(r);
}

/* What clients call the socket that was passed to us. */
static void name_passed_socket(struct daemon *daemon, int listen_fd)
{
	struct sockaddr_un address = { 0 };
	socklen_t bytes = sizeof(address) - 1; /* The last byte stays a NUL. */

	if (getsockname(listen_fd, (struct sockaddr *)&address, &bytes))
		return;
	(void)snprintf(daemon->socket_path, sizeof(daemon->socket_path), "%s%s",
	               address.sun_path[0] ? "" : "@",
	               address.sun_path + !address.sun_path[0]); /* Fits. */
}

static int make_listener(struct daemon *daemon, int listen_fd, struct zi_text *text)
{
	const struct config *config = daemon->config;
	int r;

	(void)zi_copy_name(daemon->socket_path, sizeof(daemon->socket_path), config->socket);
	if (listen_fd >= 0) {
		name_passed_socket(daemon, listen_fd);
	} else {
		r = zi_control_listen(config->socket, (uint32_t)config->socket_mode, text,
		                      &listen_fd);
		if (r)
			return err_trace(r);
		daemon->owns_socket = true;
	}
	return err_trace(sess_control_listen(daemon->control, listen_fd));
}

static int make_gpus(struct daemon *daemon)
{
	const struct gpus_options options = { .loop = daemon->shard.loop,
		                              .config = daemon->config,
		                              .topo = daemon->topo,
		                              .arenas = daemon->shard.arenas };

	return err_trace(gpus_new(&options, &daemon->gpus));
}

static int make_parts(struct daemon *daemon, struct zi_text *text)
{
	struct zi_text warning;
	uint64_t capacity_bytes;
	int r;

	if (limits_descriptors_are_few(daemon->config, &warning))
		log_warning("%s", warning.chars);
	r = limits_check(daemon->config, text, &capacity_bytes);
	if (!r)
		r = make_state_dir(daemon->config, text);
	if (!r)
		r = topo_new(daemon->config->topology[0] ? daemon->config->topology : NULL, text,
		             &daemon->topo);
	daemon->shard.topo = daemon->topo;
	if (!r)
		r = zi_loop_new(&daemon->loop);
	if (!r)
		r = zi_loop_new(&daemon->shard.loop);
	if (!r)
		r = tier_holders_new(&daemon->shard.holders);
	if (!r)
		r = tier_arenas_new(daemon->shard.loop, &daemon->shard.arenas);
	if (!r)
		r = catalog_open(daemon->config->state_dir, text, &daemon->catalog);
	if (!r)
		r = limits_lock(daemon->config, text);
	if (!r)
		r = daemon_open_stores(daemon, text);
	if (!r)
		r = make_nodes(daemon, capacity_bytes, text);
	if (!r)
		r = dev_host_new(bind_worker, NULL, WORKER_THREADS, &daemon->worker);
	if (!r)
		r = make_zero(daemon, text);
	if (!r)
		r = daemon_measure_stores(daemon);
	if (!r)
		r = make_gpus(daemon);
	if (!r)
		r = make_sessions(daemon);
	return err_trace(r);
}

/**
 * daemon_make() - everything up to listening
 * @daemon: zeroed but for `config` (outlives it), `notify` and what daemon_take_signals() made
 * @text: one line of what is wrong
 *
 * Return: 0, or -errno (-ECANCELED: a signal said to stop); daemon_free() either way in the end.
 */
int daemon_make(struct daemon *daemon, struct zi_text *text)
{
	int listen_fd = -1, starting_fd = -1;
	int r;

	text->chars[0] = '\0';
	r = notify_take_socket(text, &listen_fd);
	if (!r && listen_fd < 0)
		r = check_socket(daemon->config, text);
	if (!r)
		starting_fd = zi_starting_begin(daemon->config->socket);
	if (!r)
		r = make_parts(daemon, text);
	if (!r)
		r = make_listener(daemon, zi_steal_fd(listen_fd), text);
	(void)zi_starting_end(daemon->config->socket, starting_fd); /* Always -1. */
	(void)zi_close(listen_fd);                                  /* Always -1. */
	if (r && !text->chars[0])
		zi_text_set(text, "%s", strerror(-r));
	return err_trace(r);
}

/* Runs what was posted to a loop that no thread turns any more. */
static void drain(struct zi_loop *loop)
{
	zi_loop_stop(loop);
	(void)zi_loop_run(loop); /* Nobody is left to whom an error would matter. */
}

/**
 * daemon_free() - take down what was made
 *
 * Context: main thread, when the others have been joined; steps have come to their end
 * (zero_quiesce()), so nothing is in flight.
 */
void daemon_free(struct daemon *daemon)
{
	struct daemon_shard *shard = &daemon->shard;

	if (daemon->owns_socket)
		(void)unlink(daemon->config->socket); /* Gone already: as wanted. */
	for (uint32_t i = 0; i < daemon->cpu_tier_count; i++)
		daemon->devices[i] = dev_free(daemon->devices[i]);
	daemon->worker = dev_free(daemon->worker);
	daemon->catalog = catalog_close(daemon->catalog);
	daemon_stop_wear(daemon);
	/* Nothing is in flight; and the engine belongs to the thread that is gone. Workers that it
	 * started ended with it: that is no news for the log. */
	daemon_unwatch_engine(shard);
	daemon->gpus = gpus_free(daemon->gpus);
	if (shard->loop)
		drain(shard->loop);
	if (daemon->loop)
		drain(daemon->loop);
	if (daemon->wear.loop)
		drain(daemon->wear.loop);
	daemon->control = sess_control_free(daemon->control);
	shard->sessions = sess_shard_free(shard->sessions);
	shard->arenas = tier_arenas_free(shard->arenas);
	shard->zero = zero_free(shard->zero);
	shard->holders = tier_holders_free(shard->holders);
	for (uint32_t i = 0; i < daemon->cpu_tier_count; i++)
		tier_deinit(&daemon->cpu_tiers[i]);
	daemon_close_stores(daemon);
	shard->loop = zi_loop_free(shard->loop);
	daemon->loop = zi_loop_free(daemon->loop);
	daemon->wear.loop = zi_loop_free(daemon->wear.loop);
	daemon->topo = topo_free(daemon->topo);
}
