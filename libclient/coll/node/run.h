/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine remembers of calls that are under way; see node.h. Floor 2, private to this
 * folder but for struct zi_node_call.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/board.h"

/* A condition: what was polled waits for what it has put into the wants. */
#define ZI_NODE_E_WAITS 1

/* As the caller gives it. Pointers that an operation does not have on this member are NULL. */
struct zi_node_call {
	enum zi_coll_operation operation;
	enum zi_dtype dtype;
	enum zi_reduce_op reduce_op; /* of those that join; else 0 */
	uint32_t root;               /* member; else 0 */
	uint64_t element_count; /* all_reduce, reduce, broadcast: of the buffer; else of a block */
	/* In place: the same pointer, or the own block of the longer buffer. Broadcast: the root's
	 * buffer is its source, the others' is their target. */
	const void *source;
	void *target;
	/* all_to_allv: (member_count,) elements to and from each, packed in member order. */
	const uint64_t *source_counts, *target_counts;
	/* 0: timeout_ns from when it first has to wait, which spares a look at the clock. */
	uint64_t deadline_ns, timeout_ns;
	/* The caller has found a fault that the engine cannot see: this member refuses the call,
	 * so that its peers know as well. -EINVAL, -EOVERFLOW or -EACCES, and the reason; or 0. */
	int refused;
	const char *reason;
	/* While it is not 0, a caller that waits returns early, with -EINTR. NULL: never. */
	const struct zi_line *interrupt;
};

enum zi_node_path {
	ZI_NODE_INLINE = 1, /* the data are in the posts */
	ZI_NODE_SHARED = 2, /* joins, broadcast: everyone's share of what lies in arenas */
	ZI_NODE_PUSH = 3,   /* moves: who has the data writes them to where they belong */
	ZI_NODE_PULL = 4,   /* moves: who needs the data takes them from where they lie */
	ZI_NODE_PIECES = 5, /* through the staging parts */
	ZI_NODE_NEAR = 6,   /* all_gather, broadcast: for the targets on the own NUMA node */
	ZI_NODE_LEVELS = 7, /* joins: on each NUMA node first, then over them (levels.h) */
	ZI_NODE_CMA = 8,    /* moves: who needs the data reads them in their process (cma.h) */
};

enum zi_node_phase {
	ZI_NODE_CATCH_UP = 0, /* until enough of the calls before has been looked at */
	ZI_NODE_MEETING = 1,  /* posted; until all have */
	ZI_NODE_STEPPING = 2, /* in pieces; until all have made the step before */
	ZI_NODE_LEAVING = 3,  /* until all have left the data */
	ZI_NODE_OVER = 4,
};

/* A collective under way. Bitmaps are of members. */
struct zi_node_run {
	struct zi_node_call call;
	enum zi_node_phase phase;
	enum zi_node_path path;
	uint32_t member; /* looked at next in this phase */
	/* Whose post it waits for. Nobody's: it is over as soon as it is posted. */
	enum zi_coll_needs needs;
	bool is_too_far; /* until it is half as far ahead as it may be */
	uint32_t left;   /* as the group's, by the posts looked at so far */
	/* Not 0: posted as a refusal, and why, which is written only then. Until it is posted what
	 * is wrong with this call itself. */
	int refused;
	uint32_t culprit;
	struct zi_text reason;
	/* Of a call in pieces: those below `step` are made; the post is step 0. */
	uint32_t step, step_count;
	uint32_t piece_count;
	uint64_t piece_elements; /* of a block, all pieces but the last */
	uint32_t piece_blocks;   /* that are staged together */
	bool is_restaged;        /* the first piece does not come with the post, but at step 0 */
	uint64_t source_bytes, target_bytes;
	bool is_in_place;  /* as far as this member has both */
	bool is_streaming; /* what it writes elsewhere passes by the cache */
	uint64_t longest;  /* all_to_allv: the longest block of all */
	bool is_uneven;    /* all_to_allv: somebody's counts are not what this member's say */
	uint64_t with_source, with_target;         /* who has one */
	uint64_t outside_sources, outside_targets; /* of those: who has it outside the arenas */
	/* Of the outside_sources: whose first piece did not come with the post, but where it lies
	 * in its member's process. */
	uint64_t unstaged, addresses[ZI_WORLD_MAX];
	/* Where everybody's data lie; for others NULL where there is none, or it is outside. */
	const char *sources[ZI_WORLD_MAX];
	char *targets[ZI_WORLD_MAX];
	char *stagings[ZI_WORLD_MAX];
	/* all_to_allv: where in a member's source the block for this member begins, and where in
	 * its target that from this member does; elements. */
	uint64_t source_offsets[ZI_WORLD_MAX], target_offsets[ZI_WORLD_MAX];
};

/* What was wrong with a call that this member was ahead of, the first of several: whichever call it
 * posts next says so. */
struct zi_node_due {
	int error; /* 0: nothing */
	uint32_t culprit;
	struct zi_text reason; /* written only then */
};

/* Numbers of messages, and counts of pieces, to and from each member. */
struct zi_node_pairs {
	uint32_t sent[ZI_WORLD_MAX], filled[ZI_WORLD_MAX];
	uint32_t taken[ZI_WORLD_MAX];
};

enum zi_node_message_phase {
	ZI_NODE_MESSAGE_NEW = 0,
	ZI_NODE_MESSAGE_POSTED = 1, /* a send: until it is taken. A receive: until there is one */
	ZI_NODE_MESSAGE_MOVING = 2, /* a receive in pieces */
	ZI_NODE_MESSAGE_OVER = 3,
};

/* A send or receive under way. */
struct zi_node_message {
	enum zi_node_message_phase phase;
	uint32_t sequence;
	uint32_t piece_bytes, piece_count; /* 0: from where the source lies */
	uint32_t piece;                    /* moved next */
	uint32_t base;                     /* count of pieces before it */
	const char *source;                /* of a receive: the sender's, or its staging part */
	int result;
	int error;        /* by which this member refuses it, or 0; … */
	uint32_t refusal; /* … and why: zi_node_post_reason() */
};

/* Whose turn it is while several calls of a group are under way; renewed at each pass over them. */
struct zi_node_turn {
	uint64_t pass;
	bool is_busy;          /* with a collective */
	uint64_t sends, takes; /* bitmaps of peers */
};
