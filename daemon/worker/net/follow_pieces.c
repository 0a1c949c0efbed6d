/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's call in pieces through the slab; see follow.c, common/wire/far.h for what lies where.
 * Floor 3, of zinf-net. Owner: the operations' thread.
 *
 *   begun   all members here have staged it: its transfers are under way
 *   turned  this node has finished its share for the others, and sent it
 *   ended   all is here and gone: members here may take it
 *
 * Up to ZI_FAR_AHEAD pieces are begun at a time, so that the network always has something to carry
 * while members copy and this thread computes; each has a room, that of its slot.
 */
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/finish.h"
#include "daemon/worker/net/follow_private.h"
#include "daemon/worker/shares.h"

/* A call in pieces. */
struct pieces {
	const struct follow_card *call;
	struct zi_far_cut cut;
	uint64_t begun, turned, ended;
};

/* Of this node's leaves of the tree, from what its ranks staged. */
static void make_partials(const struct follow *follow, const struct zi_far_cut *cut,
                          const struct zi_far_piece *piece, const struct follow_card *call,
                          uint64_t element_count)
{
	const struct zi_far_shape *shape = &follow->shape;
	char *slab = follow->slab->memory;

	for (uint32_t i = 0; i < follow->plan.leaf_count; i++) {
		const struct subtree *leaf = &follow->plan.leaves[i];
		const void *sources[ZI_WORLD_MAX];

		if (leaf->node != shape->node)
			continue;
		for (uint32_t k = 0; k < leaf->count; k++)
			sources[k] =
				slab + zi_far_source_at(shape, cut, piece,
			                                zi_far_local(shape, leaf->first + k), 0);
		finish_partial(leaf, sources,
		               slab + piece->partial +
		                       shares_partial_offset(&follow->plan, shape->node, i,
		                                             element_count, call->dtype),
		               element_count, call->dtype, call->reduce_op);
	}
}

static void set_join(struct follow *follow, const struct zi_far_cut *cut,
                     const struct zi_far_piece *piece, const struct follow_card *call)
{
	bool is_scatter = call->operation == ZI_COLL_REDUCE_SCATTER;
	uint64_t element_count = piece->count * (is_scatter ? follow->shape.member_count : 1);

	follow_exchange_init(follow, NET_REDUCE, call);
	follow->exchange.partial_offset_bytes = piece->partial;
	/* Of one rank its own elements do (finish.h). */
	if (follow->shape.self_count == 1)
		follow->exchange.partial_offset_bytes = piece->source;
	else
		make_partials(follow, cut, piece, call, element_count);
	follow->exchange.mode = is_scatter                          ? NET_SCATTER
	                        : call->operation == ZI_COLL_REDUCE ? NET_ROOT
	                                                            : NET_ALL;
	follow->exchange.element_count = element_count;
	follow->exchange.result_offset_bytes = piece->result;
}

static void set_broadcast(struct follow *follow, const struct zi_far_piece *piece,
                          const struct follow_card *call)
{
	follow_set_broadcast(follow, call, piece->block_bytes);
	follow->exchange.partial_offset_bytes = piece->source;
	follow->exchange.result_offset_bytes = piece->result;
}

/* What goes to node @node, and comes from it. */
static void set_ranges(struct follow *follow, const struct zi_far_piece *piece,
                       const struct follow_card *call, uint32_t node)
{
	const struct zi_far_shape *shape = &follow->shape;
	struct net_range *sent = &follow->exchange.sends[node];
	struct net_range *received = &follow->exchange.receives[node];
	uint64_t bytes = piece->block_bytes, here = shape->self_count;
	uint64_t first = shape->firsts[node], there = shape->counts[node];
	uint32_t root = shape->nodes[call->root];

	switch (call->operation) {
	case ZI_COLL_ALL_GATHER:
	case ZI_COLL_GATHER:
		*sent = (struct net_range){ piece->source, here * bytes };
		*received = (struct net_range){ piece->result + first * bytes, there * bytes };
		if (call->operation == ZI_COLL_GATHER && node != root)
			sent->bytes = 0;
		if (call->operation == ZI_COLL_GATHER && shape->node != root)
			received->bytes = 0;
		break;
	case ZI_COLL_SCATTER:
		*sent = (struct net_range){ piece->source + first * bytes, there * bytes };
		*received = (struct net_range){ piece->result, here * bytes };
		if (shape->node != root)
			sent->bytes = 0;
		if (node != root)
			received->bytes = 0;
		break;
	default:
		*sent = (struct net_range){ piece->source + first * here * bytes,
			                    there * here * bytes };
		*received = (struct net_range){ piece->result + first * here * bytes,
			                        there * here * bytes };
		break;
	}
}

static void set_moves(struct follow *follow, const struct zi_far_piece *piece,
                      const struct follow_card *call)
{
	follow_exchange_init(follow, NET_MOVE, call);
	for (uint32_t i = 0; i < follow->shape.node_count; i++)
		if (i != follow->shape.node)
			set_ranges(follow, piece, call, i);
}

