/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_gather, broadcast, gather, scatter, all_to_all inside a node; see node.h. Floor 2.
 *
 * In arenas who has the data writes them to everybody (each line is read once, however many take
 * it); in posts everybody takes what is its own.
 */
#include <string.h>

#include "common/base/cleanup.h"
#include "kernels/copy.h"
#include "libclient/coll/node.h"

struct move {
	const struct zi_node_group *group;
	const struct zi_node_call *call;
	const struct zi_node_places *places;
	uint64_t block_bytes;
	uint32_t members, self;
};

static void copy_one(const struct move *move, void *target, const void *source, uint64_t bytes)
{
	if (target != source && bytes)
		kern_copy(&target, 1, source, bytes, bytes >= move->group->streaming_bytes);
}

/* Own block to everybody's target. */
static void all_gather(const struct move *move)
{
	const struct zi_node_places *places = move->places;
	uint64_t bytes = move->block_bytes;
	const char *source = places->sources[move->self];
	void *targets[ZI_WORLD_MAX];
	uint32_t count = 0;

	if (places->is_inline) {
		for (uint32_t i = 0; i < move->members; i++)
			copy_one(move, (char *)places->targets[move->self] + i * bytes,
			         places->sources[i], bytes);
		return;
	}
	for (uint32_t i = 0; i < move->members; i++) {
		char *target = (char *)places->targets[i] + move->self * bytes;

		if (target != source)
			targets[count++] = target;
	}
	kern_copy(targets, count, source, bytes, bytes * count >= move->group->streaming_bytes);
}

/* In arenas each rank passes on its share of the root's. */
static void broadcast(const struct move *move)
{
	const struct zi_node_places *places = move->places;
	uint32_t root = move->call->root, count = 0;
	uint64_t begin = 0, end = move->block_bytes;
	void *targets[ZI_WORLD_MAX];

	if (places->is_inline) {
		copy_one(move, places->targets[move->self], places->sources[root], end);
		return;
	}
	begin = zi_node_share(move->block_bytes, 1, move->self, move->members);
	end = zi_node_share(move->block_bytes, 1, move->self + 1, move->members);
	for (uint32_t i = 0; i < move->members; i++)
		if (places->targets[i] && places->targets[i] != places->sources[root])
			targets[count++] = (char *)places->targets[i] + begin;
	kern_copy(targets, count, (const char *)places->sources[root] + begin, end - begin,
	          (end - begin) * count >= move->group->streaming_bytes);
}

static void gather(const struct move *move)
{
	const struct zi_node_places *places = move->places;
	uint32_t root = move->call->root;
	uint64_t bytes = move->block_bytes;

	if (!places->is_inline)
		copy_one(move, (char *)places->targets[root] + move->self * bytes,
		         places->sources[move->self], bytes);
	else if (move->self == root)
		for (uint32_t i = 0; i < move->members; i++)
			copy_one(move, (char *)places->targets[root] + i * bytes,
			         places->sources[i], bytes);
}

/* Block by block from everybody. */
static void all_to_all(const struct move *move)
{
	const struct zi_node_places *places = move->places;
	uint64_t bytes = move->block_bytes;

	for (uint32_t i = 0; i < move->members; i++) {
		uint32_t from = (move->self + i) % move->members; /* not all from the same one */

		copy_one(move, (char *)places->targets[move->self] + from * bytes,
		         (const char *)places->sources[from] + move->self * bytes, bytes);
	}
}

void zi_node_move(const struct zi_node_group *group, const struct zi_node_call *call,
                  const struct zi_node_places *places)
{
	struct move move = {
		.group = group,
		.call = call,
		.places = places,
		.block_bytes = call->element_count * zi_dtype_bytes(call->dtype),
		.members = group->meet.member_count,
		.self = group->meet.self,
	};

	if (call->operation == ZI_COLL_ALL_GATHER)
		all_gather(&move);
	else if (call->operation == ZI_COLL_BROADCAST)
		broadcast(&move);
	else if (call->operation == ZI_COLL_GATHER)
		gather(&move);
	else if (call->operation == ZI_COLL_ALL_TO_ALL)
		all_to_all(&move);
	else if (call->operation == ZI_COLL_SCATTER)
		copy_one(&move, places->targets[move.self],
		         (const char *)places->sources[call->root] + move.self * move.block_bytes,
		         move.block_bytes);
}
