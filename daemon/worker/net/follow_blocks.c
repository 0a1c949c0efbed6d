/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks between members of this node and members of others, each a transfer; see follow.c. Floor
 * 3, of zinf-net. Owner: the operations' thread. */
#include "common/base/assert.h"
#include "daemon/worker/net/follow_private.h"

/* The @index-th member of node @node. */
static uint32_t member_of(const struct zi_far_shape *shape, uint32_t node, uint32_t index)
{
	for (uint32_t i = 0; i < shape->member_count; i++)
		if (shape->nodes[i] == node && index-- == 0)
			return i;
	assert(false && "a node has as many");
	return 0;
}

/* Documented in follow_private.h. At either end the blocks of two nodes are in the order of their
 * senders, then of their receivers, by which they match. */
void follow_blocks_init(struct follow_blocks *blocks, const struct follow *follow,
                        follow_block_fn block_of, const void *arg)
{
	const struct zi_far_shape *shape = &follow->shape;
	uint32_t here_count = shape->self_count, run_count = 0;

	for (uint32_t node = 0; node < shape->node_count; node++) {
		uint32_t there_count = node == shape->node ? 0 : shape->counts[node];

		blocks->runs.firsts[node] = run_count;
		for (uint32_t i = 0; i < here_count * there_count; i++, run_count++) {
			uint32_t here = shape->members[i / there_count];
			uint32_t there = member_of(shape, node, i % there_count);

			assert(run_count < FOLLOW_BLOCKS_MAX);
			blocks->sends[run_count] = block_of(follow, arg, here, there);
			there = member_of(shape, node, i / here_count);
			here = shape->members[i % here_count];
			blocks->receives[run_count] = block_of(follow, arg, there, here);
		}
	}
	blocks->runs.firsts[shape->node_count] = run_count;
	blocks->runs.sends = blocks->sends;
	blocks->runs.receives = blocks->receives;
}
