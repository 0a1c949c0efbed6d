/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finishing the tree over several nodes; see exchange.h. Floor 3, of zinf-net.
 *
 * All of a node's partials are offered at once: Gloo sends what its receiver has room for, and an
 * owner makes room for EXCHANGE_DEPTH pieces, the next as soon as one is finished. Results have
 * their place from the beginning. So nothing here waits but for the own pieces, and the end.
 */
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/net/exchange_private.h"

struct reduction {
	struct exchange_op *op;
	struct exchange_room *room;
	const struct net_exchange *exchange;
	const struct exchange_slab *slab;
	struct subtree_plan plan;
	struct shares shares;
	uint64_t piece_counts[SUBTREE_NODES_MAX];
	uint64_t piece_bytes;   /* of one leaf in the ring */
	uint32_t foreign_count; /* leaves of the others */
};

static bool sends_result(const struct reduction *reduction, const struct share *piece,
                         uint32_t target)
{
	return reduction->exchange->mode != NET_SCATTER && piece->owner != SHARES_OWNER_WANTING &&
	       shares_is_wanted(reduction->exchange, target);
}

static uint64_t result_place(const struct reduction *reduction, const struct share *piece)
{
	return reduction->exchange->result_offset_bytes +
	       piece->first * zi_dtype_bytes(reduction->exchange->dtype);
}

/* Of the own leaf @leaf. */
static uint64_t partial_place(const struct reduction *reduction, uint32_t leaf,
                              const struct share *piece)
{
	const struct net_exchange *exchange = reduction->exchange;
	enum zi_dtype dtype = subtree_dtype(&reduction->plan.leaves[leaf], exchange->dtype);

	return exchange->partial_offset_bytes +
	       shares_partial_offset(&reduction->plan, reduction->room->node, leaf,
	                             exchange->element_count, exchange->dtype) +
	       piece->first * zi_dtype_bytes(dtype);
}

static uint64_t leaf_bytes(const struct reduction *reduction, uint32_t leaf,
                           const struct share *piece)
{
	return piece->count * zi_dtype_bytes(subtree_dtype(&reduction->plan.leaves[leaf],
	                                                   reduction->exchange->dtype));
}

/* Of the @foreign-th leaf that is not this node's. */
static uint64_t ring_place(const struct reduction *reduction, uint64_t index, uint32_t foreign)
{
	return ((index % EXCHANGE_DEPTH) * reduction->foreign_count + foreign) *
	       reduction->piece_bytes;
}

