/* SPDX-License-Identifier: Apache-2.0 */
/* An operation that moves several runs of bytes between two nodes; see exchange.h. Floor 3, of
 * zinf-net. Owner: the operations' thread. */
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/exchange_private.h"

static bool is_within(const struct exchange_slab *slab, const struct net_range *range)
{
	return range->bytes <= slab->bytes && range->offset_bytes <= slab->bytes - range->bytes;
}

/* Those of a node match in their order, as all have the same slot. */
static int begin_node(struct exchange_op *op, const struct exchange_runs *runs, uint32_t node)
{
	struct net_lane *lane = op->room->peers[node].slabs[op->exchange->slab];
	const struct exchange_slab *slab = &op->room->slabs[op->exchange->slab];
	uint64_t slot = exchange_slot(op, EXCHANGE_RESULT);
	int r = 0;

	op->suspect = node;
	for (uint32_t i = runs->firsts[node]; i < runs->firsts[node + 1] && !r; i++) {
		const struct net_range *sent = &runs->sends[i], *received = &runs->receives[i];

		assert(is_within(slab, sent) && is_within(slab, received));
		if (received->bytes)
			r = net_lane_receive(lane, slot, received->offset_bytes, received->bytes,
			                     op->text);
		if (!r && sent->bytes)
			r = net_lane_send(lane, slot, sent->offset_bytes, sent->bytes, op->text);
	}
	return err_trace(r);
}

static int end_node(struct exchange_op *op, const struct exchange_runs *runs, uint32_t node)
{
	struct net_lane *lane = op->room->peers[node].slabs[op->exchange->slab];
	uint32_t sent_count = 0, received_count = 0;
	int r;

	for (uint32_t i = runs->firsts[node]; i < runs->firsts[node + 1]; i++) {
		sent_count += runs->sends[i].bytes > 0;
		received_count += runs->receives[i].bytes > 0;
	}
	op->suspect = node;
	r = net_lane_wait_received(lane, received_count, op->deadline_ns, op->text);
	r = r ? r : net_lane_wait_sent(lane, sent_count, op->deadline_ns, op->text);
	return err_trace(r);
}

/* Documented in exchange.h. */
int exchange_run_uneven(struct exchange_room *room, const struct net_exchange *exchange,
                        const struct exchange_runs *runs, struct zi_text *text,
                        uint32_t *ret_suspect)
{
	struct exchange_op op = { .room = room,
		                  .exchange = exchange,
		                  .is_agreed = true,
		                  .deadline_ns =
		                          zi_clock_deadline_ns(exchange->timeout_ms * ZI_NS_PER_MS),
		                  .text = text,
		                  .suspect = NET_CULPRIT_NONE };
	int r = exchange_cards_begin(&op);

	for (uint32_t i = 1; i < room->node_count && !r; i++)
		r = begin_node(&op, runs, (room->node + i) % room->node_count);
	for (uint32_t i = 0; i < room->node_count && !r; i++)
		if (i != room->node)
			r = end_node(&op, runs, i);
	if (r)
		*ret_suspect = r == -ECANCELED ? NET_CULPRIT_NONE : op.suspect;
	return err_trace(r);
}
