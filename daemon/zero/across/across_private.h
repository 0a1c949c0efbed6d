/* SPDX-License-Identifier: Apache-2.0 */
/* Private to daemon/zero/across/. Floor 5, shard thread. */
#pragma once

#include <limits.h>

#include "common/base/loop.h"
#include "daemon/worker/supervise.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/search.h"

enum across_phase { ACROSS_MEETING, ACROSS_JOINING, ACROSS_TALKING, ACROSS_OVER };

/* Entries for one node that wait for its worker: all that may have to be said of rounds, of ranks
 * that leave, and of who is late; what is more, who adds it has to look for room first. */
#define ACROSS_QUEUE 160u
static_assert(ACROSS_QUEUE > ROUND_WINDOW + ZI_WORLD_MAX + 8, "what cannot wait has room");

/* What a node is waited for; see late.c. */
struct across_late {
	uint64_t number;     /* of the round; 0: nobody is asked */
	uint64_t asked;      /* nodes: bits: they have yet to answer */
	uint64_t due_ns;     /* when that is enough */
	uint32_t culprit;    /* a rank, or UINT32_MAX */
	struct zi_text what; /* timed out */
	struct zi_text text; /* what the first to answer said; "": nobody yet */
};

struct across {
	struct zero_job *job; /* NULL: nobody's any more */
	struct zero *zero;
	struct zi_list link; /* in zero->acrosses, when its ranks have left */
	bool is_detached;    /* so; job is there as long as rounds are open */
	bool has_called;     /* the meeting, which collectives had not */
	char name[ZI_NAME_BYTES];
	enum across_phase phase;
	uint32_t node, node_count;
	uint64_t epoch;
	uint64_t deadline_ns; /* of meeting and joining */
	across_joined_fn joined;
	struct net_worker *worker;
	struct net_request request;
	struct zi_timer next; /* something is to be done outside of the worker's own call */
	bool is_answered;     /* request is */
	bool differs;         /* a vote of this node's: */
	struct zi_text differs_text;
	int error; /* not 0: it ends, or has ended, for this reason: */
	struct zi_text text;
	struct rounds rounds;
	round_done_fn dones[ROUND_RING];
	uint64_t gone; /* nodes without ranks: bits */
	struct across_late late;
	struct search search; /* while models differ */
	/* (node_count,) what is to be said to each: nothing is allocated while nodes talk */
	struct across_peer {
		char host[ZI_NAME_BYTES]; /* "": not known yet */
		uint32_t put, sent;
		struct talk_entry entries[ACROSS_QUEUE];
	} * peers;
	char program[PATH_MAX];
};

/* ---- across.c, across_end.c ---- */

/* What has changed is looked at soon, from the loop. */
void across_go_on(struct across *across);
/* @text, and on which node and host this is. */
struct zi_text across_where(const struct across *across, const struct zi_text *text);
/* It cannot go on: the group breaks, here and on all nodes. From the loop. */
void across_fail(struct across *across, int error, uint32_t culprit, const struct zi_text *text);

/* With its worker. No round that this node has cast may be open. Return: NULL. */
struct across *across_destroy(struct across *across);
/* Why it ends is known; whoever waits for it hears that now. From the loop. */
void across_end(struct across *across);
/* Of one that is nobody's any more: it goes, or stays. Return: false, it is somebody's. */
bool across_end_detached(struct across *across);
/* Nodes have not met, or not to any end: the next time they do so anew. */
void across_unmeet(const struct across *across);

/* ---- say.c ---- */

/* To @node, after all that was said to it before. There is room: see ACROSS_QUEUE. */
void across_say(struct across *across, uint32_t node, const struct talk_entry *entry);
void across_say_all(struct across *across, const struct talk_entry *entry);
uint32_t across_room(const struct across *across, uint32_t node);
/* The two of net_worker_options. */
void across_talked(void *arg, const struct talk_entry *entries, uint32_t count);
void across_writable(void *arg);

/* ---- late.c ---- */

/* Another node asks what keeps this one; answers what was asked. */
void late_asked(struct across *across, const struct talk_entry *entry);
int late_answered(struct across *across, const struct talk_entry *entry, struct zi_text *text);
