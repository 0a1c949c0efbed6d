/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finishing the tree over several nodes; see exchange.h. Floor 3, of zinf-net.
 *
 * All of a node's partials are offered at once: Gloo sends what its receiver has room for, and an
 * owner makes room for EXCHANGE_DEPTH pieces, the next as soon as one is finished. Results have
 * their place from the beginning. So nothing here waits but the turn, for the own pieces.
 */
#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/net/exchange_private.h"

static bool sends_result(const struct exchange_room *room, const struct share *piece,
                         uint32_t target)
{
	return room->op.exchange.mode != NET_SCATTER && piece->owner != SHARES_OWNER_WANTING &&
	       shares_is_wanted(&room->op.exchange, target);
}

static uint64_t result_place(const struct exchange_room *room, const struct share *piece)
{
	return room->op.exchange.result_offset_bytes +
	       piece->first * zi_dtype_bytes(room->op.exchange.dtype);
}

/* Of the own leaf @leaf. */
static uint64_t partial_place(const struct exchange_room *room, uint32_t leaf,
                              const struct share *piece)
{
	const struct subtree_plan *plan = &room->op.reduction.plan;
	const struct net_exchange *exchange = &room->op.exchange;
	enum zi_dtype dtype = subtree_dtype(&plan->leaves[leaf], exchange->dtype);

	return exchange->partial_offset_bytes +
	       shares_partial_offset(plan, room->node, leaf, exchange->element_count,
	                             exchange->dtype) +
	       piece->first * zi_dtype_bytes(dtype);
}

static uint64_t leaf_bytes(const struct exchange_room *room, uint32_t leaf,
                           const struct share *piece)
{
	return piece->count * zi_dtype_bytes(subtree_dtype(&room->op.reduction.plan.leaves[leaf],
	                                                   room->op.exchange.dtype));
}

static uint64_t result_bytes(const struct exchange_room *room, const struct share *piece)
{
	return piece->count * zi_dtype_bytes(room->op.exchange.dtype);
}

/* Of the @foreign-th leaf that is not this node's. */
static uint64_t ring_place(const struct exchange_room *room, uint64_t index, uint32_t foreign)
{
	const struct exchange_reduction *reduction = &room->op.reduction;

	return ((index % EXCHANGE_DEPTH) * reduction->foreign_count + foreign) *
	       reduction->piece_bytes;
}

static struct share piece_of(const struct exchange_room *room, uint32_t owner, uint64_t index)
{
	return shares_piece(&room->op.reduction.shares, &room->op.exchange, owner, index);
}

/* ---- begin ---- */

