/* SPDX-License-Identifier: Apache-2.0 */
/* Private to supervise*.c. Floor 3. The loop's thread. */
#pragma once

#include "daemon/worker/supervise.h"

/* Of a request that lasts as long as its group or talk; nothing but an abort comes after it. */
#define SUPERVISE_NO_LIMIT PROCESS_NO_LIMIT

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
	struct process process;
	struct supervise_talk talk;
};

/* ---- supervise.c ---- */

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
