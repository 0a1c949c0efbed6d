/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's call whose data go straight from and to the ranks' arenas, as one exchange; see
 * follow.c, common/wire/far.h. Floor 3, of zinf-net. Owner: the operations' thread.
 *
 * With one member on each node what a node sends is what its member has: nothing need be staged,
 * joined or handed on here. Nor need it of a node of several where each block that goes to another
 * node has one taker there; blocks within a node its members take themselves. Else, and where data
 * lie elsewhere, or a member has no room in which a part of the result could be finished (reduce,
 * but for the root), all nodes take the way through the slab.
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

/* Of a node with one member. */
static uint32_t self_of(const struct follow *follow)
{
	return follow->shape.members[0];
}

/* Once a call: a rank may write to its post at any time, and what was judged is used. */
static void take_places(struct follow *follow)
{
	for (uint32_t i = 0; i < follow->shape.self_count; i++) {
		const struct zi_board_post *post =
			zi_meet_post_of(&follow->meet, i, follow->sequence);
		struct zi_far_places *places = &follow->places[i];

		*places = (struct zi_far_places){ ZI_BOARD_NOWHERE, ZI_BOARD_NOWHERE };
		if (post->payload_bytes == sizeof(*places))
			memcpy(places,
			       zi_meet_payload_of(&follow->meet, i, follow->sequence,
			                          sizeof(*places)),
			       sizeof(*places));
	}
}

/* Where the result of an operation that joins would begin, were it one of all members' blocks. */
static uint64_t result_of(const struct follow *follow, const struct follow_card *call)
{
	uint64_t block_bytes = call->element_count * zi_dtype_bytes(call->dtype);

	return call->operation == ZI_COLL_REDUCE_SCATTER
	               ? follow->places[0].target - self_of(follow) * block_bytes
	               : follow->places[0].target;
}

static void set_join(struct follow *follow, const struct follow_card *call)
{
	bool is_scatter = call->operation == ZI_COLL_REDUCE_SCATTER;

	follow_exchange_init(follow, NET_REDUCE, call);
	follow->exchange.mode = is_scatter ? NET_SCATTER : NET_ALL;
	follow->exchange.element_count =
		call->element_count * (is_scatter ? follow->shape.member_count : 1);
	follow->exchange.partial_offset_bytes = follow->places[0].source;
	follow->exchange.result_offset_bytes = result_of(follow, call);
}

/* Of what only moves the ranges are run_moves()'s. */
static void set_exchange(struct follow *follow, const struct follow_card *call)
{
	bool is_root = call->root == self_of(follow);

	if (zi_coll_is_join(call->operation)) {
		set_join(follow, call);
	} else if (call->operation == ZI_COLL_BROADCAST) {
		follow_set_broadcast(follow, call,
		                     call->element_count * zi_dtype_bytes(call->dtype));
		follow->exchange.partial_offset_bytes = follow->exchange.result_offset_bytes =
			is_root ? follow->places[0].source : follow->places[0].target;
	} else {
		follow_exchange_init(follow, NET_MOVE, call);
	}
	follow->exchange.slab = NET_SLAB_ARENAS;
}

/* Whether the @local-th member here has its data where they can go from and to. */
static bool has_places(const struct follow *follow, const struct follow_card *call, uint32_t local)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	const struct zi_far_places *places = &follow->places[local];
	uint32_t member = follow->shape.members[local];
	uint64_t source_bytes, target_bytes;

	if (!zi_coll_bytes(&(struct zi_coll_lengths){ .operation = call->operation,
	                                              .member_count = follow->shape.member_count,
	                                              .width = zi_dtype_bytes(call->dtype),
	                                              .element_count = call->element_count },
	                   &source_bytes, &target_bytes))
		return false;
	if (zi_coll_is_holder(&shape->source, member, call->root) &&
	    !is_in_arenas(follow, places->source, source_bytes))
		return false;
	if (zi_coll_is_holder(&shape->target, member, call->root) &&
	    !is_in_arenas(follow, places->target, target_bytes))
		return false;
	/* In place what comes would run over what is still to go. */
	if (call->operation == ZI_COLL_ALL_TO_ALL && places->source == places->target)
		return false;
	return call->operation != ZI_COLL_REDUCE_SCATTER ||
	       is_in_arenas(follow, result_of(follow, call), source_bytes);
}

/* Documented in follow_private.h. */
bool follow_can_direct(struct follow *follow, const struct follow_card *call)
{
	struct zi_text text; /* Another way is taken. */

	if (!zi_far_can_be_direct(&follow->shape, call->operation) || !call->element_count ||
	    call->dtype < ZI_DTYPE_F32 || call->dtype >= _ZI_DTYPE_COUNT)
		return false;
	take_places(follow);
	for (uint32_t i = 0; i < follow->shape.self_count; i++)
		if (!has_places(follow, call, i))
			return false;
	/* What it would be refused for is this node's alone, and no reason to break the group. */
	set_exchange(follow, call);
	return exchange_check(&follow->exchange, follow->shape.node, follow->shape.node_count,
	                      &follow->worker->slabs[NET_SLAB_ARENAS], &text) == 0;
}

/* Within what has_places() saw. */
static struct net_range block_of(const struct follow *follow, const void *arg, uint32_t from,
                                 uint32_t to)
{
	const struct follow_card *call = arg;
	const struct zi_far_shape *shape = &follow->shape;
	const struct zi_coll_shape *operation = zi_coll_shape_of(call->operation);
	uint64_t bytes = call->element_count * zi_dtype_bytes(call->dtype);
	uint64_t block;

	if (!zi_coll_is_holder(&operation->source, from, call->root) ||
	    !zi_coll_is_holder(&operation->target, to, call->root))
		return (struct net_range){ 0, 0 };
	if (zi_far_is_here(shape, from)) {
		block = zi_coll_is_for_each(&operation->source) ? to : 0;
		return (struct net_range){
			follow->places[zi_far_local(shape, from)].source + block * bytes, bytes
		};
	}
	block = zi_coll_is_for_each(&operation->target) ? from : 0;
	return (struct net_range){ follow->places[zi_far_local(shape, to)].target + block * bytes,
		                   bytes };
}

/* Documented in follow_private.h. */
int follow_run_direct(struct follow *follow, const struct follow_card *call)
{
	struct exchange_room *room = follow->worker->room;
	struct follow_blocks blocks;
	bool is_move;
	int r;

	set_exchange(follow, call);
	is_move = follow->exchange.kind == NET_MOVE;
	if (is_move)
		follow_blocks_init(&blocks, follow, block_of, call);
	r = follow_begin(follow, room, is_move ? &blocks.runs : NULL);
	r = r ? r : follow_turn(follow, room);
	return r ? err_trace(r) : err_trace(follow_end(follow, room));
}