/* Room for the partials of own piece @index. */
static int receive_partials(struct reduction *reduction, uint64_t index)
{
	struct exchange_room *room = reduction->room;
	struct share piece =
		shares_piece(&reduction->shares, reduction->exchange, room->node, index);
	uint32_t foreign = 0;

	for (uint32_t i = 0; i < reduction->plan.leaf_count; i++) {
		uint32_t from = reduction->plan.leaves[i].node;
		int r;

		if (from == room->node)
			continue;
		reduction->op->suspect = from;
		r = net_lane_receive(room->peers[from].ring,
		                     exchange_slot(reduction->op, EXCHANGE_PARTIAL),
		                     ring_place(reduction, index, foreign++),
		                     leaf_bytes(reduction, i, &piece), reduction->op->text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* Everything of @peer's pieces: own partials to it, its results from it. */
static int begin_peer(struct reduction *reduction, uint32_t peer, uint64_t index)
{
	struct exchange_room *room = reduction->room;
	struct net_lane *lane = room->peers[peer].slabs[reduction->exchange->slab];
	struct share piece = shares_piece(&reduction->shares, reduction->exchange, peer, index);
	int r = 0;

	reduction->op->suspect = peer;
	if (sends_result(reduction, &piece, room->node))
		r = net_lane_receive(lane, exchange_slot(reduction->op, EXCHANGE_RESULT),
		                     result_place(reduction, &piece),
		                     piece.count * zi_dtype_bytes(reduction->exchange->dtype),
		                     reduction->op->text);
	for (uint32_t i = 0; i < reduction->plan.leaf_count && !r; i++) {
		if (reduction->plan.leaves[i].node != room->node)
			continue;
		r = net_lane_send(lane, exchange_slot(reduction->op, EXCHANGE_PARTIAL),
		                  partial_place(reduction, i, &piece),
		                  leaf_bytes(reduction, i, &piece), reduction->op->text);
		room->peers[peer].sent_count++;
	}
	return err_trace(r);
}

static int begin(struct reduction *reduction)
{
	uint32_t self = reduction->room->node;
	uint64_t most = 0;
	int r = 0;

	for (uint64_t k = 0; k < ZI_MIN(reduction->piece_counts[self], EXCHANGE_DEPTH) && !r; k++)
		r = receive_partials(reduction, k);
	for (uint32_t i = 0; i < reduction->room->node_count; i++)
		most = ZI_MAX(most, reduction->piece_counts[i]);
	/* By turns, and each node beginning with its neighbour, so that no owner waits for all. */
	for (uint64_t k = 0; k < most && !r; k++)
		for (uint32_t i = 1; i < reduction->room->node_count && !r; i++) {
			uint32_t peer = (self + i) % reduction->room->node_count;

			if (k < reduction->piece_counts[peer])
				r = begin_peer(reduction, peer, k);
		}
	return err_trace(r);
}

static int await_sent(struct reduction *reduction)
{
	for (uint32_t i = 0; i < reduction->room->node_count; i++) {
		struct exchange_peer *peer = &reduction->room->peers[i];
		int r;

		if (!peer->sent_count)
			continue;
		reduction->op->suspect = i;
		r = net_lane_wait_sent(peer->slabs[reduction->exchange->slab], peer->sent_count,
		                       reduction->op->deadline_ns, reduction->op->text);
		if (r)
			return err_trace(r);
		peer->sent_count = 0;
	}
	return 0;
}

static int await_partials(struct reduction *reduction)
{
	for (uint32_t i = 0; i < reduction->room->node_count; i++) {
		struct exchange_peer *peer = &reduction->room->peers[i];
		int r;

		if (!peer->leaf_count)
			continue;
		reduction->op->suspect = i;
		r = net_lane_wait_received(peer->ring, peer->leaf_count, reduction->op->deadline_ns,
		                           reduction->op->text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

static void finish_piece(struct reduction *reduction, uint64_t index, const struct share *piece)
{
	const void *partials[SUBTREE_RANKS_MAX];
	char *slab = reduction->slab->memory;
	uint32_t foreign = 0;

	for (uint32_t i = 0; i < reduction->plan.leaf_count; i++)
		partials[i] =
			reduction->plan.leaves[i].node == reduction->room->node
				? slab + partial_place(reduction, i, piece)
				: reduction->room->ring + ring_place(reduction, index, foreign++);
	finish_run(&(struct finish_run){ .plan = &reduction->plan,
	                                 .partials = partials,
	                                 .target = slab + result_place(reduction, piece),
	                                 .element_count = piece->count,
	                                 .dtype = reduction->exchange->dtype,
	                                 .op = reduction->exchange->op,
	                                 .average = reduction->exchange->average },
	           reduction->room->scratch);
}

/* One own piece, from the last partial to the first send of its result. */
static int own_piece(struct reduction *reduction, uint64_t index)
{
	struct exchange_room *room = reduction->room;
	struct share piece =
		shares_piece(&reduction->shares, reduction->exchange, room->node, index);
	int r = await_partials(reduction);

	/* In place, a result that all finish would run over partials that are still to go out. */
	if (!r && piece.owner == SHARES_OWNER_WANTING)
		r = await_sent(reduction);
	if (r)
		return err_trace(r);
	finish_piece(reduction, index, &piece);
	if (index + EXCHANGE_DEPTH < reduction->piece_counts[room->node])
		r = receive_partials(reduction, index + EXCHANGE_DEPTH);
	for (uint32_t i = 1; i < room->node_count && !r; i++) {
		uint32_t peer = (room->node + i) % room->node_count;

		if (!sends_result(reduction, &piece, peer))
			continue;
		reduction->op->suspect = peer;
		r = net_lane_send(room->peers[peer].slabs[reduction->exchange->slab],
		                  exchange_slot(reduction->op, EXCHANGE_RESULT),
		                  result_place(reduction, &piece),
		                  piece.count * zi_dtype_bytes(reduction->exchange->dtype),
		                  reduction->op->text);
		room->peers[peer].sent_count++;
	}
	return err_trace(r);
}

static int await_results(struct reduction *reduction)
{
	struct exchange_room *room = reduction->room;

	for (uint32_t i = 0; i < room->node_count; i++) {
		struct share piece;
		int r;

		if (i == room->node || !reduction->piece_counts[i])
			continue;
		piece = shares_piece(&reduction->shares, reduction->exchange, i, 0);
		if (!sends_result(reduction, &piece, room->node))
			continue;
		reduction->op->suspect = i;
		r = net_lane_wait_received(room->peers[i].slabs[reduction->exchange->slab],
		                           (uint32_t)reduction->piece_counts[i],
		                           reduction->op->deadline_ns, reduction->op->text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

static void prepare(struct reduction *reduction)
{
	struct exchange_room *room = reduction->room;
	const struct net_exchange *exchange = reduction->exchange;
	uint32_t width = ZI_MAX(zi_dtype_bytes(exchange->dtype), (uint32_t)sizeof(float));
	uint64_t bytes = EXCHANGE_RING_BYTES / EXCHANGE_DEPTH / reduction->plan.leaf_count;

	/* The same on all nodes: so of all leaves, not of those that are others'. */
	reduction->piece_bytes = ZI_MIN(bytes, EXCHANGE_PIECE_BYTES) & ~4095ull;
	shares_init(&reduction->shares, exchange, room->node_count, reduction->piece_bytes / width);
	for (uint32_t i = 0; i < room->node_count; i++) {
		reduction->piece_counts[i] = shares_piece_count(&reduction->shares, exchange, i);
		room->peers[i].leaf_count = room->peers[i].sent_count = 0;
	}
	for (uint32_t i = 0; i < reduction->plan.leaf_count; i++) {
		if (reduction->plan.leaves[i].node == room->node)
			continue;
		room->peers[reduction->plan.leaves[i].node].leaf_count++;
		reduction->foreign_count++;
	}
}

/* NET_REDUCE, checked; the cards are on their way. */
int exchange_reduce(struct exchange_op *op)
{
	struct reduction reduction = { .op = op,
		                       .room = op->room,
		                       .exchange = op->exchange,
		                       .slab = &op->room->slabs[op->exchange->slab] };
	uint32_t nodes[SUBTREE_RANKS_MAX];
	uint32_t self = op->room->node;
	int r;

	for (uint32_t i = 0; i < op->exchange->rank_count; i++)
		nodes[i] = op->exchange->nodes[i];
	r = subtree_plan_init(&reduction.plan, nodes, op->exchange->rank_count, op->text);
	if (r)
		return err_trace(r);
	prepare(&reduction);
	r = begin(&reduction);
	r = r ? r : exchange_cards_end(op);
	for (uint64_t k = 0; k < reduction.piece_counts[self] && !r; k++)
		r = own_piece(&reduction, k);
	r = r ? r : await_results(&reduction);
	return r ? err_trace(r) : err_trace(await_sent(&reduction));
}
