/* SPDX-License-Identifier: Apache-2.0 */
/* Private to follow.c and its parts. Floor 3, of zinf-net. Owner: the operations' thread. */
#pragma once

#include "common/wire/far.h"
#include "common/wire/frame.h"
#include "common/wire/meet.h"
#include "daemon/worker/net/worker.h"

/* What a node's ranks call, as they agree on it, or why they do not. */
struct follow_card {
	uint32_t sequence;
	int32_t error;
	uint64_t element_count, longest; /* all_to_allv: of a block, 0 and on this node */
	uint8_t operation, dtype, reduce_op;
	uint8_t is_direct; /* the data of this node's ranks could go from and to where they lie */
	uint8_t reserved[4];
	uint32_t root, reserved1;
	struct zi_text text;
};
/* What nodes agree by lies in memory of zinf-net's own, as ranks may write to the slab at any time,
 * and nodes that had other words than their peers would conclude other things. Frames are where
 * the slab has them (frame.h), which small data are copied to; before them come, of all_to_allv,
 * (members in the order of nodes, 2, members) what each sends to each, and takes from each. */
#define FOLLOW_OWN_BYTES     ZI_FAR_WORKER_BYTES
#define FOLLOW_COUNTS_OFFSET 0u
/* Blocks between members here and members elsewhere. */
#define FOLLOW_BLOCKS_MAX (ZI_WORLD_MAX / 2 * (ZI_WORLD_MAX / 2))
static_assert(FOLLOW_COUNTS_OFFSET + ZI_WORLD_MAX * ZI_BOARD_COUNTS_BYTES(ZI_WORLD_MAX) <=
                      ZI_FAR_FRAMES_OFFSET,
              "all counts fit");

struct follow {
	struct worker *worker;
	const struct net_follow *message;
	struct zi_far_shape shape;
	struct zi_meet meet;
	const struct exchange_slab *slab;
	struct subtree_plan plan;
	struct net_lane *frames[SUBTREE_NODES_MAX]; /* from and to each other node */
	struct zi_line broken; /* the verdict that meet looks at: control says when to stop */
	struct net_exchange exchange;                /* the next one to begin, which copies it */
	struct exchange_room *rooms[ZI_FAR_AHEAD];   /* of pieces */
	char *own;                                   /* (FOLLOW_OWN_BYTES,) see there */
	struct follow_card cards[SUBTREE_NODES_MAX]; /* (nodes,) what they call */
	/* (self_count,) of a call straight from arenas, as they were judged */
	struct zi_far_places places[ZI_WORLD_MAX];
	uint32_t sequence; /* of the call */
	uint64_t steps;    /* pieces of all calls before */
	uint64_t deadline_ns;
	uint32_t timeout_ms; /* the shortest that a rank here says: for people */
	bool is_late;
	bool is_met; /* all nodes have told their cards of the call; until then cards[] has ours */
	struct zi_text *text;
	uint32_t *suspect;
};

/* ---- follow.c ---- */

/* Until @member of this node's has told step @value. Return: 0, or an error with follow->text. */
int follow_await_step(struct follow *follow, uint32_t member, uint32_t value);

/* ---- follow_exchange.c ---- */

/* follow->exchange is @call's, of @kind, but for what is where; and that of a broadcast. */
void follow_exchange_init(struct follow *follow, uint32_t kind, const struct follow_card *call);
void follow_set_broadcast(struct follow *follow, const struct follow_card *call, uint64_t bytes);
/* follow->exchange, on which all nodes have agreed, but for what all calls have in common, begins
 * in @room; @runs: as exchange_begin(). Then its turn, its end; and all three, in the worker's
 * room. Return: 0, or an error that ends the group, with follow->text. */
int follow_begin(struct follow *follow, struct exchange_room *room,
                 const struct exchange_runs *runs);
int follow_turn(struct follow *follow, struct exchange_room *room);
int follow_end(struct follow *follow, struct exchange_room *room);
int follow_exchange(struct follow *follow);
/* An exchange ended with @r, and follow->text: which call and ranks that is about. Return: @r. */
int follow_explain(struct follow *follow, int r);

/* ---- follow_pieces.c ---- */

/* Once, before the first call. Return: 0, -ENOMEM with follow->text. */
int follow_pieces_begin(struct follow *follow);
void follow_pieces_end(struct follow *follow);
/* All pieces of @call. Return: as follow_exchange(). */
int follow_run_pieces(struct follow *follow, const struct follow_card *call);

/* ---- follow_uneven.c ---- */

/* all_to_allv: its piece begins in @room. Return: as follow_begin(). */
int follow_begin_uneven(struct follow *follow, struct exchange_room *room,
                        const struct zi_far_cut *cut, const struct zi_far_piece *piece,
                        const struct follow_card *call);

/* ---- follow_direct.c ---- */

/* Whether this node's part of @call, of which all ranks here have posted the same, can go straight
 * from and to arenas: follow->exchange is then that. */
bool follow_can_direct(struct follow *follow, const struct follow_card *call);
/* All nodes can. Return: as follow_exchange(). */
int follow_run_direct(struct follow *follow, const struct follow_card *call);

/* ---- follow_blocks.c ---- */

/* What goes between this node and the others, member by member. */
struct follow_blocks {
	struct exchange_runs runs; /* of what is below, where it lies */
	struct net_range sends[FOLLOW_BLOCKS_MAX], receives[FOLLOW_BLOCKS_MAX];
};

/* Where the block from member @from to member @to, of which one is here, lies on this node; of no
 * bytes: there is none. */
typedef struct net_range (*follow_block_fn)(const struct follow *follow, const void *arg,
                                            uint32_t from, uint32_t to);
void follow_blocks_init(struct follow_blocks *blocks, const struct follow *follow,
                        follow_block_fn block_of, const void *arg);

/* What all_to_allv's members told. */
static inline const uint64_t *follow_counts(const struct follow *follow)
{
	return (const void *)(follow->own + FOLLOW_COUNTS_OFFSET);
}

/* ---- follow_frame.c ---- */

/* Once, before the first call: makes follow->own. Return: 0, or an error with follow->text. */
int follow_frames_begin(struct follow *follow);
void follow_frames_end(struct follow *follow);
/* Tells all nodes what this one calls, and hears them. */
int follow_exchange_frames(struct follow *follow, const struct follow_card *own);
struct zi_frame_call follow_frame_call(const struct follow_card *card);
/* Small data, @bytes of each source, for the members here. */
void follow_give_small(const struct follow *follow, const struct zi_frame_call *call,
                       uint32_t bytes);

/* ---- follow_card.c ---- */

/* "ranks 2, 3" of node @node. */
struct zi_text follow_say_node(const struct follow *follow, uint32_t node);
/* A call whose time passed while node @node was waited for: which, and who that is. */
void follow_say_late(const struct follow *follow, uint32_t node, struct zi_text *ret_text);
/* What the ranks of this node say, all of whom have posted. */
void follow_make_card(const struct follow *follow, struct follow_card *card);
/* What all nodes conclude from the same cards. Return: 0, or a refusal with @reason. */
int follow_judge(const struct follow *follow, struct zi_text *reason);
/* Whether all nodes' cards say so. */
bool follow_all_direct(const struct follow *follow);
/* all_to_allv: everybody's counts to everybody; what all conclude from them; the longest block. */
int follow_exchange_counts(struct follow *follow);
int follow_judge_counts(const struct follow *follow, struct zi_text *reason);
uint64_t follow_longest(const struct follow *follow);
