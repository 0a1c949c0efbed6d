/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls go by NUMA nodes; see numa.h. Floor 2. */
#include "libclient/coll/node/numa.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "libclient/coll/node/levels.h"

/* ---- the nodes of a group ---- */

/* The split of docs/ARITHMETIC.md: the largest power of two below @count. */
static uint32_t split_of(uint32_t count)
{
	return 1u << (31 - __builtin_clz(count - 1));
}

/* Whether the tree over members [@first, @first + @count) is one over whole nodes: how many of
 * them; 0 when it is not. */
static uint32_t count_leaves(const struct zi_numa *numa, uint32_t first, uint32_t count)
{
	uint64_t range = (UINT64_MAX >> (64 - count)) << first;
	uint32_t left, right, half;

	if (numa->members[numa->nodes[first]] == range)
		return 1;
	if (count == 1)
		return 0;
	half = split_of(count);
	left = count_leaves(numa, first, half);
	right = count_leaves(numa, first + half, count - half);
	return left && right && left == split_of(left + right) ? left + right : 0;
}

void zi_numa_init(struct zi_numa *numa, const uint8_t *places, uint32_t member_count)
{
	*numa = (struct zi_numa){ 0 };
	for (uint32_t i = 0; i < member_count; i++) {
		uint32_t earlier = 0;

		while (places[earlier] != places[i])
			earlier++;
		numa->nodes[i] = earlier < i ? numa->nodes[earlier] : (uint8_t)numa->node_count++;
		numa->members[numa->nodes[i]] |= 1ull << i;
	}
	numa->smallest = member_count;
	for (uint32_t i = 0; i < numa->node_count; i++)
		numa->smallest = ZI_MIN(numa->smallest, zi_numa_count(numa, i));
	numa->is_tree = count_leaves(numa, 0, member_count) == numa->node_count;
}

/* ---- bytes that cross ---- */

/* In units of a block's bytes / members, which makes all of them whole. */
struct crossing {
	uint64_t plain, by_nodes;
};

static struct crossing crossing_of(const struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;
	const struct zi_numa *numa = &group->numa;
	uint64_t all = group->meet.member_count, others = numa->node_count - 1, apart = all * all;
	uint64_t wide = zi_levels_width(run->call.dtype) / zi_dtype_bytes(run->call.dtype);
	uint64_t far_from_root;

	/* Ordered pairs of members on different nodes. */
	for (uint32_t i = 0; i < numa->node_count; i++)
		apart -= (uint64_t)zi_numa_count(numa, i) * zi_numa_count(numa, i);
	far_from_root = all - zi_numa_count(numa, numa->nodes[run->call.root]);
	switch (run->call.operation) {
	case ZI_COLL_ALL_REDUCE: /* sources read, targets written; partials, results */
		return (struct crossing){ 2 * apart, all * others * (wide + 1) };
	case ZI_COLL_REDUCE:
		return (struct crossing){ apart + far_from_root, all * others * wide };
	case ZI_COLL_REDUCE_SCATTER:
		return (struct crossing){ all * apart, all * all * others * wide };
	case ZI_COLL_ALL_GATHER:
		return (struct crossing){ all * apart, all * all * others };
	default: /* broadcast: the root's source read, targets written */
		return (struct crossing){ apart, all * others };
	}
}

void zi_numa_choose_path(struct zi_node_group *group)
{
	struct zi_node_run *run = &group->run;
	struct crossing crossing;
	uint64_t elements;

	if (!zi_coll_is_join(run->call.operation) && run->call.operation != ZI_COLL_ALL_GATHER &&
	    run->call.operation != ZI_COLL_BROADCAST)
		return; /* each block has one target: it crosses once, if at all */
	if (run->outside_sources | run->outside_targets)
		return;
	crossing = crossing_of(group);
	if (crossing.by_nodes >= crossing.plain)
		return;
	if (!zi_coll_is_join(run->call.operation)) {
		run->path = ZI_NODE_NEAR;
		return;
	}
	elements = zi_levels_piece_elements(group);
	if (!group->numa.is_tree || !elements || run->source_bytes < group->levels_bytes)
		return;
	run->path = ZI_NODE_LEVELS;
	run->piece_elements = elements;
}
