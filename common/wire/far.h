/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of a group whose members lie on several nodes: how they are cut into pieces, and where a
 * piece lies in the slab, memory that the members of one node share with the worker that speaks
 * with the other nodes. Floor 1. Pure arithmetic, alike in ranks and worker.
 *
 *   slab   | the worker's own | slot 0 | slot 1 | … | mail (mail.h) |
 *   slot   | source: what the node's members have | partials | result: what the node gets |
 *
 * The worker is one more member of the node's board, behind the node's own. A member stages piece
 * k and says so (`step`); when all have, the worker exchanges it with the other nodes and says so;
 * then each member takes what it is to have. A member stages up to AHEAD pieces before it takes
 * the first of them; the first ones while the nodes still find out whether they agree, but for
 * calls that may go without, and those after a refused one: nobody takes what was staged of that,
 * so that it may be on its way into the same slots until all have posted the next. Pieces are
 * numbered on from call to call, and piece k has slot k mod SLOTS. Whoever stages piece k has taken
 * k - AHEAD: so that has been exchanged, hence all have staged it, each after it took k - 2 AHEAD.
 * With SLOTS of twice AHEAD the slot is free.
 *
 * A call whose data all lie in arenas goes another way, if what comes to a node need not be joined
 * there, or given to several (zi_far_can_be_direct()): zinf-net has the arenas as well, so that
 * there are no pieces to stage. Members post where their data are (struct zi_far_places), and the
 * nodes' answer says so (ZI_BOARD_DIRECT). Where a node has several, they have the answer before
 * the data go: each takes what the others of its node have for it, and tells that as its step; and
 * zinf-net tells its own, which all wait for, when all have, and the other nodes' data are here.
 *
 * Blocks of a piece lie one after the other without gaps, so that what goes to one node is one run
 * of bytes:
 *   source   all_to_all(v) for each node: for each member here: a block for each member there
 *            scatter       the root's blocks, in the order of nodes, then members
 *            otherwise     for each member here its blocks in the order of members
 *   result   all_to_all(v) for each node: for each member there: a block for each member here
 *            scatter       a block for each member here
 *            gathers       blocks in the order of nodes, then members; the own node's are left out
 *            joins         as the target; broadcast: the source
 * A broadcast's result has the source's place, as have those of joins of one member on each node,
 * which need no partials either.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/types.h"
#include "common/wire/board.h"

#define ZI_FAR_SLAB_BYTES   (20ull << 20) /* of the group of all ranks */
#define ZI_FAR_GROUP_BYTES  (5ull << 20)  /* of another group */
#define ZI_FAR_WORKER_BYTES (256u << 10)  /* the first of them the worker alone writes; … */
/* … of those, these are frames (frame.h): small data for members here; the others are spare. */
#define ZI_FAR_FRAMES_OFFSET (128u << 10)
#define ZI_FAR_FRAMES_BYTES  (128u << 10)
#define ZI_FAR_SLOTS         8u
#define ZI_FAR_AHEAD         (ZI_FAR_SLOTS / 2) /* pieces that are staged and not yet taken */
/* A call that waits for another node is given up by the worker so long before the ranks' deadline:
 * meanwhile the nodes tell each other whose fault it is, and the ranks hear that in time. */
#define ZI_FAR_MARGIN_NS 500000000ull
static inline uint64_t zi_far_margin_ns(uint64_t timeout_ns)
{
	return timeout_ns / 4 < ZI_FAR_MARGIN_NS ? timeout_ns / 4 : ZI_FAR_MARGIN_NS;
}

/* The last of a slab's bytes are for messages. */
static inline uint64_t zi_far_mail_bytes(uint64_t slab_bytes)
{
	return slab_bytes / 5 / 4096 * 4096;
}

/* Of one slot, pages. */
static inline uint64_t zi_far_slot_bytes(uint64_t slab_bytes)
{
	return (slab_bytes - ZI_FAR_WORKER_BYTES - zi_far_mail_bytes(slab_bytes)) / ZI_FAR_SLOTS /
	       4096 * 4096;
}

