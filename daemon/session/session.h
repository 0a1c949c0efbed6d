/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients: from accept() to the last byte of their memory. Floor 6.
 *
 *   sess_control  the control thread's half: listening socket, credentials, HELLO, ADMIN, limits
 *   sess_shard    a shard's half: rings, requests on the socket, the reaper
 *   sess          one client; owned by one half at a time (sess.h), handed over by zi_loop_post()
 *
 * What an administrator asks that only the floor above knows comes through struct sess_facts.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/loop.h"
#include "common/base/text.h"

struct dev;
struct sess_control;
struct sess_shard;
struct tier;
struct tier_arenas;
struct tier_holders;
struct topo;
struct zero;

struct sess_limits {
	uint32_t sessions_max;         /* attached ranks */
	uint32_t sessions_per_uid_max; /* of one uid */
	uint32_t connections_max;      /* that are not attached; privileged uids have a few more */
	uint32_t connections_per_uid_max;
	uint32_t answers_per_uid_max; /* to questions, that the client has not read yet */
	uint64_t answer_bytes_per_uid_max;
	uint32_t units_max, params_max; /* of a description that is loaded */
	uint32_t ring_entries;          /* power of two up to ZI_RING_ENTRIES_MAX */
	uint32_t inflight_ops_max; /* pending requests of all sessions, at least sessions_max */
	uint64_t handshake_ns;     /* how long a connection may say nothing before it attached */
	uint64_t spin_ns;          /* 0: never spin */
	uint32_t coll_timeout_ms;  /* of collectives whose job, group and call give none */
};

/* ---- shard ---- */

struct sess_shard_options {
	struct zi_loop *loop; /* the shard's */
	struct zero *zero;
	struct tier *ring_tier; /* pays for rings */
	struct tier_holders *holders;
	struct tier_arenas *arenas; /* NULL: there is no GPU */
	struct dev *worker;         /* what takes long for one client: not where jobs compute */
	const struct sess_limits *limits; /* copied */
	uint32_t cpu_count;               /* that this process may use */
	uint32_t pool_threads;            /* that compute beside the shard */
};

int sess_shard_new(const struct sess_shard_options *options, struct sess_shard **ret_shard);
/* Asserts that no session is left. NULL. Any thread, once nobody runs the loop. */
struct sess_shard *sess_shard_free(struct sess_shard *shard);
ZI_DEFINE_CLEANUP(struct sess_shard *, sess_shard_free)

/* Shard thread: every session is told -ESTALE with @reason and ended; no other is taken in. */
void sess_shard_stop(struct sess_shard *shard, const char *reason);

/* ---- control ---- */

struct sess_engine_facts {
	const char *backend; /* "io_uring", "threads", "none" */
	uint64_t registered_bytes, unregistered_bytes;
	uint64_t request_count, error_count, short_count;
	uint64_t late_count, held_count; /* past their deadline: ever; and not back yet */
};

struct sess_limit_fact {
	const char *name; /* "jobs" */
	const char *key;  /* "limits.jobs": where it is set */
	uint64_t value;
};

struct nvme_tune_report;
struct nvme_tuning;

/* What a measurement came to; valid during the call. */
struct sess_bench_result {
	const char *store;
	const struct nvme_tune_report *report;
	const struct nvme_tuning
		*used;   /* from now on; configured figures go before measured ones */
	int save_result; /* 0: kept for the next start, else why not */
};

/* `bench nvme STORE` */
struct sess_bench {
	const char *store; /* valid during the call */
	uint64_t duration_ns;
	uid_t uid; /* pays for what it needs */
	void (*done)(void *arg, const struct sess_bench_result *result);
	void *arg;
};

/* What the daemon knows beside sessions and jobs; constant but for `engine`. Owned by the daemon.
 * */
struct sess_facts {
	const char *socket_path, *state_dir, *isa;
	struct tier *cpu_tiers, *nvme_tiers; /* read on the shard thread */
	uint32_t cpu_tier_count, nvme_tier_count;
	const struct topo *topo; /* NULL: not known */
	const struct sess_limit_fact *limits;
	uint32_t limit_count;
	uint64_t (*huge_free_bytes)(void);
	/* Shard thread. */
	void (*engine)(void *arg, struct sess_engine_facts *ret_facts);
	void *engine_arg;
	/* Shard thread: 0, and bench->done runs there later; else -errno with @text. NULL: no
	 * store can be measured. */
	int (*bench)(void *arg, const struct sess_bench *bench, struct zi_text *text);
	void *bench_arg;
	/* Control thread: the number of connections changed; may be NULL. */
	void (*changed)(void *arg, uint32_t session_count);
	void *changed_arg;
};

struct sess_control_options {
	struct zi_loop *loop;       /* control's */
	struct zi_loop *shard_loop; /* of @shard */
	struct sess_shard *shard;
	const struct sess_limits *limits; /* copied */
	const struct sess_facts *facts;
};

int sess_control_new(const struct sess_control_options *options, struct sess_control **ret_control);
/* Asserts that every session has come back. NULL. */
struct sess_control *sess_control_free(struct sess_control *control);
ZI_DEFINE_CLEANUP(struct sess_control *, sess_control_free)

/* Accepts on @listen_fd (non-blocking, seqpacket), which becomes the control's. */
int sess_control_listen(struct sess_control *control, int listen_fd);
/* Takes in a connected socket as if it had been accepted; @fd is the control's, also on failure. */
int sess_control_adopt(struct sess_control *control, int fd);
/* Stops accepting and drops every connection that is not attached; @done runs once, when the
 * shard's sessions have come back as well (after sess_shard_stop()). */
void sess_control_stop(struct sess_control *control, void (*done)(void *arg), void *arg);
/* Attached sessions. */
uint32_t sess_control_session_count(const struct sess_control *control);
