/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation across the nodes (net.h): in pieces, so that one is finished while others travel.
 * Floor 3, of zinf-net. Owner: the operations' thread.
 *
 *   every node                        the owner of a piece               every node
 *   its partials of the piece  ────▶  finishes the tree, rounds  ────▶   the result, in its slab
 *
 * Before its data each node sends each other a card: what it calls. Data travel under a number that
 * is made of the card, so that no piece of one call ever lands in another; and who called something
 * else is named when the cards are compared. Calls that were agreed on before need no cards.
 */
#pragma once

#include <stdbool.h>

#include "daemon/worker/finish.h"
#include "daemon/worker/net/nodes.h"

struct exchange_room;

struct exchange_slab {
	char *memory;
	uint64_t bytes;
};

struct exchange_room_options {
	struct nodes *nodes;
	uint32_t node, node_count;
	uint64_t ring_bytes; /* of exchange_ring_bytes(); the same on all nodes */
	bool is_agreed;      /* for exchange_begin() alone */
};

/* What pieces of others need where the tree has @leaf_count leaves and an owner's share of each is
 * @share_bytes, or less; with a shorter ring pieces are shorter. */
uint64_t exchange_ring_bytes(uint32_t leaf_count, uint64_t share_bytes);

/**
 * exchange_room_new() - what operations need: memory for pieces, lanes
 * @ret_room: exchange_room_free(), before nodes_leave()
 *
 * Return: 0, -ENOMEM.
 */
int exchange_room_new(const struct exchange_room_options *options, struct exchange_room **ret_room);
struct exchange_room *exchange_room_free(struct exchange_room *room);

/* Slab @index is @slab's memory from now on (NULL: none). Return: 0, -ENOMEM. */
int exchange_room_map(struct exchange_room *room, uint32_t index, const struct exchange_slab *slab);

/* Whether @exchange can be of a mesh of @node_count nodes and lies within @slab. Return: 0, or
 * -EINVAL with @text. */
int exchange_check(const struct net_exchange *exchange, uint32_t node, uint32_t node_count,
                   const struct exchange_slab *slab, struct zi_text *text);

/* What NET_MOVE moves between this node and each other one, in several runs; those of @node are
 * [firsts[node], firsts[node + 1]), and match those there in their order. */
struct exchange_runs {
	uint32_t firsts[SUBTREE_NODES_MAX + 1];
	const struct net_range *sends,
		*receives; /* within the slab; those of no bytes are left out */
};

/**
 * exchange_begin() - an operation that all nodes have agreed on, or will by the time it ends
 * @room: without one under way; of several rooms each has one, begun in the same order on all nodes
 * @exchange: checked; copied
 * @runs: NULL, or what NET_MOVE moves instead of @exchange's ranges; over when this returns
 *
 * All transfers begin that need nothing of the others; does not wait. Then exchange_turn() does
 * this node's part for the others, and exchange_end() waits for the rest.
 * Return: as exchange_run(), but never -EINVAL, as do the others: that is exchange_check()'s.
 */
int exchange_begin(struct exchange_room *room, const struct net_exchange *exchange,
                   const struct exchange_runs *runs, struct zi_text *text, uint32_t *ret_suspect);
int exchange_turn(struct exchange_room *room, struct zi_text *text, uint32_t *ret_suspect);
int exchange_end(struct exchange_room *room, struct zi_text *text, uint32_t *ret_suspect);

/**
 * exchange_run() - an operation from its begin to its end, with cards before
 * @ret_suspect: on failure the node that was waited for, or NET_CULPRIT_NONE
 *
 * Return: 0; -EINVAL another node calls something else; -ETIMEDOUT, -EPIPE, -ECANCELED; all with
 * @text, and all break the mesh.
 */
int exchange_run(struct exchange_room *room, const struct net_exchange *exchange,
                 struct zi_text *text, uint32_t *ret_suspect);