/* Where the members of a group are. */
struct zi_far_shape {
	uint32_t member_count, node_count;
	uint32_t node;                 /* this one */
	uint32_t self_count;           /* members here */
	uint8_t nodes[ZI_WORLD_MAX];   /* (member_count,) of each member */
	uint8_t orders[ZI_WORLD_MAX];  /* (member_count,) its place in the order of nodes */
	uint8_t firsts[ZI_WORLD_MAX];  /* (node_count,) of a node's first member in that order */
	uint8_t counts[ZI_WORLD_MAX];  /* (node_count,) members there */
	uint8_t members[ZI_WORLD_MAX]; /* (self_count,) those that are here */
};

/* @nodes: (member_count,) below @node_count, each of which has a member. */
void zi_far_shape_init(struct zi_far_shape *shape, const uint8_t *nodes, uint32_t member_count,
                       uint32_t node_count, uint32_t node);
/* Which of the members of its node. */
static inline uint32_t zi_far_local(const struct zi_far_shape *shape, uint32_t member)
{
	return (uint32_t)shape->orders[member] - shape->firsts[shape->nodes[member]];
}
static inline bool zi_far_is_here(const struct zi_far_shape *shape, uint32_t member)
{
	return shape->nodes[member] == shape->node;
}

/* Whether @operation goes straight from and to arenas where all data lie there: with one member on
 * each node, or when each block that goes to another node has one taker there. */
bool zi_far_can_be_direct(const struct zi_far_shape *shape, enum zi_coll_operation operation);

/* The payload of a member's post where it has no other: all_to_allv has counts, what is small its
 * data (frame.h). */
struct zi_far_places {
	uint64_t source, target; /* places in the arenas, or ZI_BOARD_NOWHERE */
};
static_assert(sizeof(struct zi_far_places) <= ZI_BOARD_PAYLOAD_BYTES, "within the post's line");

/* The number of a call's first piece. @pieces: of all calls before that were made. Each call skips
 * more than what may be staged of one that is refused: that is no step of the next call's. */
static inline uint64_t zi_far_number(uint64_t pieces, uint32_t sequence)
{
	return pieces + (uint64_t)sequence * ZI_FAR_SLOTS;
}

/* One call in pieces. */
struct zi_far_cut {
	enum zi_coll_operation operation;
	uint32_t width;          /* bytes of an element */
	uint64_t element_count;  /* as the call counts: of a block */
	uint64_t piece_elements; /* of a block, all pieces but the last */
	uint64_t piece_count;
	uint64_t slot_bytes;
	uint64_t number;                       /* of the first piece: the caller's to set */
	bool is_in_place;                      /* the result comes where the source was */
	uint32_t source_blocks, result_blocks; /* on this node */
	uint32_t leaf_lines;                   /* lost between its partials, at most */
};

/* Where a piece lies in the slab. */
struct zi_far_piece {
	uint64_t first, count;            /* elements of each block */
	uint64_t block_bytes;             /* of this piece */
	uint64_t source, partial, result; /* offsets */
};

/**
 * zi_far_cut_init() - how a call is cut
 * @slab_bytes: of the node; nodes whose slabs are equal cut alike
 * @dtype: 0 of a barrier, which has no pieces
 *
 * The size of a piece depends on the largest node, so that it is the same on all of them.
 */
void zi_far_cut_init(struct zi_far_cut *cut, const struct zi_far_shape *shape, uint64_t slab_bytes,
                     enum zi_coll_operation operation, enum zi_dtype dtype, uint64_t element_count);
void zi_far_piece_init(struct zi_far_piece *piece, const struct zi_far_cut *cut, uint64_t index);

/* Elements that a block of @count has in @piece: all_to_allv is cut by the longest block of all. */
static inline uint64_t zi_far_part(const struct zi_far_piece *piece, uint64_t count)
{
	uint64_t left = count > piece->first ? count - piece->first : 0;

	return left < piece->count ? left : piece->count;
}

/* Offset of the block that local member @from has for member @to; of operations without blocks for
 * each member @to is 0. */
uint64_t zi_far_source_at(const struct zi_far_shape *shape, const struct zi_far_cut *cut,
                          const struct zi_far_piece *piece, uint32_t from, uint32_t to);
/* Offset of the block that the member @to, of this node, gets from member @from, wherever that is.
 * Joins: of its block of the result. */
uint64_t zi_far_result_at(const struct zi_far_shape *shape, const struct zi_far_cut *cut,
                          const struct zi_far_piece *piece, uint32_t from, uint32_t to);
