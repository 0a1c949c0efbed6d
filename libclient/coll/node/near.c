/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_gather and broadcast where members are on several NUMA nodes; see near.h. Floor 2.
 *
 * The members of a node fill the targets on it, and no others: what lies on another node they
 * divide, so that it comes over the link once, and write each piece of it to all their targets in
 * one pass. Nothing is written over the link, and nobody waits for anybody in between.
 */
#include "libclient/coll/node/near.h"

#include "kernels/copy.h"
#include "libclient/coll/node/share.h"

/* To the targets on this node, from byte @at of each on. */
static void copy_near(const struct zi_node_group *group, const char *source, uint64_t bytes,
                      uint64_t at)
{
	const struct zi_node_run *run = &group->run;
	const struct zi_numa *numa = &group->numa;
	uint64_t left = numa->members[numa->nodes[group->meet.self]] & run->with_target;
	void *targets[ZI_WORLD_MAX];
	uint32_t count = 0;

	for (; left; left &= left - 1) {
		char *target = run->targets[__builtin_ctzll(left)] + at;

		if (target != source)
			targets[count++] = target;
	}
	if (count && bytes)
		kern_copy(targets, count, source, bytes, run->is_streaming);
}

/* This member's share of @bytes at @source, which go to byte @at of targets. */
static void share_near(const struct zi_node_group *group, const char *source, uint64_t bytes,
                       uint64_t at)
{
	const struct zi_numa *numa = &group->numa;
	uint32_t index = zi_numa_index(numa, group->meet.self);
	uint32_t parts = zi_numa_count(numa, numa->nodes[group->meet.self]);
	uint64_t begin = zi_node_share(bytes, 1, index, parts);
	uint64_t end = zi_node_share(bytes, 1, index + 1, parts);

	copy_near(group, source + begin, end - begin, at + begin);
}

/* Blocks of this node first, each passed on by its own member. */
static void all_gather(const struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;
	const uint8_t *nodes = group->numa.nodes;
	uint32_t members = group->meet.member_count, self = group->meet.self;
	uint64_t bytes = run->source_bytes;

	copy_near(group, run->sources[self], bytes, self * bytes);
	for (uint32_t k = 1; k < members; k++) {
		uint32_t from = (self + k) % members; /* not all the same one */

		if (nodes[from] != nodes[self])
			share_near(group, run->sources[from], bytes, from * bytes);
	}
}

void zi_near_move(const struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;

	if (run->call.operation == ZI_COLL_ALL_GATHER)
		all_gather(group);
	else
		share_near(group, run->sources[run->call.root], run->source_bytes, 0);
}
