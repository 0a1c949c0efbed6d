/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce, reduce, reduce_scatter inside a node; see node.h. Floor 2. */
#include "common/base/cleanup.h"
#include "kernels/combine.h"
#include "libclient/coll/node.h"

/* Elements [begin, end) of every source, to the targets of members [first, first + count). Sources
 * begin at @source_first. */
static void join_range(const struct zi_node_group *group, const struct zi_node_call *call,
                       const struct zi_node_places *places, uint64_t begin, uint64_t end,
                       uint64_t source_first, uint32_t first, uint32_t count)
{
	uint32_t width = zi_dtype_bytes(call->dtype);
	uint32_t members = group->meet.member_count;
	const void *sources[ZI_WORLD_MAX];
	void *targets[ZI_WORLD_MAX];

	if (begin == end)
		return;
	for (uint32_t i = 0; i < members; i++)
		sources[i] = (const char *)places->sources[i] + (source_first + begin) * width;
	for (uint32_t i = 0; i < count; i++)
		targets[i] = (char *)places->targets[first + i] + begin * width;
	kern_combine(&(struct kern_combine_run){
		.targets = targets,
		.sources = sources,
		.target_count = count,
		.source_count = members,
		.element_count = end - begin,
		.source_dtype = call->dtype,
		.target_dtype = call->dtype,
		.op = call->reduce_op,
		.average = (float)(1.0 / members),
		.is_streaming = (end - begin) * width * count >= group->streaming_bytes,
	});
}

void zi_node_join(const struct zi_node_group *group, const struct zi_node_call *call,
                  const struct zi_node_places *places)
{
	uint32_t members = group->meet.member_count, self = group->meet.self;
	uint32_t width = zi_dtype_bytes(call->dtype);
	uint64_t count = call->element_count;
	uint64_t begin = zi_node_share(count, width, self, members);
	uint64_t end = zi_node_share(count, width, self + 1, members);
	bool is_own = places->is_inline; /* each for itself: nobody else's target is at hand */

	if (call->operation == ZI_COLL_REDUCE_SCATTER)
		join_range(group, call, places, 0, count, self * count, self, 1);
	else if (call->operation == ZI_COLL_REDUCE && !is_own)
		join_range(group, call, places, begin, end, 0, call->root, 1);
	else if (call->operation == ZI_COLL_REDUCE && self == call->root)
		join_range(group, call, places, 0, count, 0, self, 1);
	else if (call->operation == ZI_COLL_ALL_REDUCE && is_own)
		join_range(group, call, places, 0, count, 0, self, 1);
	else if (call->operation == ZI_COLL_ALL_REDUCE)
		join_range(group, call, places, begin, end, 0, 0, members);
}
