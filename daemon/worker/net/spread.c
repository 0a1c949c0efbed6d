/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of one node to all others (NET_BROADCAST); see exchange.h. Floor 3, of zinf-net.
 *
 *   root ── share i ──▶ node i ── the same, piece by piece ──▶ the others
 *
 * So the root sends everything once, however many nodes there are, and each of the others as much
 * less its own share. All have their places from the beginning. What is small, or has one node to
 * go to, goes there straight.
 */
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/layout.h"
#include "daemon/worker/net/exchange_private.h"

struct spread {
	struct exchange_op *op;
	struct exchange_room *room;
	const struct net_exchange *exchange;
	uint64_t bytes;
	bool is_straight;
	uint32_t sent_counts[SUBTREE_NODES_MAX], received_counts[SUBTREE_NODES_MAX];
};

struct part {
	uint64_t first, bytes;
};

/* Of the nodes but the root, in their order, @node's place. */
static uint32_t place_of(const struct spread *spread, uint32_t node)
{
	return node < spread->exchange->root ? node : node - 1;
}

/* What @node has from the root and passes on. */
static struct part share_of(const struct spread *spread, uint32_t node)
{
	uint32_t others = spread->room->node_count - 1;
	uint64_t lines = spread->bytes / ZI_LINE_BYTES;
	uint64_t first = lines * place_of(spread, node) / others * ZI_LINE_BYTES;
	uint64_t end = lines * (place_of(spread, node) + 1) / others * ZI_LINE_BYTES;

	if (spread->is_straight)
		return (struct part){ 0, spread->bytes };
	if (place_of(spread, node) + 1 == others)
		end = spread->bytes;
	return (struct part){ first, end - first };
}

/* What nobody passes on need not be in pieces. */
static uint64_t piece_bytes(const struct spread *spread)
{
	return spread->is_straight ? spread->bytes : EXCHANGE_PIECE_BYTES;
}

static struct part piece_of(const struct spread *spread, struct part share, uint64_t index)
{
	uint64_t skipped = index * piece_bytes(spread);

	return (struct part){ share.first + skipped,
		              ZI_MIN(share.bytes - skipped, piece_bytes(spread)) };
}

static uint64_t piece_count(const struct spread *spread, struct part share)
{
	return share.bytes ? (share.bytes - 1) / piece_bytes(spread) + 1 : 0;
}

static int send_part(struct spread *spread, uint32_t peer, enum exchange_stream stream,
                     uint64_t place, struct part part)
{
	spread->op->suspect = peer;
	spread->sent_counts[peer]++;
	return err_trace(net_lane_send(spread->room->peers[peer].slabs[spread->exchange->slab],
	                               exchange_slot(spread->op, stream), place + part.first,
	                               part.bytes, spread->op->text));
}

/* All that @peer sends of the share of node @owner. */
static int receive_share(struct spread *spread, uint32_t peer, enum exchange_stream stream,
                         uint32_t owner)
{
	struct part share = share_of(spread, owner);
	uint64_t count = piece_count(spread, share);
	int r = 0;

	spread->op->suspect = peer;
	for (uint64_t k = 0; k < count && !r; k++) {
		struct part part = piece_of(spread, share, k);

		spread->received_counts[peer]++;
		r = net_lane_receive(spread->room->peers[peer].slabs[spread->exchange->slab],
		                     exchange_slot(spread->op, stream),
		                     spread->exchange->result_offset_bytes + part.first, part.bytes,
		                     spread->op->text);
	}
	return err_trace(r);
}

/* By turns, so that no node waits for the whole share of another. */
static int begin_root(struct spread *spread)
{
	uint32_t root = spread->exchange->root, nodes = spread->room->node_count;
	bool is_any = true;
	int r = 0;

	for (uint64_t k = 0; is_any && !r; k++) {
		is_any = false;
		for (uint32_t i = 1; i < nodes && !r; i++) {
			uint32_t peer = (root + i) % nodes;
			struct part share = share_of(spread, peer);

			if (k >= piece_count(spread, share))
				continue;
			is_any = true;
			r = send_part(spread, peer, EXCHANGE_PARTIAL,
			              spread->exchange->partial_offset_bytes,
			              piece_of(spread, share, k));
		}
	}
	return err_trace(r);
}

static int begin(struct spread *spread)
{
	uint32_t self = spread->room->node, root = spread->exchange->root;
	int r;

	if (self == root)
		return err_trace(begin_root(spread));
	r = receive_share(spread, root, EXCHANGE_PARTIAL, self);
	for (uint32_t i = 0; i < spread->room->node_count && !r && !spread->is_straight; i++)
		if (i != self && i != root)
			r = receive_share(spread, i, EXCHANGE_RESULT, i);
	return err_trace(r);
}

/* Pieces of the own share, as they come. */
static int pass_on(struct spread *spread)
{
	struct exchange_room *room = spread->room;
	uint32_t self = room->node, root = spread->exchange->root;
	struct part share = share_of(spread, self);
	uint64_t count = piece_count(spread, share);

	for (uint64_t k = 0; k < count; k++) {
		int r;

		spread->op->suspect = root;
		r = net_lane_wait_received(room->peers[root].slabs[spread->exchange->slab], 1,
		                           spread->op->deadline_ns, spread->op->text);
		spread->received_counts[root]--;
		for (uint32_t i = 1; i < room->node_count && !r && !spread->is_straight; i++) {
			uint32_t peer = (self + i) % room->node_count;

			if (peer != root)
				r = send_part(spread, peer, EXCHANGE_RESULT,
				              spread->exchange->result_offset_bytes,
				              piece_of(spread, share, k));
		}
		if (r)
			return err_trace(r);
	}
	return 0;
}

static int await_all(struct spread *spread)
{
	for (uint32_t i = 0; i < spread->room->node_count; i++) {
		struct net_lane *lane = spread->room->peers[i].slabs[spread->exchange->slab];
		int r = 0;

		spread->op->suspect = i;
		if (spread->received_counts[i])
			r = net_lane_wait_received(lane, spread->received_counts[i],
			                           spread->op->deadline_ns, spread->op->text);
		if (!r && spread->sent_counts[i])
			r = net_lane_wait_sent(lane, spread->sent_counts[i],
			                       spread->op->deadline_ns, spread->op->text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* NET_BROADCAST, checked; the cards are on their way. */
int exchange_spread(struct exchange_op *op)
{
	struct spread spread = {
		.op = op,
		.room = op->room,
		.exchange = op->exchange,
		.bytes = op->exchange->element_count * zi_dtype_bytes(op->exchange->dtype),
	};
	int r;

	spread.is_straight = op->room->node_count == 2 || spread.bytes <= SHARES_SMALL_BYTES;
	r = begin(&spread);
	r = r ? r : exchange_cards_end(op);
	if (!r && op->room->node != op->exchange->root)
		r = pass_on(&spread);
	return r ? err_trace(r) : err_trace(await_all(&spread));
}
