/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's call whose data go straight from and to the ranks' arenas, as one exchange; see
 * follow.c, common/wire/far.h. Floor 3, of zinf-net. Owner: the operations' thread.
 *
 * With one member on each node what a node sends is what its member has: nothing need be staged,
 * joined or handed on here. Where a member has more company, or its data elsewhere, or has no room
 * in which a part of the result could be finished (reduce, but for the root), all nodes take the
 * way through the slab.
 */
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/net/follow_private.h"

/* Partials begin at whole words (exchange_check()). */
#define DIRECT_ALIGN_BYTES 8u

static bool is_in_arenas(const struct follow *follow, uint64_t place, uint64_t bytes)
{
	const struct exchange_slab *arenas = &follow->worker->slabs[NET_SLAB_ARENAS];

	return place % DIRECT_ALIGN_BYTES == 0 && bytes <= arenas->bytes &&
	       place <= arenas->bytes - bytes;
}

static uint32_t self_of(const struct follow *follow)
{
	return follow->shape.members[0];
}

/* Once a call: the rank may write to its post at any time, and what was judged is used. */
static void take_places(struct follow *follow)
{
	const struct zi_board_post *post = zi_meet_post_of(&follow->meet, 0, follow->sequence);
	struct zi_far_places *places = &follow->places;

	*places = (struct zi_far_places){ ZI_BOARD_NOWHERE, ZI_BOARD_NOWHERE };
	if (post->payload_bytes == sizeof(*places))
		memcpy(places,
		       zi_meet_payload_of(&follow->meet, 0, follow->sequence, sizeof(*places)),
		       sizeof(*places));
}

/* Where the result of an operation that joins would begin, were it one of all members' blocks. */
static uint64_t result_of(const struct follow *follow, const struct follow_card *call)
{
	uint64_t block_bytes = call->element_count * zi_dtype_bytes(call->dtype);

	return call->operation == ZI_COLL_REDUCE_SCATTER
	               ? follow->places.target - self_of(follow) * block_bytes
	               : follow->places.target;
}

static void set_join(struct follow *follow, const struct follow_card *call)
{
	bool is_scatter = call->operation == ZI_COLL_REDUCE_SCATTER;

	follow_exchange_init(follow, NET_REDUCE, call);
	follow->exchange.mode = is_scatter ? NET_SCATTER : NET_ALL;
	follow->exchange.element_count =
		call->element_count * (is_scatter ? follow->shape.member_count : 1);
	follow->exchange.partial_offset_bytes = follow->places.source;
	follow->exchange.result_offset_bytes = result_of(follow, call);
}

static void set_moves(struct follow *follow, const struct follow_card *call)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	uint64_t bytes = call->element_count * zi_dtype_bytes(call->dtype);
	uint32_t self = self_of(follow);
	bool sends_each = zi_coll_is_for_each(&shape->source);
	bool takes_each = zi_coll_is_for_each(&shape->target);

	follow_exchange_init(follow, NET_MOVE, call);
	for (uint32_t i = 0; i < follow->shape.member_count; i++) {
		uint32_t node = follow->shape.nodes[i];

		if (i == self)
			continue;
		if (zi_coll_is_holder(&shape->source, self, call->root) &&
		    zi_coll_is_holder(&shape->target, i, call->root))
			follow->exchange.sends[node] = (struct net_range){
				follow->places.source + (sends_each ? i * bytes : 0), bytes
			};
		if (zi_coll_is_holder(&shape->source, i, call->root) &&
		    zi_coll_is_holder(&shape->target, self, call->root))
			follow->exchange.receives[node] = (struct net_range){
				follow->places.target + (takes_each ? i * bytes : 0), bytes
			};
	}
}

static void set_exchange(struct follow *follow, const struct follow_card *call)
{
	bool is_root = call->root == self_of(follow);

	if (zi_coll_is_join(call->operation)) {
		set_join(follow, call);
	} else if (call->operation == ZI_COLL_BROADCAST) {
		follow_set_broadcast(follow, call,
		                     call->element_count * zi_dtype_bytes(call->dtype));
		follow->exchange.partial_offset_bytes = follow->exchange.result_offset_bytes =
			is_root ? follow->places.source : follow->places.target;
	} else {
		set_moves(follow, call);
	}
	follow->exchange.slab = NET_SLAB_ARENAS;
}

static bool has_places(const struct follow *follow, const struct follow_card *call)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	uint64_t source_bytes, target_bytes;

	if (!zi_coll_bytes(&(struct zi_coll_lengths){ .operation = call->operation,
	                                              .member_count = follow->shape.member_count,
	                                              .width = zi_dtype_bytes(call->dtype),
	                                              .element_count = call->element_count },
	                   &source_bytes, &target_bytes))
		return false;
	if (zi_coll_is_holder(&shape->source, self_of(follow), call->root) &&
	    !is_in_arenas(follow, follow->places.source, source_bytes))
		return false;
	if (zi_coll_is_holder(&shape->target, self_of(follow), call->root) &&
	    !is_in_arenas(follow, follow->places.target, target_bytes))
		return false;
	/* In place what comes would run over what is still to go. */
	if (call->operation == ZI_COLL_ALL_TO_ALL && follow->places.source == follow->places.target)
		return false;
	return call->operation != ZI_COLL_REDUCE_SCATTER ||
	       is_in_arenas(follow, result_of(follow, call), source_bytes);
}

/* Documented in follow_private.h. */
bool follow_can_direct(struct follow *follow, const struct follow_card *call)
{
	struct zi_text text; /* Another way is taken. */

	take_places(follow);
	if (follow->shape.node_count != follow->shape.member_count || !call->element_count ||
	    !zi_coll_has_data(call->operation) || zi_coll_is_counted(call->operation) ||
	    call->operation == ZI_COLL_REDUCE || call->dtype < ZI_DTYPE_F32 ||
	    call->dtype >= _ZI_DTYPE_COUNT || !has_places(follow, call))
		return false;
	/* What it would be refused for is this node's alone, and no reason to break the group. */
	set_exchange(follow, call);
	return exchange_check(&follow->exchange, follow->shape.node, follow->shape.node_count,
	                      &follow->worker->slabs[NET_SLAB_ARENAS], &text) == 0;
}

/* Documented in follow_private.h. */
int follow_run_direct(struct follow *follow, const struct follow_card *call)
{
	set_exchange(follow, call);
	return err_trace(follow_exchange(follow));
}
