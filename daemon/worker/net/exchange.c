/* SPDX-License-Identifier: Apache-2.0 */
/* Operations across nodes: their room, and those that only move; see exchange.h. Floor 3. */
#include "daemon/worker/net/exchange.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/exchange_private.h"

static int make_lanes(struct exchange_room *room, bool is_agreed)
{
	struct net_mesh *mesh = nodes_mesh(room->nodes);
	int r = 0;

	for (uint32_t i = 0; i < room->node_count && !r; i++) {
		if (i == room->node)
			continue;
		static_assert(offsetof(struct exchange_room, cards_in) ==
		                      offsetof(struct exchange_room, cards_out) +
		                              sizeof(room->cards_out),
		              "cards are one run of memory");
		if (!is_agreed)
			r = net_lane_new(mesh, i, room->cards_out,
			                 sizeof(room->cards_out) + sizeof(room->cards_in),
			                 &room->peers[i].cards);
		r = r ? r
		      : net_lane_new(mesh, i, room->ring, room->ring_bytes, &room->peers[i].ring);
	}
	return err_trace(r);
}

/* Documented in the header, as are all of these. */
uint64_t exchange_ring_bytes(uint32_t leaf_count, uint64_t share_bytes)
{
	uint64_t piece_bytes = ZI_MIN(share_bytes, EXCHANGE_PIECE_BYTES);

	return EXCHANGE_DEPTH * leaf_count * zi_align_up(piece_bytes, EXCHANGE_PAGE_BYTES);
}

int exchange_room_new(const struct exchange_room_options *options, struct exchange_room **ret_room)
{
	struct exchange_room *room = calloc(1, sizeof(*room));
	void *ring;
	int r;

	if (!room)
		return err_origin(-ENOMEM);
	room->nodes = options->nodes;
	room->node = options->node;
	room->node_count = options->node_count;
	room->ring_bytes = options->ring_bytes;
	ring = mmap(NULL, room->ring_bytes, PROT_READ | PROT_WRITE,
	            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ring == MAP_FAILED) {
		free(room);
		return err_origin(-ENOMEM);
	}
	room->ring = ring;
	r = finish_scratch_new(&room->scratch);
	r = r ? r : make_lanes(room, options->is_agreed);
	if (r) {
		(void)exchange_room_free(room);
		return err_trace(r);
	}
	*ret_room = room;
	return 0;
}

/* NULL-safe. Return: NULL. */
struct exchange_room *exchange_room_free(struct exchange_room *room)
{
	if (!room)
		return NULL;
	for (uint32_t i = 0; i < room->node_count; i++) {
		struct exchange_peer *peer = &room->peers[i];

		peer->cards = net_lane_free(peer->cards);
		peer->ring = net_lane_free(peer->ring);
		for (uint32_t k = 0; k < NET_SLABS_MAX; k++)
			peer->slabs[k] = net_lane_free(peer->slabs[k]);
	}
	room->scratch = finish_scratch_free(room->scratch);
	(void)munmap(room->ring, room->ring_bytes); /* Ours: cannot fail. */
	free(room);
	return NULL;
}

int exchange_room_map(struct exchange_room *room, uint32_t index, const struct exchange_slab *slab)
{
	int r = 0;

	assert(index < NET_SLABS_MAX);
	room->slabs[index] = *slab;
	for (uint32_t i = 0; i < room->node_count && !r; i++) {
		struct net_lane **lane = &room->peers[i].slabs[index];

		*lane = net_lane_free(*lane);
		if (i != room->node && slab->memory)
			r = net_lane_new(nodes_mesh(room->nodes), i, slab->memory, slab->bytes,
			                 lane);
	}
	return err_trace(r);
}

/* ---- transfers ---- */

static struct net_lane *lane_to(const struct exchange_room *room, uint32_t peer)
{
	return room->peers[peer].slabs[room->op.exchange.slab];
}

/* Documented in exchange_private.h, as are the other transfers. */
int exchange_send(struct exchange_room *room, uint32_t peer, enum exchange_stream stream,
                  uint64_t place, uint64_t bytes)
{
	room->op.suspect = peer;
	room->peers[peer].sent_count++;
	return err_trace(net_lane_send(lane_to(room, peer), exchange_slot(room, stream), place,
	                               bytes, room->op.text));
}

int exchange_receive(struct exchange_room *room, uint32_t peer, enum exchange_stream stream,
                     uint64_t place, uint64_t bytes)
{
	room->op.suspect = peer;
	room->peers[peer].received_count++;
	return err_trace(net_lane_receive(lane_to(room, peer), exchange_slot(room, stream), place,
	                                  bytes, room->op.text));
}

int exchange_await_received(struct exchange_room *room, uint32_t peer, uint32_t count)
{
	int r;

	if (!count)
		return 0;
	room->op.suspect = peer;
	r = net_lane_wait_received(lane_to(room, peer), count, room->op.deadline_ns, room->op.text);
	room->peers[peer].received_count -= count;
	return err_trace(r);
}

