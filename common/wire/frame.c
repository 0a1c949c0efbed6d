/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of calls across nodes; see frame.h. Floor 1. Any thread. */
#include "common/wire/frame.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"

/* Two sets. */
#define FRAME_SETS 2u

/* See frame.h, as are all of these. */
uint32_t zi_frame_bytes(const struct zi_far_shape *shape)
{
	uint32_t room = ZI_FAR_FRAMES_BYTES / FRAME_SETS / shape->node_count / ZI_LINE_BYTES *
	                ZI_LINE_BYTES;

	static_assert(ZI_FAR_FRAMES_BYTES / FRAME_SETS / ZI_WORLD_MAX > ZI_FRAME_WORDS_BYTES,
	              "a frame of the most nodes has its description");
	return ZI_MIN(room, ZI_FRAME_WORDS_BYTES + ZI_FRAME_DATA_MAX);
}

uint64_t zi_frame_at(const struct zi_far_shape *shape, uint32_t sequence, uint32_t node)
{
	return ZI_FAR_FRAMES_OFFSET +
	       (uint64_t)(sequence % FRAME_SETS * shape->node_count + node) * zi_frame_bytes(shape);
}

/* Members of a node whose sources lie in its frame, at most. */
static uint32_t most_sources(const struct zi_far_shape *shape, enum zi_coll_holder holder)
{
	uint32_t most = 1;

	if (holder == ZI_HELD_BY_ALL)
		for (uint32_t i = 0; i < shape->node_count; i++)
			most = ZI_MAX(most, shape->counts[i]);
	return most;
}

bool zi_frame_is_small(const struct zi_far_shape *shape, const struct zi_frame_call *call,
                       uint32_t *ret_source_bytes)
{
	const struct zi_coll_shape *operation = zi_coll_shape_of(call->operation);
	uint32_t room = zi_frame_bytes(shape) - ZI_FRAME_WORDS_BYTES;
	uint64_t bytes;

	if (!zi_coll_has_data(call->operation) || zi_coll_is_counted(call->operation) ||
	    call->dtype < ZI_DTYPE_F32 || call->dtype >= _ZI_DTYPE_COUNT || !call->element_count ||
	    call->element_count > room || call->root >= shape->member_count)
		return false;
	bytes = call->element_count * zi_dtype_bytes(call->dtype) *
	        zi_coll_block_count(&operation->source, shape->member_count);
	if (bytes * most_sources(shape, operation->source.holder) > room)
		return false;
	*ret_source_bytes = (uint32_t)bytes;
	return true;
}

uint64_t zi_frame_source_at(const struct zi_far_shape *shape, const struct zi_frame_call *call,
                            uint32_t source_bytes, uint32_t sequence, uint32_t member)
{
	const struct zi_coll_shape *operation = zi_coll_shape_of(call->operation);
	uint32_t before =
		operation->source.holder == ZI_HELD_BY_ALL ? zi_far_local(shape, member) : 0;

	return zi_frame_at(shape, sequence, shape->nodes[member]) + ZI_FRAME_WORDS_BYTES +
	       (uint64_t)before * source_bytes;
}
