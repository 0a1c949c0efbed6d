/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon put together: what exists once, in the order of its making, and its threads. Floor 7.
 *
 *   control  (main thread) signals, listening socket, HELLO, ADMIN, watchdog
 *   shard-0  sessions, rings, jobs, tiers, the store engine
 *   pool-N   computing, per NUMA node
 *   admin    answers and descriptions that take long, two threads
 *   commit   the catalog's
 *
 * Made and torn down by the main thread while no other runs; in between each thread keeps to its
 * own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/base/thread.h"
#include "daemon/config.h"
#include "daemon/device/device.h"
#include "daemon/notify.h"
#include "daemon/session/session.h"
#include "daemon/tier/arena.h"
#include "daemon/tier/holder.h"
#include "daemon/tier/member.h"
#include "daemon/tier/tier.h"
#include "daemon/topo/topo.h"

struct catalog;
struct daemon_bench;
struct gpus;
struct nvme_tuning;

/* Limits shown by `zctl limits`: filled from the configuration. */
#define DAEMON_LIMITS_MAX 32u

/* Where a pool's threads bind themselves. */
struct daemon_node {
	const struct topo *topo;
	uint32_t index;
};

/* One shard. Only its thread touches it while that runs. */
struct daemon_shard {
	struct zi_loop *loop;
	struct zi_thread thread;
	struct nvme_engine *engine;
	struct zi_source engine_source;
	struct zi_timer engine_timer; /* the earliest deadline of a request */
	struct zi_log_limit late_limit;
	struct tier_holders *holders;
	struct tier_arenas *arenas;
	struct zero *zero;
	struct sess_shard *sessions;
	const struct topo *topo; /* the daemon's */
};

/* Asks drives for their health (wear.c). The thread's, but for what a post carries. */
struct daemon_wear {
	struct zi_loop *loop;
	struct zi_thread thread;
	struct zi_timer timer;
	struct zi_post post; /* to the shard, and back */
	bool is_out;
	struct tier_wear found[CONFIG_STORES_MAX]; /* the shard's while the post is out */
};

struct daemon {
	const struct config *config;
	struct notify notify;
	struct topo *topo;
	struct catalog *catalog;

	struct nvme_store *stores[CONFIG_STORES_MAX];
	struct tier nvme_tiers[CONFIG_STORES_MAX];
	uint32_t nvme_tier_count;
	struct tier cpu_tiers[TOPO_NODES_MAX];
	struct dev *devices[TOPO_NODES_MAX];
	struct daemon_node nodes[TOPO_NODES_MAX];
	uint32_t cpu_tier_count; /* of the three above */
	uint32_t pool_thread_count;
	struct dev *worker; /* of the sessions */
	struct gpus *gpus;  /* shard thread */

	struct daemon_shard shard;
	struct daemon_wear wear;
	struct daemon_bench *bench; /* under way, or NULL. Shard thread */

	struct zi_loop *loop; /* control's */
	struct sess_control *control;
	struct sess_facts facts;
	struct sess_limit_fact limit_facts[DAEMON_LIMITS_MAX];
	uint32_t limit_fact_count;
	char socket_path[CONFIG_TEXT_BYTES]; /* of the configuration, or of the passed socket */
	bool owns_socket;                    /* its path is ours to unlink */

	/* Control thread: the end. */
	int signal_fd;
	struct zi_source signal_source;
	struct zi_timer stop_timer;
	struct zi_post start_post;  /* to the shard */
	struct zi_post stop_post;   /* to the shard, and back */
	struct zi_post hurry_post;  /* to the shard */
	struct zi_post end_post;    /* to the shard, the last one */
	bool is_quiesced, is_empty; /* both: nothing is left to wait for */
	bool is_stopping;
	bool is_hurried; /* nothing is waited for any more */
	bool is_late;    /* … because stop_timeout_s has passed */
	struct zi_timer watchdog_timer;
	struct zi_post pulse; /* to the shard and back: it turns */
	bool is_pulse_out;
};

/* daemon.c. Everything up to listening; on failure @text says why in one line, and daemon_free()
 * takes down what was made. @daemon: zeroed but for `config` and `notify`. */
int daemon_make(struct daemon *daemon, struct zi_text *text);
/* run.c. SIGTERM and SIGINT from here on go to a descriptor that is looked at where the start may
 * take long, and by daemon_run(). Before daemon_make(). 0 or -errno. */
int daemon_take_signals(struct daemon *daemon);
/* Whether one of them has come; waits for it at most @wait_ms. */
bool daemon_is_told_to_stop(const struct daemon *daemon, int wait_ms);
/* run.c. Until a signal says to stop. 0: daemon_free() comes next; else see there. */
int daemon_run(struct daemon *daemon, int ready_fd);
void daemon_free(struct daemon *daemon);

/* engine.c: the engine in the shard's loop. */
int daemon_make_engine(struct daemon *daemon, struct zi_text *text);
int daemon_watch_engine(struct daemon_shard *shard);
void daemon_unwatch_engine(struct daemon_shard *shard);
/* bench.c: a store measured while jobs use it. Shard thread. */
int daemon_bench(void *arg, const struct sess_bench *asked, struct zi_text *text);
void daemon_cancel_bench(struct daemon *daemon);
struct tier_member *daemon_find_member(struct daemon *daemon, const char *name);
/* measure.c: stores that never were, before anybody uses them. Main thread. */
int daemon_measure_stores(struct daemon *daemon);
/* tuning.c: block sizes and depths. */
int tuning_load(const char *state_dir, const uint8_t uuid[16], struct nvme_tuning *ret_tuning);
int tuning_save(const char *state_dir, const uint8_t uuid[16], const struct nvme_tuning *tuning);
struct nvme_tuning tuning_resolve(const struct config_store *config,
                                  const struct nvme_tuning *measured);
/* Slower than any disk that a job should have: something disturbed the measurement. */
bool tuning_is_odd(const struct nvme_tuning *measured);
void daemon_tune_store(const struct daemon *daemon, const struct config_store *config,
                       struct nvme_store *store);
/* stores.c: stores, NVMe tiers. */
int daemon_open_stores(struct daemon *daemon, struct zi_text *text);
void daemon_close_stores(struct daemon *daemon);
/* wear.c: drives' health. */
int daemon_start_wear(struct daemon *daemon);
void daemon_stop_wear(struct daemon *daemon);
/* facts.c: what ADMIN shows. */
void daemon_fill_facts(struct daemon *daemon);
