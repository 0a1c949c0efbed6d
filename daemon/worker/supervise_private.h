/* SPDX-License-Identifier: Apache-2.0 */
/* Private to supervise*.c. Floor 3. The loop's thread. */
#pragma once

#include "daemon/worker/supervise.h"

/* Of a request that lasts as long as its group or talk; nothing but an abort comes after it. */
#define SUPERVISE_NO_LIMIT UINT64_MAX

/* Entries, and pulls, that the worker has of the daemon's. */
struct supervise_talk {
	const struct net_request *request; /* NULL: there is no talk */
	bool is_short;                     /* something had no room */
	struct zi_timer writable;          /* when that is told to be over */
	uint32_t sent[SUBTREE_NODES_MAX], taken[SUBTREE_NODES_MAX];
	uint32_t pulls[SUBTREE_NODES_MAX]; /* that are not answered */
};

struct net_worker {
	struct net_worker_options options;
	struct zi_loop *loop;
	enum net_worker_state state;
	struct zi_source control, exited;
	struct zi_timer heart; /* the next PING, or the end of patience with its answer */
	bool is_pinged;
	pid_t pid;
	struct zi_list requests;
	uint32_t request_count;
	uint64_t cookie;
	struct supervise_talk talk;
};

/* ---- supervise.c ---- */

/* The process is taken away; then its requests hear of it, those that they make anew do not. */
void supervise_end(struct net_worker *worker, int error, const struct zi_text *why);
/* Return: 0; -EBUSY the socket is full, -ENOTCONN. */
int supervise_send(struct net_worker *worker, const struct net_header *header, int fd);
/* Return: as net_worker_join(). @header: of the message, filled here. */
int supervise_submit(struct net_worker *worker, struct net_request *request,
                     struct net_header *header, uint32_t type, uint32_t bytes, uint64_t timeout_ms,
                     int fd);

/* ---- supervise_talk.c ---- */

/* A packet of @bytes, at least a header, that says to be a TALK_BATCH. Return: whether it is one;
 * else nothing is done. */
bool supervise_talked(struct net_worker *worker, const struct net_talk_batch *batch,
                      uint64_t bytes);
/* The talk is over, or the worker. */
void supervise_talk_end(struct net_worker *worker);
