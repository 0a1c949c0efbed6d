/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_gather, broadcast, gather, scatter, all_to_all(v) inside a node; see node.h. Floor 2.
 *
 * All of them are blocks that go from one member to another. In pieces only sources are staged:
 * whoever needs a block takes it to its own target, wherever that lies.
 */
#include "libclient/coll/node/move.h"

#include "common/base/cleanup.h"
#include "kernels/copy.h"
#include "libclient/coll/node/members.h"
#include "libclient/coll/node/near.h"
#include "libclient/coll/node/place.h"
#include "libclient/coll/node/share.h"

struct move {
	const struct zi_node_group *group;
	const struct zi_node_run *run;
	uint32_t members, self, width;
};

/* In elements; from the beginnings of the one's source and the other's target. */
struct block {
	uint64_t source_offset, target_offset, count;
};

static struct move move_of(const struct zi_node_group *group)
{
	return (struct move){
		.group = group,
		.run = &group->run,
		.members = group->meet.member_count,
		.self = group->meet.self,
		.width = zi_dtype_bytes(group->run.call.dtype),
	};
}

/* What member @from has for member @to; one of them is this one. */
static struct block block_of(const struct move *move, uint32_t from, uint32_t to)
{
	const struct zi_node_run *run = move->run;
	const struct zi_node_call *call = &run->call;
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	uint64_t count = call->element_count;

	if (!zi_node_has(run->with_source, from) || !zi_node_has(run->with_target, to))
		return (struct block){ 0 };
	if (!zi_coll_is_counted(call->operation))
		return (struct block){
			.source_offset = zi_coll_is_for_each(&shape->source) ? to * count : 0,
			.target_offset = zi_coll_is_for_each(&shape->target) ? from * count : 0,
			.count = count,
		};
	if (from == move->self)
		return (struct block){ zi_coll_sum_before(call->source_counts, to),
			               to == from ? zi_coll_sum_before(call->target_counts, from)
			                          : run->target_offsets[to],
			               call->source_counts[to] };
	return (struct block){ run->source_offsets[from],
		               zi_coll_sum_before(call->target_counts, from),
		               call->target_counts[from] };
}

static void copy_one(const struct move *move, char *target, const char *source, uint64_t count,
                     bool is_streaming)
{
	void *place = target;

	if (target != source && count)
		kern_copy(&place, 1, source, count * move->width, is_streaming);
}

/* ---- not in pieces ---- */

/* Own block to everybody's target at once. */
static void push_all_gather(const struct move *move)
{
	const struct zi_node_run *run = move->run;
	uint64_t bytes = run->source_bytes;
	const char *source = run->sources[move->self];
	void *targets[ZI_WORLD_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < move->members; i++) {
		char *target = run->targets[i] + move->self * bytes;

		if (target != source)
			targets[count++] = target;
	}
	kern_copy(targets, count, source, bytes, run->is_streaming);
}

/* Each rank passes on its share of the root's. */
static void share_broadcast(const struct move *move)
{
	const struct zi_node_run *run = move->run;
	uint64_t begin = zi_node_share(run->source_bytes, 1, move->self, move->members);
	uint64_t end = zi_node_share(run->source_bytes, 1, move->self + 1, move->members);
	void *targets[ZI_WORLD_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < move->members; i++)
		if (zi_node_has(run->with_target, i))
			targets[count++] = run->targets[i] + begin;
	kern_copy(targets, count, run->sources[run->call.root] + begin, end - begin,
	          run->is_streaming);
}

static void push(const struct move *move)
{
	for (uint32_t k = 0; k < move->members; k++) {
		uint32_t to = (move->self + k) % move->members; /* not all to the same one */
		struct block block = block_of(move, move->self, to);

		if (block.count)
			copy_one(move, move->run->targets[to] + block.target_offset * move->width,
			         move->run->sources[move->self] + block.source_offset * move->width,
			         block.count, move->run->is_streaming);
	}
}

