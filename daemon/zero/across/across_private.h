/* SPDX-License-Identifier: Apache-2.0 */
/* Private to daemon/zero/across/. Floor 5, shard thread. */
#pragma once

#include <limits.h>

#include "common/base/loop.h"
#include "daemon/device/device.h"
#include "daemon/tier/segment.h"
#include "daemon/worker/supervise.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/agree/keep_private.h"
#include "daemon/zero/across/agree/search.h"
#include "daemon/zero/across/bytes/lent.h"
#include "daemon/zero/across/bytes/pull.h"
#include "daemon/zero/across/bytes/serve.h"
#include "daemon/zero/job/job.h"

enum across_phase { ACROSS_MEETING, ACROSS_JOINING, ACROSS_MAPPING, ACROSS_TALKING, ACROSS_OVER };

/* A step's groups of parameters, as they are said before it begins: TALK_READY with this `what`. */
#define AGREE_READY_GROUPS   4u
#define AGREE_GROUPS_ENTRIES 6u

/* Entries for one node that wait for its worker: all that may have to be said of rounds, of ranks
 * that leave, and of who is late; what is more, who adds it has to look for room first. */
#define ACROSS_QUEUE 208u
/* What cannot wait has room. */
#define ACROSS_RESERVE                                                                  \
	(ROUND_WINDOW + ZI_WORLD_MAX + PULL_NODE_MAX + TALK_CREDIT + 8 + KEEP_ENTRIES + \
	 2 * AGREE_GROUPS_ENTRIES)
static_assert(ACROSS_QUEUE > ACROSS_RESERVE, "and so has what can");

/* What a node is waited for; see late.c. */
struct across_late {
	uint64_t number;     /* of the round; 0: nobody is asked */
	uint64_t silent;     /* nodes: bits: they have not voted, and may say why */
	uint64_t asked;      /* so: these have yet to answer */
	uint64_t due_ns;     /* when that is enough */
	uint32_t culprit;    /* a rank, or UINT32_MAX */
	struct zi_text what; /* timed out */
	struct zi_text text; /* what the first to answer said; "": nobody yet */
};

/* Groups of a step that other nodes begin: of the last step, the lowest node's that has some. */
struct across_groups {
	int64_t step;
	uint32_t node;
	struct zi_step_group groups[ZI_PARAM_GROUPS_MAX];
};

/* Something of the job's on its way to the slab, and from there to another node; see serve.h. */
struct across_serve {
	struct across *across;
	struct zero_job *job;
	bool is_used; /* until it has gone */
	struct talk_entry entry;
	uint64_t offset_bytes;
	void *memory;
	serve_fill_fn fill;
	serve_filled_fn filled;
	/* it is filled from one of these; NULL: from what is the job's */
	struct tier_segment *source;
	struct lent_buffer *buffer;
	struct heal_buffer *healed;
	struct offers *offers;
	struct dev_task task;
};

/* A piece on its way into the plane; see written.c. */
struct across_copy {
	struct across *across;
	struct pull pull;
	void *target;
	struct dev_task task;
};
struct across_written {
	struct zero_job *job;
	uint32_t unit, node, subgroup, piece; /* the next one; without a pool pieces of the unit */
	uint32_t active_count;
	char *base;
	gather_go_fn go_on;
	/* with a pool, on the root's node: what others are to have, and of which write it is */
	struct tier_segment *source;
	uint32_t source_unit, source_number;
	struct across_copy copies[4];
};

struct across {
	struct zero_job *job; /* NULL: nobody's any more */
	struct zero *zero;
	struct tier_account *fd_account; /* its worker's descriptors; NULL: not counted */
	struct zi_list link;             /* in zero->acrosses, when its ranks have left */
	bool is_detached;                /* so; job is there as long as rounds are open */
	bool has_words;                  /* it had ended before they left: other nodes read why */
	bool is_failing;                 /* those who wait for a round are told */
	uint64_t line; /* of its commits: its group may be over, and another one there */
	bool is_left;  /* its ranks have left, and it is the job's yet: across_over() */
	struct zi_timer left_timer; /* how long */
	bool has_called;            /* the meeting, which collectives had not */
	uint64_t ranks;             /* of this node, as it has come there: bits */
	bool has_told;              /* the others hear why it comes to nothing there */
	char name[ZI_NAME_BYTES];
	enum across_phase phase, phase_failed;
	uint32_t node, node_count;
	uint8_t nodes[ZI_WORLD_MAX]; /* of each rank; the job's meeting may be another one since */
	uint64_t epoch;
	uint64_t deadline_ns; /* of meeting and joining */
	across_joined_fn joined;
	struct net_worker *worker;
	struct net_request request;
	struct zi_timer next; /* something is to be done outside of the worker's own call */
	bool is_answered;     /* request is */
	int fault; /* not 0: found while something was said; it fails by it soon, from the loop: */
	struct zi_text fault_text;
	int error; /* not 0: it ends, or has ended, for this reason: */
	struct zi_text text;
	struct rounds rounds;
	round_done_fn dones[ROUND_RING];
	uint64_t gone; /* nodes without ranks: bits */
	struct across_late late;
	struct across_groups groups;
	struct search search; /* while models differ */
	struct tier_segment *slab;
	uint64_t slot_bytes;           /* it is divided into such, */
	uint32_t slot_count;           /* so many in each half */
	bool *taken;                   /* (slot_count,) of what is pulled */
	struct across_serve *serves;   /* (slot_count,) */
	struct zi_list waiting, pulls; /* struct pull: without a slot; asked for */
	uint64_t tag;
	uint32_t task_count; /* device tasks that have it */
	/* param_write_end()s that all nodes have come to; of those the last that is there */
	uint32_t write_count, written_count;
	struct across_written written;
	struct lent_buffer lent[LENT_BUFFERS];
	struct grads *grads; /* NULL: there is no model yet; so */
	struct params *params;
	struct blobs *blobs; /* so; or state is in memory alone */
	struct heal *heal; /* NULL: nodes were not asked where to go on, or it is in memory alone */
	struct keep keep;
	bool has_doubted; /* one of them was in doubt of a step, which is settled once */
	/* (node_count,) what is to be said to each: nothing is allocated while nodes talk */
	struct across_peer {
		char host[ZI_NAME_BYTES]; /* "": not known yet */
		uint32_t put, sent;
		struct talk_entry entries[ACROSS_QUEUE];
		uint32_t pull_count; /* what it pulls, and is not begun yet: */
		struct talk_entry pulls[TALK_CREDIT];
	} * peers;
	char program[PATH_MAX];
};

/* A slot of the slab; those that are served from come behind. */
static inline void *across_slot(const struct across *across, uint32_t slot)
{
	return (char *)across->slab->region.base + slot * across->slot_bytes;
}

/* The one that an entry names, which has been checked. */
static inline struct zero_subgroup *across_subgroup(const struct zero_job *job,
                                                    const struct talk_entry *entry)
{
	return &job->subgroups[job->units[entry->unit].subgroup_first + entry->subgroup];
}

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

/* To @node, after all that was said to it before. Where there is no room (see ACROSS_QUEUE) it is
 * not said, and the end of everything: that node takes nothing. */
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
