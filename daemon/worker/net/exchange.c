/* SPDX-License-Identifier: Apache-2.0 */
/* Operations across nodes: their room, and those that only move; see exchange.h. Floor 3. */
#include "daemon/worker/net/exchange.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/exchange_private.h"

static int make_lanes(struct exchange_room *room)
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
		r = net_lane_new(mesh, i, room->cards_out,
		                 sizeof(room->cards_out) + sizeof(room->cards_in),
		                 &room->peers[i].cards);
		r = r ? r
		      : net_lane_new(mesh, i, room->ring, EXCHANGE_RING_BYTES,
		                     &room->peers[i].ring);
	}
	return err_trace(r);
}

/* Documented in the header, as are all of these. */
int exchange_room_new(struct nodes *nodes, uint32_t node, uint32_t node_count,
                      struct exchange_room **ret_room)
{
	struct exchange_room *room = calloc(1, sizeof(*room));
	void *ring;
	int r;

	if (!room)
		return err_origin(-ENOMEM);
	room->nodes = nodes;
	room->node = node;
	room->node_count = node_count;
	ring = mmap(NULL, EXCHANGE_RING_BYTES, PROT_READ | PROT_WRITE,
	            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ring == MAP_FAILED) {
		free(room);
		return err_origin(-ENOMEM);
	}
	room->ring = ring;
	r = finish_scratch_new(&room->scratch);
	r = r ? r : make_lanes(room);
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
	(void)munmap(room->ring, EXCHANGE_RING_BYTES); /* Ours: cannot fail. */
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

static int begin_moves(struct exchange_op *op)
{
	const struct net_exchange *exchange = op->exchange;
	struct exchange_room *room = op->room;
	uint64_t slot = exchange_slot(op, EXCHANGE_RESULT);
	int r = 0;

	for (uint32_t i = 1; i < room->node_count && !r; i++) {
		uint32_t to = (room->node + i) % room->node_count;

		op->suspect = to;
		if (exchange->receives[to].bytes)
			r = net_lane_receive(room->peers[to].slabs[exchange->slab], slot,
			                     exchange->receives[to].offset_bytes,
			                     exchange->receives[to].bytes, op->text);
		if (!r && exchange->sends[to].bytes)
			r = net_lane_send(room->peers[to].slabs[exchange->slab], slot,
			                  exchange->sends[to].offset_bytes,
			                  exchange->sends[to].bytes, op->text);
	}
	return err_trace(r);
}

static int move(struct exchange_op *op)
{
	const struct net_exchange *exchange = op->exchange;
	struct exchange_room *room = op->room;
	int r;

	/* Lengths are compared before anything is sent: Gloo's thread would not bear another. */
	r = exchange_cards_end(op);
	r = r ? r : begin_moves(op);
	for (uint32_t i = 0; i < room->node_count && !r; i++) {
		struct net_lane *lane = room->peers[i].slabs[exchange->slab];

		op->suspect = i;
		if (i != room->node && exchange->receives[i].bytes)
			r = net_lane_wait_received(lane, 1, op->deadline_ns, op->text);
		if (i != room->node && exchange->sends[i].bytes && !r)
			r = net_lane_wait_sent(lane, 1, op->deadline_ns, op->text);
	}
	return err_trace(r);
}

static int run(struct exchange_op *op)
{
	if (op->exchange->kind == NET_MOVE)
		return err_trace(move(op));
	if (op->exchange->mode == NET_BROADCAST)
		return err_trace(exchange_spread(op));
	return err_trace(exchange_reduce(op));
}

int exchange_run(struct exchange_room *room, const struct net_exchange *exchange, bool is_agreed,
                 struct zi_text *text, uint32_t *ret_suspect)
{
	struct exchange_op op = { .room = room,
		                  .exchange = exchange,
		                  .is_agreed = is_agreed,
		                  .deadline_ns =
		                          zi_clock_deadline_ns(exchange->timeout_ms * ZI_NS_PER_MS),
		                  .text = text,
		                  .suspect = NET_CULPRIT_NONE };
	int r = exchange_cards_begin(&op);

	if (!r)
		r = run(&op);
	if (!r)
		return 0;
	/* Of two that call different things neither is more to blame. */
	*ret_suspect = r == -ECANCELED || r == -EINVAL ? NET_CULPRIT_NONE : op.suspect;
	return err_trace(r);
}
