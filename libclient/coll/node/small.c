/* SPDX-License-Identifier: Apache-2.0 */
/* Small calls of a group that spans nodes; see small.h. Floor 2. */
#include "libclient/coll/node/small.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/wire/frame.h"
#include "kernels/combine.h"
#include "libclient/coll/node/far.h"
#include "libclient/coll/node/members.h"

static struct zi_frame_call frame_call(const struct zi_node_group *group)
{
	const struct zi_node_call *call = &group->run.call;

	return (struct zi_frame_call){ .operation = call->operation,
		                       .dtype = call->dtype,
		                       .root = call->root,
		                       .element_count = call->element_count };
}

/* See small.h, as is the other. */
bool zi_node_is_small(const struct zi_node_group *group, uint32_t *ret_source_bytes)
{
	struct zi_frame_call call = frame_call(group);

	return zi_frame_is_small(&group->far->shape, &call, ret_source_bytes);
}

static void join(const struct zi_node_group *group, const void *const *sources)
{
	const struct zi_node_call *call = &group->run.call;
	uint32_t members = zi_node_members(group);
	void *target = call->target;

	kern_combine(&(struct kern_combine_run){
		.targets = &target,
		.sources = sources,
		.target_count = 1,
		.source_count = members,
		.element_count = call->element_count,
		.source_dtype = call->dtype,
		.target_dtype = call->dtype,
		.op = call->reduce_op,
		.average = 1.0 / members,
	});
}

void zi_node_take_small(const struct zi_node_group *group)
{
	const struct zi_far_group *far = group->far;
	const struct zi_node_call *call = &group->run.call;
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	uint64_t bytes = call->element_count * zi_dtype_bytes(call->dtype);
	struct zi_frame_call small = frame_call(group);
	const void *sources[ZI_WORLD_MAX] = { NULL };
	uint32_t source_bytes = 0;
	bool is_small = zi_frame_is_small(&far->shape, &small, &source_bytes);

	assert(is_small);
	(void)is_small; /* Asserted. */
	if (!zi_node_has(group->run.with_target, far->self))
		return;
	for (uint32_t i = 0; i < far->shape.member_count; i++) {
		const char *source =
			far->slab +
			zi_frame_source_at(&far->shape, &small, source_bytes, group->sequence, i);

		if (!zi_node_has(group->run.with_source, i))
			continue;
		sources[i] = source + (zi_coll_is_for_each(&shape->source) ? far->self * bytes : 0);
		if (!shape->is_join)
			memcpy((char *)call->target +
			               (zi_coll_is_for_each(&shape->target) ? i * bytes : 0),
			       sources[i], bytes);
	}
	if (shape->is_join)
		join(group, sources);
}
