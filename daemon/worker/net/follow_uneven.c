/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece of a group's all_to_allv: each block has its place as if all were as long as the longest
 * (common/wire/far.h), and as much of it travels as there is; see follow.c. Floor 3, of zinf-net.
 * Owner: the operations' thread.
 */
#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/net/follow_private.h"

/* Blocks between members here and members elsewhere. */
#define UNEVEN_RUNS_MAX (ZI_WORLD_MAX / 2 * (ZI_WORLD_MAX / 2))

/* Bytes in @piece of the block from member @from to member @to. */
static uint64_t bytes_of(const struct follow *follow, const struct zi_far_cut *cut,
                         const struct zi_far_piece *piece, uint32_t from, uint32_t to)
{
	const struct zi_far_shape *shape = &follow->shape;
	uint64_t count = follow_counts(follow)[shape->orders[from] * 2 * shape->member_count + to];

	return zi_far_part(piece, count) * cut->width;
}

/* The @index-th member of node @node. */
static uint32_t member_of(const struct zi_far_shape *shape, uint32_t node, uint32_t index)
{
	for (uint32_t i = 0; i < shape->member_count; i++)
		if (shape->nodes[i] == node && index-- == 0)
			return i;
	assert(false && "a node has as many");
	return 0;
}

/* Documented in follow_private.h. */
int follow_begin_uneven(struct follow *follow, struct exchange_room *room,
                        const struct zi_far_cut *cut, const struct zi_far_piece *piece,
                        const struct follow_card *call)
{
	const struct zi_far_shape *shape = &follow->shape;
	struct net_range sends[UNEVEN_RUNS_MAX], receives[UNEVEN_RUNS_MAX];
	struct exchange_runs runs = { .sends = sends, .receives = receives };
	uint64_t block_bytes = piece->block_bytes;
	uint32_t run_count = 0;

	follow_exchange_init(follow, NET_MOVE, call);
	for (uint32_t node = 0; node < shape->node_count; node++) {
		uint64_t first = shape->firsts[node] * shape->self_count;
		uint32_t there_count = node == shape->node ? 0 : shape->counts[node];

		runs.firsts[node] = run_count;
		/* At either end the blocks of two nodes are in the order of their senders. */
		for (uint32_t i = 0; i < shape->self_count * there_count; i++) {
			uint32_t here = shape->members[i / there_count];
			uint32_t there = member_of(shape, node, i % there_count);

			sends[run_count + i] =
				(struct net_range){ piece->source + (first + i) * block_bytes,
				                    bytes_of(follow, cut, piece, here, there) };
			there = member_of(shape, node, i / shape->self_count);
			here = shape->members[i % shape->self_count];
			receives[run_count + i] =
				(struct net_range){ piece->result + (first + i) * block_bytes,
				                    bytes_of(follow, cut, piece, there, here) };
		}
		run_count += shape->self_count * there_count;
	}
	runs.firsts[shape->node_count] = run_count;
	assert(run_count <= UNEVEN_RUNS_MAX);
	return err_trace(follow_begin(follow, room, &runs));
}
