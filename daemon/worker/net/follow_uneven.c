/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece of a group's all_to_allv: each block has its place as if all were as long as the longest
 * (common/wire/far.h), and as much of it travels as there is; see follow.c. Floor 3, of zinf-net.
 * Owner: the operations' thread.
 */
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/net/follow_private.h"

struct uneven {
	const struct zi_far_cut *cut;
	const struct zi_far_piece *piece;
};

/* As much of the block as @arg's piece has. */
static struct net_range block_of(const struct follow *follow, const void *arg, uint32_t from,
                                 uint32_t to)
{
	const struct zi_far_shape *shape = &follow->shape;
	const struct uneven *uneven = arg;
	const uint64_t *counts = follow_counts(follow);
	uint64_t count = counts[shape->orders[from] * 2 * shape->member_count + to];
	uint64_t place = zi_far_is_here(shape, from)
	                         ? zi_far_source_at(shape, uneven->cut, uneven->piece,
	                                            zi_far_local(shape, from), to)
	                         : zi_far_result_at(shape, uneven->cut, uneven->piece, from, to);

	return (struct net_range){ place, zi_far_part(uneven->piece, count) * uneven->cut->width };
}

/* Documented in follow_private.h. */
int follow_begin_uneven(struct follow *follow, struct exchange_room *room,
                        const struct zi_far_cut *cut, const struct zi_far_piece *piece,
                        const struct follow_card *call)
{
	struct uneven uneven = { cut, piece };
	struct follow_blocks blocks;

	follow_exchange_init(follow, NET_MOVE, call);
	follow_blocks_init(&blocks, follow, block_of, &uneven);
	return err_trace(follow_begin(follow, room, &blocks.runs));
}