/* Room for the partials of own piece @index. */
static int receive_partials(struct exchange_room *room, uint64_t index)
{
	const struct subtree_plan *plan = &room->op.reduction.plan;
	struct share piece = piece_of(room, room->node, index);
	uint32_t foreign = 0;

	for (uint32_t i = 0; i < plan->leaf_count; i++) {
		uint32_t from = plan->leaves[i].node;
		int r;

		if (from == room->node)
			continue;
		room->op.suspect = from;
		r = net_lane_receive(room->peers[from].ring, exchange_slot(room, EXCHANGE_PARTIAL),
		                     ring_place(room, index, foreign++),
		                     leaf_bytes(room, i, &piece), room->op.text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* Everything of @peer's pieces: own partials to it, its results from it. */
static int begin_peer(struct exchange_room *room, uint32_t peer, uint64_t index)
{
	const struct subtree_plan *plan = &room->op.reduction.plan;
	struct share piece = piece_of(room, peer, index);
	int r = 0;

	if (sends_result(room, &piece, room->node))
		r = exchange_receive(room, peer, EXCHANGE_RESULT, result_place(room, &piece),
		                     result_bytes(room, &piece));
	for (uint32_t i = 0; i < plan->leaf_count && !r; i++)
		if (plan->leaves[i].node == room->node)
			r = exchange_send(room, peer, EXCHANGE_PARTIAL,
			                  partial_place(room, i, &piece),
			                  leaf_bytes(room, i, &piece));
	return err_trace(r);
}

static void prepare(struct exchange_room *room)
{
	struct exchange_reduction *reduction = &room->op.reduction;
	const struct net_exchange *exchange = &room->op.exchange;
	uint32_t width = ZI_MAX(zi_dtype_bytes(exchange->dtype), (uint32_t)sizeof(float));
	uint64_t bytes = room->ring_bytes / EXCHANGE_DEPTH / reduction->plan.leaf_count;

	reduction->slab = &room->slabs[exchange->slab];
	/* The same on all nodes: so of all leaves, not of those that are others'. */
	reduction->piece_bytes =
		ZI_MIN(bytes / EXCHANGE_PAGE_BYTES * EXCHANGE_PAGE_BYTES, EXCHANGE_PIECE_BYTES);
	assert(reduction->piece_bytes);
	shares_init(&reduction->shares, exchange, room->node_count, reduction->piece_bytes / width);
	for (uint32_t i = 0; i < room->node_count; i++) {
		reduction->piece_counts[i] = shares_piece_count(&reduction->shares, exchange, i);
		room->peers[i].leaf_count = 0;
	}
	reduction->foreign_count = 0;
	for (uint32_t i = 0; i < reduction->plan.leaf_count; i++) {
		if (reduction->plan.leaves[i].node == room->node)
			continue;
		room->peers[reduction->plan.leaves[i].node].leaf_count++;
		reduction->foreign_count++;
	}
}

/* Documented in exchange_private.h. */
int exchange_reduce_begin(struct exchange_room *room)
{
	const struct net_exchange *exchange = &room->op.exchange;
	uint64_t *counts = room->op.reduction.piece_counts, most = 0;
	uint32_t nodes[SUBTREE_RANKS_MAX];
	int r;

	for (uint32_t i = 0; i < exchange->rank_count; i++)
		nodes[i] = exchange->nodes[i];
	r = subtree_plan_init(&room->op.reduction.plan, nodes, exchange->rank_count, room->op.text);
	if (r)
		return err_trace(r);
	prepare(room);
	for (uint64_t k = 0; k < ZI_MIN(counts[room->node], EXCHANGE_DEPTH) && !r; k++)
		r = receive_partials(room, k);
	for (uint32_t i = 0; i < room->node_count; i++)
		most = ZI_MAX(most, counts[i]);
	/* By turns, and each node beginning with its neighbour, so that no owner waits for all. */
	for (uint64_t k = 0; k < most && !r; k++)
		for (uint32_t i = 1; i < room->node_count && !r; i++) {
			uint32_t peer = (room->node + i) % room->node_count;

			if (k < counts[peer])
				r = begin_peer(room, peer, k);
		}
	return err_trace(r);
}

/* ---- turn ---- */

static int await_partials(struct exchange_room *room)
{
	for (uint32_t i = 0; i < room->node_count; i++) {
		struct exchange_peer *peer = &room->peers[i];
		int r;

		if (i == room->node || !peer->leaf_count)
			continue;
		room->op.suspect = i;
		r = net_lane_wait_received(peer->ring, peer->leaf_count, room->op.deadline_ns,
		                           room->op.text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

static void finish_piece(struct exchange_room *room, uint64_t index, const struct share *piece)
{
	const struct exchange_reduction *reduction = &room->op.reduction;
	const struct net_exchange *exchange = &room->op.exchange;
	const void *partials[SUBTREE_RANKS_MAX];
	char *slab = reduction->slab->memory;
	uint32_t foreign = 0;

	for (uint32_t i = 0; i < reduction->plan.leaf_count; i++)
		partials[i] = reduction->plan.leaves[i].node == room->node
		                      ? slab + partial_place(room, i, piece)
		                      : room->ring + ring_place(room, index, foreign++);
	finish_run(&(struct finish_run){ .plan = &reduction->plan,
	                                 .partials = partials,
	                                 .target = slab + result_place(room, piece),
	                                 .element_count = piece->count,
	                                 .dtype = exchange->dtype,
	                                 .op = exchange->op,
	                                 .average = exchange->dtype == ZI_DTYPE_F64
	                                                    ? 1.0 / exchange->rank_count
	                                                    : exchange->average },
	           room->scratch);
}

/* One own piece, from the last partial to the first send of its result. */
static int own_piece(struct exchange_room *room, uint64_t index)
{
	struct share piece = piece_of(room, room->node, index);
	int r = await_partials(room);

	/* In place, a result that all finish would run over partials that are still to go out. */
	if (!r && piece.owner == SHARES_OWNER_WANTING)
		r = exchange_await_sent(room);
	if (r)
		return err_trace(r);
	finish_piece(room, index, &piece);
	if (index + EXCHANGE_DEPTH < room->op.reduction.piece_counts[room->node])
		r = receive_partials(room, index + EXCHANGE_DEPTH);
	for (uint32_t i = 1; i < room->node_count && !r; i++) {
		uint32_t peer = (room->node + i) % room->node_count;

		if (sends_result(room, &piece, peer))
			r = exchange_send(room, peer, EXCHANGE_RESULT, result_place(room, &piece),
			                  result_bytes(room, &piece));
	}
	return err_trace(r);
}

/* Documented in exchange_private.h. */
int exchange_reduce_turn(struct exchange_room *room)
{
	int r = 0;

	for (uint64_t k = 0; k < room->op.reduction.piece_counts[room->node] && !r; k++)
		r = own_piece(room, k);
	return err_trace(r);
}