int exchange_await_sent(struct exchange_room *room)
{
	for (uint32_t i = 0; i < room->node_count; i++) {
		struct exchange_peer *peer = &room->peers[i];
		int r;

		if (!peer->sent_count)
			continue;
		room->op.suspect = i;
		r = net_lane_wait_sent(lane_to(room, i), peer->sent_count, room->op.deadline_ns,
		                       room->op.text);
		if (r)
			return err_trace(r);
		peer->sent_count = 0;
	}
	return 0;
}

/* ---- what only moves ---- */

static int begin_range(struct exchange_room *room, uint32_t peer, const struct net_range *sent,
                       const struct net_range *received)
{
	int r = 0;

	if (received->bytes)
		r = exchange_receive(room, peer, EXCHANGE_RESULT, received->offset_bytes,
		                     received->bytes);
	if (!r && sent->bytes)
		r = exchange_send(room, peer, EXCHANGE_RESULT, sent->offset_bytes, sent->bytes);
	return err_trace(r);
}

/* Those of a node match in their order, as all have the same slot. */
static int begin_moves(struct exchange_room *room, const struct exchange_runs *runs)
{
	const struct net_exchange *exchange = &room->op.exchange;
	int r = 0;

	for (uint32_t i = 1; i < room->node_count && !r; i++) {
		uint32_t peer = (room->node + i) % room->node_count;

		if (!runs)
			r = begin_range(room, peer, &exchange->sends[peer],
			                &exchange->receives[peer]);
		else
			for (uint32_t k = runs->firsts[peer]; k < runs->firsts[peer + 1] && !r; k++)
				r = begin_range(room, peer, &runs->sends[k], &runs->receives[k]);
	}
	return err_trace(r);
}

/* ---- operations ---- */

static void init(struct exchange_room *room, const struct net_exchange *exchange, bool is_agreed,
                 struct zi_text *text)
{
	struct exchange_op *op = &room->op;

	op->is_agreed = is_agreed;
	op->exchange = *exchange;
	op->deadline_ns = zi_clock_deadline_ns(exchange->timeout_ms * ZI_NS_PER_MS);
	op->text = text;
	op->suspect = NET_CULPRIT_NONE;
	for (uint32_t i = 0; i < room->node_count; i++)
		room->peers[i].sent_count = room->peers[i].received_count = 0;
}

static int begin(struct exchange_room *room, const struct exchange_runs *runs)
{
	if (room->op.exchange.kind == NET_MOVE)
		return err_trace(begin_moves(room, runs));
	if (room->op.exchange.mode == NET_BROADCAST)
		return err_trace(exchange_spread_begin(room));
	return err_trace(exchange_reduce_begin(room));
}

static int turn(struct exchange_room *room)
{
	if (room->op.exchange.kind == NET_MOVE)
		return 0;
	if (room->op.exchange.mode == NET_BROADCAST)
		return err_trace(exchange_spread_turn(room));
	return err_trace(exchange_reduce_turn(room));
}

static int end(struct exchange_room *room)
{
	int r = 0;

	for (uint32_t i = 0; i < room->node_count && !r; i++)
		r = exchange_await_received(room, i, room->peers[i].received_count);
	return r ? err_trace(r) : err_trace(exchange_await_sent(room));
}

static int explain(const struct exchange_room *room, int r, uint32_t *ret_suspect)
{
	/* Of two that call different things neither is more to blame. */
	if (r)
		*ret_suspect =
			r == -ECANCELED || r == -EINVAL ? NET_CULPRIT_NONE : room->op.suspect;
	return r;
}

/* Documented in the header, as are the others. */
int exchange_begin(struct exchange_room *room, const struct net_exchange *exchange,
                   const struct exchange_runs *runs, struct zi_text *text, uint32_t *ret_suspect)
{
	int r;

	init(room, exchange, true, text);
	r = exchange_cards_begin(room);
	r = r ? r : begin(room, runs);
	return err_trace(explain(room, r, ret_suspect));
}

int exchange_turn(struct exchange_room *room, struct zi_text *text, uint32_t *ret_suspect)
{
	room->op.text = text;
	return err_trace(explain(room, turn(room), ret_suspect));
}

int exchange_end(struct exchange_room *room, struct zi_text *text, uint32_t *ret_suspect)
{
	room->op.text = text;
	return err_trace(explain(room, end(room), ret_suspect));
}

int exchange_run(struct exchange_room *room, const struct net_exchange *exchange,
                 struct zi_text *text, uint32_t *ret_suspect)
{
	bool is_move = exchange->kind == NET_MOVE;
	int r;

	init(room, exchange, false, text);
	r = exchange_cards_begin(room);
	/* Lengths are compared before anything is sent: Gloo's thread would not bear another. */
	if (!r && is_move)
		r = exchange_cards_end(room);
	r = r ? r : begin(room, NULL);
	if (!r && !is_move)
		r = exchange_cards_end(room);
	r = r ? r : turn(room);
	r = r ? r : end(room);
	return err_trace(explain(room, r, ret_suspect));
}
