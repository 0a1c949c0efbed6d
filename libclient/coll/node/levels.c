/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums in two levels; see levels.h. Floor 2.
 *
 * The members of a NUMA node are one subtree: they join their own sources first, each its share of
 * a piece, into their slots, unrounded (docs/ARITHMETIC.md). Then the pieces are finished out of
 * one partial per node, and the results go to the targets on the finisher's node; of an all_reduce
 * the other nodes fetch them in a third step, one copy for each node.
 *
 *   step s   fetch piece s - 3      of an all_reduce: what other nodes have finished
 *            finish piece s - 2     reads the slots of all nodes
 *            partial of piece s - 1
 *
 * A step begins when all have made the one before. So nobody writes a target while its piece is
 * still read as a source (in place), and a slot, which the next step reads, is used again two steps
 * after that.
 */
#include "libclient/coll/node/levels.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "kernels/combine.h"
#include "kernels/copy.h"
#include "libclient/coll/node/place.h"
#include "libclient/coll/node/share.h"

struct levels {
	const struct zi_node_group *group;
	const struct zi_node_run *run;
	const struct zi_numa *numa;
	uint32_t members, self, node, width;
	enum zi_dtype wide; /* of partials */
	uint32_t wide_bytes;
	uint32_t blocks;        /* that a source has */
	uint64_t slot_elements; /* of a block, in a slot */
	uint64_t begin, count;  /* of the piece: elements of a block */
	uint64_t first, last;   /* this member's share of it, among those of its node */
	uint32_t piece;
};

uint32_t zi_levels_width(enum zi_dtype dtype)
{
	return zi_dtype_bytes(zi_dtype_joined(dtype));
}

static uint32_t blocks_of(const struct zi_node_group *group)
{
	return zi_coll_block_count(&zi_coll_shape_of(group->run.call.operation)->source,
	                           group->meet.member_count);
}

/* Of each block, as many elements as fit into a slot: whole lines of a target, hence of a slot. */
static uint64_t slot_elements(const struct zi_node_group *group)
{
	uint64_t line_elements = ZI_LINE_BYTES / zi_dtype_bytes(group->run.call.dtype);
	uint64_t line_bytes = line_elements * zi_levels_width(group->run.call.dtype);

	return zi_node_slot_bytes(group) / (blocks_of(group) * line_bytes) * line_elements;
}

/* The share of each member fits into its slot, also where a node has the fewest to share. */
uint64_t zi_levels_piece_elements(const struct zi_node_group *group)
{
	return group->numa.smallest * slot_elements(group);
}

static struct levels levels_of(const struct zi_node_group *group, uint32_t piece)
{
	const struct zi_node_run *run = &group->run;
	const struct zi_numa *numa = &group->numa;
	uint32_t self = group->meet.self, width = zi_dtype_bytes(run->call.dtype);
	uint32_t index = zi_numa_index(numa, self), count = zi_numa_count(numa, numa->nodes[self]);
	struct levels levels = {
		.group = group,
		.run = run,
		.numa = numa,
		.members = group->meet.member_count,
		.self = self,
		.node = numa->nodes[self],
		.width = width,
		.wide = zi_dtype_joined(run->call.dtype),
		.wide_bytes = zi_levels_width(run->call.dtype),
		.blocks = blocks_of(group),
		.slot_elements = slot_elements(group),
		.begin = piece * run->piece_elements,
		.piece = piece,
	};

	levels.count = ZI_MIN(run->piece_elements, run->call.element_count - levels.begin);
	levels.first = zi_node_share(levels.count, width, index, count);
	levels.last = zi_node_share(levels.count, width, index + 1, count);
	return levels;
}

/* Of this member's node: beginnings of the piece in the targets. Return: how many. */
static uint32_t near_targets(const struct levels *levels, char **targets)
{
	uint64_t left = levels->numa->members[levels->node] & levels->run->with_target;
	uint32_t count = 0;

	for (; left; left &= left - 1)
		targets[count++] =
			levels->run->targets[__builtin_ctzll(left)] + levels->begin * levels->width;
	return count;
}

/* ---- partials ---- */

static void make_partials(const struct levels *levels)
{
	const struct zi_node_run *run = levels->run;
	enum zi_reduce_op op = run->call.reduce_op;
	char *slot = zi_node_slot(levels->group, levels->self, levels->piece);

	if (levels->first == levels->last)
		return;
	for (uint32_t block = 0; block < levels->blocks; block++) {
		uint64_t left = levels->numa->members[levels->node];
		uint64_t first = block * run->call.element_count + levels->begin + levels->first;
		void *target = slot + block * levels->slot_elements * levels->wide_bytes;
		const void *sources[ZI_WORLD_MAX];
		uint32_t count = 0;

		for (; left; left &= left - 1)
			sources[count++] =
				run->sources[__builtin_ctzll(left)] + first * levels->width;
		kern_combine(&(struct kern_combine_run){
			.targets = &target,
			.sources = sources,
			.target_count = 1,
			.source_count = count,
			.element_count = levels->last - levels->first,
			.source_dtype = run->call.dtype,
			.target_dtype = levels->wide,
			.op = op == ZI_REDUCE_AVG ? ZI_REDUCE_SUM : op, /* averaged at the end */
		});
	}
}