static void pull(const struct move *move)
{
	for (uint32_t k = 0; k < move->members; k++) {
		uint32_t from = (move->self + k) % move->members; /* not all from the same one */
		struct block block = block_of(move, from, move->self);

		if (block.count)
			copy_one(move,
			         move->run->targets[move->self] + block.target_offset * move->width,
			         move->run->sources[from] + block.source_offset * move->width,
			         block.count, move->run->is_streaming);
	}
}

void zi_node_move(const struct zi_node_group *group)
{
	struct move move = move_of(group);

	if (group->run.path == ZI_NODE_NEAR)
		zi_near_move(group);
	else if (group->run.path == ZI_NODE_SHARED)
		share_broadcast(&move);
	else if (group->run.path != ZI_NODE_PUSH)
		pull(&move);
	else if (group->run.call.operation == ZI_COLL_ALL_GATHER)
		push_all_gather(&move);
	else
		push(&move);
}

/* The own slots, which nobody looks at in such a call, are the scratch. */
bool zi_node_move_read(struct zi_node_group *group)
{
	struct move move = move_of(group);
	const struct zi_node_run *run = &group->run;
	char *scratch = run->is_streaming ? group->staging : NULL;

	for (uint32_t k = 0; k < move.members; k++) {
		uint32_t from = (move.self + k) % move.members; /* not all from the same one */
		struct block block = block_of(&move, from, move.self);
		uint64_t source_bytes = block.source_offset * move.width;
		char *target = run->targets[move.self] + block.target_offset * move.width;

		if (!block.count)
			continue;
		if (from == move.self || !zi_node_has(run->unstaged, from))
			copy_one(&move, target, run->sources[from] + source_bytes, block.count,
			         run->is_streaming);
		else if (!zi_cma_read(group, from, target, run->addresses[from] + source_bytes,
		                      block.count * move.width, scratch, zi_node_slot_bytes(group)))
			return false;
	}
	return true;
}

/* ---- in pieces ---- */

/* What of @block is in @piece. */
static void clip(const struct zi_node_run *run, uint32_t piece, struct block *block)
{
	uint64_t begin = piece * run->piece_elements;

	block->count = block->count > begin ? block->count - begin : 0;
	block->count = ZI_MIN(block->count, run->piece_elements);
	block->source_offset += begin;
	block->target_offset += begin;
}

/* Where in a slot what goes to member @to lies: one piece for all, or each has its own. */
static uint64_t slot_offset(const struct move *move, uint32_t to)
{
	return move->run->piece_blocks > 1 ? to * move->run->piece_elements * move->width : 0;
}

void zi_node_move_stage(const struct zi_node_group *group, uint32_t piece)
{
	struct move move = move_of(group);
	const struct zi_node_run *run = &group->run;
	char *slot = zi_node_slot(group, move.self, piece);

	for (uint32_t to = 0; to < move.members; to++) {
		struct block block = block_of(&move, move.self, to);

		if (to == move.self || !block.count)
			continue;
		clip(run, piece, &block);
		copy_one(&move, slot + slot_offset(&move, to),
		         run->sources[move.self] + block.source_offset * move.width, block.count,
		         false);
		if (run->piece_blocks == 1)
			return;
	}
}

void zi_node_move_work(const struct zi_node_group *group, uint32_t piece)
{
	struct move move = move_of(group);
	const struct zi_node_run *run = &group->run;

	for (uint32_t k = 0; k < move.members; k++) {
		uint32_t from = (move.self + k) % move.members; /* not all from the same one */
		struct block block = block_of(&move, from, move.self);
		const char *source;

		if (!block.count)
			continue;
		clip(run, piece, &block);
		source = from != move.self && zi_node_has(run->outside_sources, from)
		                 ? zi_node_slot(group, from, piece) + slot_offset(&move, move.self)
		                 : run->sources[from] + block.source_offset * move.width;
		copy_one(&move, run->targets[move.self] + block.target_offset * move.width, source,
		         block.count, run->is_streaming);
	}
}
