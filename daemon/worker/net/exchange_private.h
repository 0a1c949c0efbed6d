/* SPDX-License-Identifier: Apache-2.0 */
/* Private to operations across nodes: what exchange.c and its parts share. Floor 3. */
#pragma once

#include "daemon/worker/net/exchange.h"
#include "daemon/worker/shares.h"

/* Partials of so many pieces are on their way to an owner while it finishes one. */
#define EXCHANGE_DEPTH 4u
/* Of one leaf's piece: a wake-up costs what 64 KiB take at 10 Gbit/s, so that it is small beside;
 * and a few of them stay in a shared cache. */
#define EXCHANGE_PIECE_BYTES (512u << 10)
/* In the ring pieces begin at whole ones. */
#define EXCHANGE_PAGE_BYTES 4096u

/* What a node calls. Alike on all nodes, but for sent_bytes. */
struct exchange_card {
	uint64_t sequence;
	uint32_t kind, mode, dtype, op, rank_count, root;
	uint64_t element_count;
	uint64_t placement;  /* a hash of nodes[] */
	uint64_t sent_bytes; /* NET_MOVE: to whom the card goes */
};

enum exchange_stream { EXCHANGE_CARD = 1, EXCHANGE_PARTIAL = 2, EXCHANGE_RESULT = 3 };

struct exchange_peer {
	struct net_lane *cards; /* NULL: of a room for what is agreed */
	struct net_lane *ring;
	struct net_lane *slabs[NET_SLABS_MAX];
	/* Of the operation: */
	uint32_t leaf_count;
	uint32_t sent_count, received_count; /* transfers of the slab's lane that have been begun */
};

/* NET_REDUCE. */
struct exchange_reduction {
	const struct exchange_slab *slab;
	struct subtree_plan plan;
	struct shares shares;
	uint64_t piece_counts[SUBTREE_NODES_MAX];
	uint64_t piece_bytes;   /* of one leaf in the ring */
	uint32_t foreign_count; /* leaves of the others */
};

/* NET_BROADCAST. */
struct exchange_spread {
	uint64_t bytes;
	bool is_straight;
};

/* The operation that is under way in a room. */
struct exchange_op {
	bool is_agreed; /* no cards go */
	struct net_exchange exchange;
	uint64_t deadline_ns;
	struct zi_text *text; /* of the function that was called */
	uint32_t suspect;
	uint32_t hash; /* of its card */
	union {
		struct exchange_reduction reduction;
		struct exchange_spread spread;
	};
};

struct exchange_room {
	struct nodes *nodes;
	uint32_t node, node_count;
	struct exchange_peer peers[SUBTREE_NODES_MAX]; /* the own one is empty */
	struct exchange_slab slabs[NET_SLABS_MAX];
	char *ring; /* (ring_bytes,) pieces of others */
	uint64_t ring_bytes;
	struct finish_scratch *scratch;
	struct exchange_card cards_out[SUBTREE_NODES_MAX], cards_in[SUBTREE_NODES_MAX];
	struct exchange_op op;
};

static inline uint64_t exchange_slot(const struct exchange_room *room, enum exchange_stream stream)
{
	uint64_t hash = stream == EXCHANGE_CARD ? 0 : room->op.hash;

	return hash << 32 | (room->op.exchange.sequence & 0xffffff) << 8 | stream;
}

/* ---- exchange.c ---- */

/* Begin a transfer between the operation's slab, at @place, and @peer. */
int exchange_send(struct exchange_room *room, uint32_t peer, enum exchange_stream stream,
                  uint64_t place, uint64_t bytes);
int exchange_receive(struct exchange_room *room, uint32_t peer, enum exchange_stream stream,
                     uint64_t place, uint64_t bytes);
/* Until @count more of those from @peer have ended; all that this node sends. */
int exchange_await_received(struct exchange_room *room, uint32_t peer, uint32_t count);
int exchange_await_sent(struct exchange_room *room);

/* ---- cards.c: cards go out, and their receipt is prepared; all are here and say the same ---- */

int exchange_cards_begin(struct exchange_room *room);
int exchange_cards_end(struct exchange_room *room);

/* ---- reduce.c, spread.c: the parts of an operation, see exchange_begin() ---- */

int exchange_reduce_begin(struct exchange_room *room);
int exchange_reduce_turn(struct exchange_room *room);
int exchange_spread_begin(struct exchange_room *room);
int exchange_spread_turn(struct exchange_room *room);
