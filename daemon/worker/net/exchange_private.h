/* SPDX-License-Identifier: Apache-2.0 */
/* Private to operations across nodes: what exchange.c, cards.c and reduce.c share. Floor 3. */
#pragma once

#include "daemon/worker/net/exchange.h"
#include "daemon/worker/shares.h"

/* Partials of so many pieces are on their way to an owner while it finishes one. */
#define EXCHANGE_DEPTH 4u
/* Of one leaf's piece: a wake-up costs what 64 KiB take at 10 Gbit/s, so that it is small beside;
 * and a few of them stay in a shared cache. */
#define EXCHANGE_PIECE_BYTES (512u << 10)
/* For the pieces of others; touched only as far as operations need it. */
#define EXCHANGE_RING_BYTES (64u << 20)

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
	struct net_lane *cards;
	struct net_lane *ring;
	struct net_lane *slabs[NET_SLABS_MAX];
	uint32_t leaf_count; /* of the operation */
	uint32_t sent_count; /* transfers of the slab's lane that have been begun */
};

struct exchange_room {
	struct nodes *nodes;
	uint32_t node, node_count;
	struct exchange_peer peers[SUBTREE_NODES_MAX]; /* the own one is empty */
	struct exchange_slab slabs[NET_SLABS_MAX];
	char *ring;
	struct finish_scratch *scratch;
	struct exchange_card cards_out[SUBTREE_NODES_MAX], cards_in[SUBTREE_NODES_MAX];
	uint32_t hash; /* of the operation's card */
};

/* An operation while it runs. */
struct exchange_op {
	struct exchange_room *room;
	bool is_agreed; /* no cards go */
	const struct net_exchange *exchange;
	uint64_t deadline_ns;
	struct zi_text *text;
	uint32_t suspect;
};

static inline uint64_t exchange_slot(const struct exchange_op *op, enum exchange_stream stream)
{
	uint64_t hash = stream == EXCHANGE_CARD ? 0 : op->room->hash;

	return hash << 32 | (op->exchange->sequence & 0xffffff) << 8 | stream;
}

/* Cards go out, and their receipt is prepared. */
int exchange_cards_begin(struct exchange_op *op);
/* All are here and say the same. */
int exchange_cards_end(struct exchange_op *op);

int exchange_reduce(struct exchange_op *op);
int exchange_spread(struct exchange_op *op);
