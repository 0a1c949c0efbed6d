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

struct part {
	uint64_t first, bytes;
};

/* Of the nodes but the root, in their order, @node's place. */
static uint32_t place_of(const struct exchange_room *room, uint32_t node)
{
	return node < room->op.exchange.root ? node : node - 1;
}

/* What @node has from the root and passes on. */
static struct part share_of(const struct exchange_room *room, uint32_t node)
{
	const struct exchange_spread *spread = &room->op.spread;
	uint32_t others = room->node_count - 1, place = place_of(room, node);
	uint64_t lines = spread->bytes / ZI_LINE_BYTES;
	uint64_t first = lines * place / others * ZI_LINE_BYTES;
	uint64_t end = lines * (place + 1) / others * ZI_LINE_BYTES;

	if (spread->is_straight)
		return (struct part){ 0, spread->bytes };
	if (place + 1 == others)
		end = spread->bytes;
	return (struct part){ first, end - first };
}

/* What nobody passes on need not be in pieces. */
static uint64_t piece_bytes(const struct exchange_room *room)
{
	return room->op.spread.is_straight ? room->op.spread.bytes : EXCHANGE_PIECE_BYTES;
}

static struct part piece_of(const struct exchange_room *room, struct part share, uint64_t index)
{
	uint64_t skipped = index * piece_bytes(room);

	return (struct part){ share.first + skipped,
		              ZI_MIN(share.bytes - skipped, piece_bytes(room)) };
}

static uint64_t piece_count(const struct exchange_room *room, struct part share)
{
	return share.bytes ? (share.bytes - 1) / piece_bytes(room) + 1 : 0;
}

/* All that @peer sends of the share of node @owner. */
static int receive_share(struct exchange_room *room, uint32_t peer, enum exchange_stream stream,
                         uint32_t owner)
{
	struct part share = share_of(room, owner);
	uint64_t count = piece_count(room, share);
	int r = 0;

	for (uint64_t k = 0; k < count && !r; k++) {
		struct part part = piece_of(room, share, k);

		r = exchange_receive(room, peer, stream,
		                     room->op.exchange.result_offset_bytes + part.first,
		                     part.bytes);
	}
	return err_trace(r);
}

/* By turns, so that no node waits for the whole share of another. */
static int begin_root(struct exchange_room *room)
{
	const struct net_exchange *exchange = &room->op.exchange;
	bool is_any = true;
	int r = 0;

	for (uint64_t k = 0; is_any && !r; k++) {
		is_any = false;
		for (uint32_t i = 1; i < room->node_count && !r; i++) {
			uint32_t peer = (exchange->root + i) % room->node_count;
			struct part share = share_of(room, peer), part;

			if (k >= piece_count(room, share))
				continue;
			is_any = true;
			part = piece_of(room, share, k);
			r = exchange_send(room, peer, EXCHANGE_PARTIAL,
			                  exchange->partial_offset_bytes + part.first, part.bytes);
		}
	}
	return err_trace(r);
}

/* Documented in exchange_private.h, as is the turn. */
int exchange_spread_begin(struct exchange_room *room)
{
	const struct net_exchange *exchange = &room->op.exchange;
	struct exchange_spread *spread = &room->op.spread;
	uint32_t self = room->node, root = exchange->root;
	int r;

	spread->bytes = exchange->element_count * zi_dtype_bytes(exchange->dtype);
	spread->is_straight = room->node_count == 2 || spread->bytes <= SHARES_SMALL_BYTES;
	if (self == root)
		return err_trace(begin_root(room));
	r = receive_share(room, root, EXCHANGE_PARTIAL, self);
	for (uint32_t i = 0; i < room->node_count && !r && !spread->is_straight; i++)
		if (i != self && i != root)
			r = receive_share(room, i, EXCHANGE_RESULT, i);
	return err_trace(r);
}

/* Pieces of the own share are passed on as they come. */
int exchange_spread_turn(struct exchange_room *room)
{
	uint32_t self = room->node, root = room->op.exchange.root;
	struct part share;
	int r = 0;

	if (self == root || room->op.spread.is_straight)
		return 0;
	share = share_of(room, self);
	for (uint64_t k = 0; k < piece_count(room, share) && !r; k++) {
		struct part part = piece_of(room, share, k);

		r = exchange_await_received(room, root, 1);
		for (uint32_t i = 1; i < room->node_count && !r; i++) {
			uint32_t peer = (self + i) % room->node_count;

			if (peer != root)
				r = exchange_send(room, peer, EXCHANGE_RESULT,
				                  room->op.exchange.result_offset_bytes +
				                          part.first,
				                  part.bytes);
		}
	}
	return err_trace(r);
}
