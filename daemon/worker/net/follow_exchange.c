/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges that a group's calls are made of; see follow.c. Floor 3, of zinf-net. Owner: the
 * operations' thread. */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/follow_private.h"

/* Where a call has no deadline of its own left: the daemon ends it. */
#define FOLLOW_LONG_MS (24ull * 3600 * 1000)

/* Documented in follow_private.h, as are the others. */
void follow_exchange_init(struct follow *follow, uint32_t kind, const struct follow_card *call)
{
	follow->exchange = (struct net_exchange){
		.kind = kind,
		.dtype = call->dtype,
		.op = call->reduce_op,
		.rank_count = follow->shape.member_count,
		.root = follow->shape.nodes[call->root],
		.slab = NET_SLAB_DATA,
		.average = 1.0f / (float)follow->shape.member_count,
	};
	memcpy(follow->exchange.nodes, follow->shape.nodes, sizeof(follow->shape.nodes));
}

void follow_set_broadcast(struct follow *follow, const struct follow_card *call, uint64_t bytes)
{
	follow_exchange_init(follow, NET_REDUCE, call);
	follow->exchange.mode = NET_BROADCAST;
	follow->exchange.dtype = ZI_DTYPE_U8;
	follow->exchange.op = ZI_REDUCE_BOR;
	follow->exchange.rank_count = 1;
	follow->exchange.nodes[0] = (uint8_t)follow->exchange.root;
	follow->exchange.element_count = bytes;
}

int follow_explain(struct follow *follow, int r)
{
	struct zi_text why = *follow->text;

	if (r == -ECANCELED)
		*follow->suspect = NET_CULPRIT_NONE;
	if (!r || *follow->suspect >= follow->shape.node_count)
		return r;
	if (r == -ETIMEDOUT) {
		follow_say_late(follow, *follow->suspect, follow->text);
		return r;
	}
	return zi_text_error(follow->text, r, "call %u of group %u: %.150s (%s)", follow->sequence,
	                     follow->message->group, why.chars,
	                     follow_say_node(follow, *follow->suspect).chars);
}

int follow_begin(struct follow *follow, struct exchange_room *room,
                 const struct exchange_runs *runs)
{
	struct net_exchange *exchange = &follow->exchange;
	uint64_t now_ns = zi_clock_now_ns();
	int r;

	exchange->sequence = ++follow->worker->sequence;
	exchange->timeout_ms = FOLLOW_LONG_MS;
	if (follow->deadline_ns != ZI_DEADLINE_NEVER)
		exchange->timeout_ms = follow->deadline_ns > now_ns
		                               ? (follow->deadline_ns - now_ns) / ZI_NS_PER_MS + 1
		                               : 1;
	r = exchange_check(exchange, follow->shape.node, follow->shape.node_count,
	                   &follow->worker->slabs[exchange->slab], follow->text);
	r = r ? r : exchange_begin(room, exchange, runs, follow->text, follow->suspect);
	return err_trace(follow_explain(follow, r));
}

int follow_turn(struct follow *follow, struct exchange_room *room)
{
	return err_trace(
		follow_explain(follow, exchange_turn(room, follow->text, follow->suspect)));
}

int follow_end(struct follow *follow, struct exchange_room *room)
{
	return err_trace(follow_explain(follow, exchange_end(room, follow->text, follow->suspect)));
}

int follow_exchange(struct follow *follow)
{
	struct exchange_room *room = follow->worker->room;
	int r = follow_begin(follow, room, NULL);

	r = r ? r : follow_turn(follow, room);
	return r ? err_trace(r) : err_trace(follow_end(follow, room));
}