static struct exchange_room *room_of(const struct follow *follow, uint64_t index)
{
	return follow->rooms[index % ZI_FAR_AHEAD];
}

static int begin(struct follow *follow, struct pieces *pieces)
{
	const struct follow_card *call = pieces->call;
	struct exchange_room *room = room_of(follow, pieces->begun);
	struct zi_far_piece piece;
	int r;

	zi_far_piece_init(&piece, &pieces->cut, pieces->begun++);
	if (call->operation == ZI_COLL_ALL_TO_ALLV)
		return err_trace(follow_begin_uneven(follow, room, &pieces->cut, &piece, call));
	if (zi_coll_is_join(call->operation))
		set_join(follow, &pieces->cut, &piece, call);
	else if (call->operation == ZI_COLL_BROADCAST)
		set_broadcast(follow, &piece, call);
	else
		set_moves(follow, &piece, call);
	r = follow_begin(follow, room, NULL);
	return err_trace(r);
}

/* The step of a member that has staged piece @index. */
static uint32_t step_of(const struct pieces *pieces, uint64_t index)
{
	return (uint32_t)(pieces->cut.number + index + 1);
}

static bool is_staged(const struct follow *follow, const struct pieces *pieces)
{
	uint32_t step = step_of(pieces, pieces->begun);

	for (uint32_t i = 0; i < follow->shape.self_count; i++)
		if (!zi_meet_has_come(&follow->meet.members[i].step.value, step))
			return false;
	return true;
}

static int await_staged(struct follow *follow, const struct pieces *pieces)
{
	int r = 0;

	for (uint32_t i = 0; i < follow->shape.self_count && !r; i++)
		r = follow_await_step(follow, i, step_of(pieces, pieces->begun));
	return err_trace(r);
}

static int end(struct follow *follow, struct pieces *pieces)
{
	uint32_t *word = &follow->meet.members[follow->meet.self].step.value;
	int r = follow_end(follow, room_of(follow, pieces->ended));

	if (r)
		return err_trace(r);
	zi_meet_tell(&follow->meet, word, step_of(pieces, pieces->ended++));
	return 0;
}

/* Documented in follow_private.h. */
int follow_run_pieces(struct follow *follow, const struct follow_card *call)
{
	struct pieces pieces = { .call = call };
	uint64_t count;
	int r = 0;

	zi_far_cut_init(&pieces.cut, &follow->shape, follow->slab->bytes, call->operation,
	                call->dtype, call->element_count);
	pieces.cut.number = zi_far_number(follow->steps, follow->sequence);
	count = pieces.cut.piece_count;
	while (pieces.ended < count && !r) {
		if (pieces.begun < count && pieces.begun < pieces.ended + ZI_FAR_AHEAD &&
		    is_staged(follow, &pieces))
			r = begin(follow, &pieces);
		/* The others' results of a piece come at about the time of the next one's turn. */
		else if (pieces.turned < pieces.begun && pieces.turned < pieces.ended + 2)
			r = follow_turn(follow, room_of(follow, pieces.turned++));
		else if (pieces.ended < pieces.turned)
			r = end(follow, &pieces);
		else
			r = await_staged(follow, &pieces);
	}
	follow->steps += count;
	return err_trace(r);
}

/* What the largest piece's partials need. An owner's share of them all is no longer than the slot
 * in which they lie, but for types that are joined in wider ones (f16, bf16); and what is small has
 * no shares, but every node all of it (shares.h), in four bytes an element. */
static uint64_t ring_bytes(const struct follow *follow)
{
	uint32_t leaf_count = follow->plan.leaf_count;
	uint64_t slot_bytes = zi_far_slot_bytes(follow->slab->bytes);

	return exchange_ring_bytes(leaf_count,
	                           ZI_MAX(2 * slot_bytes / leaf_count, 4 * SHARES_SMALL_BYTES));
}

/* Documented in follow_private.h. */
int follow_pieces_begin(struct follow *follow)
{
	struct exchange_room_options options = { .nodes = follow->worker->nodes,
		                                 .node = follow->shape.node,
		                                 .node_count = follow->shape.node_count,
		                                 .ring_bytes = ring_bytes(follow),
		                                 .is_agreed = true };
	int r = 0;

	for (uint32_t i = 0; i < ZI_FAR_AHEAD && !r; i++) {
		r = exchange_room_new(&options, &follow->rooms[i]);
		r = r ? r : exchange_room_map(follow->rooms[i], NET_SLAB_DATA, follow->slab);
	}
	if (!r)
		return 0;
	return err_trace(zi_text_error(follow->text, r, "no memory for the pieces of %u nodes",
	                               follow->shape.node_count));
}

/* Documented in follow_private.h. */
void follow_pieces_end(struct follow *follow)
{
	for (uint32_t i = 0; i < ZI_FAR_AHEAD; i++)
		follow->rooms[i] = exchange_room_free(follow->rooms[i]);
}
