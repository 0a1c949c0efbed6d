/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shard's engine in the shard's loop: its descriptor, the one timer behind all deadlines, and
 * the word about a stall. Floor 7; made by the main thread, turned by the shard's.
 */
#include <sys/epoll.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/daemon.h"
#include "nvme/nvme.h"
#include "nvme/tune.h"

/* Where the configuration leaves a depth to measurements: the deepest they try. */
#define ENGINE_DEPTH_AUTO 64u
/* One measurement may run beside. */
#define ENGINE_DEPTH_SPARE 64u
#define ENGINE_DEPTH_MAX   4096u
/* Stalls come in swarms: so many are told one by one, then one in ten seconds. */
#define ENGINE_LATE_BURST 4u

static void engine_ready(struct zi_source *source, uint32_t epoll_events)
{
	struct daemon_shard *shard = container_of(source, struct daemon_shard, engine_source);

	(void)epoll_events;                    /* It has one event: something is done. */
	(void)nvme_engine_reap(shard->engine); /* A count. */
}

static void engine_due(struct zi_timer *timer)
{
	struct daemon_shard *shard = container_of(timer, struct daemon_shard, engine_timer);

	(void)nvme_engine_reap(shard->engine); /* A count. Asks for the next alarm. */
}

static void engine_alarm(void *arg, uint64_t deadline_ns)
{
	struct daemon_shard *shard = arg;

	zi_loop_arm(shard->loop, &shard->engine_timer, deadline_ns, engine_due);
}

static void engine_late(void *arg, const struct nvme_io *io)
{
	struct daemon_shard *shard = arg;

	if (!zi_log_limit_pass(&shard->late_limit, ENGINE_LATE_BURST, 10 * ZI_NS_PER_S))
		return;
	log_error("Store '%s' at %s: %s of %llu bytes at offset %llu has not ended within %.3g s "
	          "(deadline_s); %s. Look at the device's health and at what else uses it",
	          io->store->name, io->store->path, io->direction == NVME_READ ? "read" : "write",
	          (unsigned long long)io->bytes, (unsigned long long)io->offset_bytes,
	          (double)(zi_clock_now_ns() - io->submitted_ns) / 1e9,
	          io->inflight_count ? "the device still holds a part of it" : "it never went out");
}

static void engine_unpolled(void *arg, const struct nvme_store *store)
{
	(void)arg;
	log_warning("Store '%s' at %s takes no polled requests any more; going on with interrupts",
	            store->name, store->path);
}

/* Blocks of all stores together. */
static uint32_t engine_depth(const struct config *config)
{
	uint64_t depth = ENGINE_DEPTH_SPARE;

	for (uint32_t i = 0; i < config->store_count; i++) {
		const struct config_store *store = &config->stores[i];

		depth += store->read_depth ? store->read_depth : ENGINE_DEPTH_AUTO;
		depth += store->write_depth ? store->write_depth : ENGINE_DEPTH_AUTO;
	}
	return (uint32_t)ZI_MIN(depth, ENGINE_DEPTH_MAX);
}

/* @daemon: with its configuration. Return: 0; errors of nvme_engine_new(), with @text. */
int daemon_make_engine(struct daemon *daemon, struct zi_text *text)
{
	struct nvme_engine_options options = {
		.backend = daemon->config->stores[0].backend,
		.depth = engine_depth(daemon->config),
		.alarm = engine_alarm,
		.late = engine_late,
		.unpolled = engine_unpolled,
		.arg = &daemon->shard,
	};

	for (uint32_t i = 0; i < daemon->config->store_count; i++)
		options.has_poll |= daemon->config->stores[i].iopoll != 0;
	return err_trace(nvme_engine_new(&options, text, &daemon->shard.engine));
}

/* No engine: nothing to watch. Return: 0; an errno of the loop. */
int daemon_watch_engine(struct daemon_shard *shard)
{
	if (!shard->engine)
		return 0;
	return err_trace(zi_loop_add(shard->loop, &shard->engine_source,
	                             nvme_engine_fd(shard->engine), EPOLLIN, engine_ready));
}

/* Nothing is in flight. */
void daemon_unwatch_engine(struct daemon_shard *shard)
{
	zi_loop_disarm(&shard->engine_timer);
	zi_loop_remove(&shard->engine_source);
}
