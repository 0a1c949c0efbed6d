/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which NUMA nodes the arenas of a group's members lie, and whether a call goes by that.
 * Floor 2; of the group's thread.
 *
 * Bytes between NUMA nodes take a link that is slower than memory, and all members share it. So a
 * large call may go *by nodes*: sums first join, on each node, what lies there (levels.c), and of
 * what is only moved one copy comes over the link, of which each member of a node takes its share
 * and writes it for all of them (near.c). Which way is the cheaper is decided by counting the bytes
 * that cross (docs/ARCHITECTURE.md has the table); equal figures mean the plain way, which every
 * group goes whose arenas all lie on one node.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/types.h"

struct zi_node_group;

struct zi_numa {
	uint32_t node_count; /* 0, 1: all on one */
	uint32_t smallest;   /* members of the node that has the fewest */
	/* The members of each node are one whole subtree of the tree over all of them, and the rest
	 * of that tree is the tree over the nodes. */
	bool is_tree;
	uint8_t nodes[ZI_WORLD_MAX];    /* of each member, numbered in the order of members */
	uint64_t members[ZI_WORLD_MAX]; /* of each node: bitmap */
};

/* @places: (@member_count,) any number for the NUMA node of each member's arena. */
void zi_numa_init(struct zi_numa *numa, const uint8_t *places, uint32_t member_count);
/* Once run->path is what it would be on one NUMA node: the path by nodes, where it is worth it. */
void zi_numa_choose_path(struct zi_node_group *group);

static inline uint32_t zi_numa_count(const struct zi_numa *numa, uint32_t node)
{
	return (uint32_t)__builtin_popcountll(numa->members[node]);
}

/* Which of its node's members @member is. */
static inline uint32_t zi_numa_index(const struct zi_numa *numa, uint32_t member)
{
	uint64_t below = (1ull << member) - 1;

	return (uint32_t)__builtin_popcountll(numa->members[numa->nodes[member]] & below);
}