/* ---- finishing ---- */

/* Where the partial of @node from element @first of @block on lies. @end: cut to where the share of
 * whoever made it ends. */
static const char *partial_at(const struct levels *levels, uint32_t node, uint32_t block,
                              uint64_t first, uint64_t *end)
{
	uint32_t count = zi_numa_count(levels->numa, node), index = 0;
	uint64_t left = levels->numa->members[node], begin = 0, share_end;
	uint64_t in_slot;

	for (;; begin = share_end, left &= left - 1) {
		assert(left);
		share_end = zi_node_share(levels->count, levels->width, ++index, count);
		if (share_end > first)
			break;
	}
	*end = ZI_MIN(*end, share_end);
	in_slot = block * levels->slot_elements + first - begin;
	return zi_node_slot(levels->group, (uint32_t)__builtin_ctzll(left), levels->piece) +
	       in_slot * levels->wide_bytes;
}

/* Elements [@first, @last) of @block of the piece, to @targets. */
static void finish_range(const struct levels *levels, uint32_t block, uint64_t first, uint64_t last,
                         char *const *targets, uint32_t target_count, bool is_streaming)
{
	while (target_count && first < last) {
		const void *sources[ZI_WORLD_MAX];
		void *places[ZI_WORLD_MAX];
		uint64_t end = last;

		for (uint32_t i = 0; i < levels->numa->node_count; i++)
			sources[i] = partial_at(levels, i, block, first, &end);
		for (uint32_t i = 0; i < target_count; i++)
			places[i] = targets[i] + first * levels->width;
		kern_combine(&(struct kern_combine_run){
			.targets = places,
			.sources = sources,
			.target_count = target_count,
			.source_count = levels->numa->node_count,
			.element_count = end - first,
			.source_dtype = levels->wide,
			.target_dtype = levels->run->call.dtype,
			.op = levels->run->call.reduce_op,
			.average = 1.0 / levels->members,
			.is_streaming = is_streaming,
		});
		first = end;
	}
}

static void finish(const struct levels *levels)
{
	const struct zi_node_run *run = levels->run;
	char *targets[ZI_WORLD_MAX];
	uint32_t count;

	switch (run->call.operation) {
	case ZI_COLL_REDUCE_SCATTER:
		targets[0] = run->targets[levels->self] + levels->begin * levels->width;
		finish_range(levels, levels->self, 0, levels->count, targets, 1, run->is_streaming);
		return;
	case ZI_COLL_REDUCE: /* the root's node; others have no target near */
		count = near_targets(levels, targets);
		finish_range(levels, 0, levels->first, levels->last, targets, count,
		             run->is_streaming);
		return;
	default: /* the other nodes fetch it soon */
		count = near_targets(levels, targets);
		finish_range(
			levels, 0,
			zi_node_share(levels->count, levels->width, levels->self, levels->members),
			zi_node_share(levels->count, levels->width, levels->self + 1,
		                      levels->members),
			targets, count, false);
	}
}

/* ---- results of other nodes ---- */

/* The members of a node divide what each member elsewhere has finished. */
static void fetch(const struct levels *levels)
{
	const struct zi_node_run *run = levels->run;
	uint32_t index = zi_numa_index(levels->numa, levels->self);
	uint32_t parts = zi_numa_count(levels->numa, levels->node);
	char *targets[ZI_WORLD_MAX];
	uint32_t target_count = near_targets(levels, targets);

	for (uint32_t k = 1; k < levels->members; k++) {
		uint32_t from = (levels->self + k) % levels->members; /* not all the same one */
		uint64_t begin, count, first, last;
		void *places[ZI_WORLD_MAX];

		if (levels->numa->nodes[from] == levels->node)
			continue;
		begin = zi_node_share(levels->count, levels->width, from, levels->members);
		count = zi_node_share(levels->count, levels->width, from + 1, levels->members) -
		        begin;
		first = zi_node_share(count, levels->width, index, parts);
		last = zi_node_share(count, levels->width, index + 1, parts);
		if (first == last)
			continue;
		for (uint32_t i = 0; i < target_count; i++)
			places[i] = targets[i] + (begin + first) * levels->width;
		kern_copy(places, target_count,
		          run->targets[from] + (levels->begin + begin + first) * levels->width,
		          (last - first) * levels->width, run->is_streaming);
	}
}

/* ---- steps ---- */

uint32_t zi_levels_step_count(const struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;

	return run->piece_count + (run->call.operation == ZI_COLL_ALL_REDUCE ? 3 : 2);
}

void zi_levels_step(const struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;
	uint32_t step = run->step;
	struct levels levels;

	if (step >= 3 && run->call.operation == ZI_COLL_ALL_REDUCE) {
		levels = levels_of(group, step - 3);
		fetch(&levels);
	}
	if (step >= 2 && step - 2 < run->piece_count) {
		levels = levels_of(group, step - 2);
		finish(&levels);
	}
	if (step - 1 < run->piece_count) {
		levels = levels_of(group, step - 1);
		make_partials(&levels);
	}
}
