/* SPDX-License-Identifier: Apache-2.0 */
/* What operations take and give; see coll.h. Floor 1, any thread. */
#include "common/wire/coll.h"

#define NOTHING                                   \
	{                                         \
		ZI_BLOCKS_NONE, ZI_HELD_BY_NOBODY \
	}
#define BUFFER(blocks, holder)                          \
	{                                               \
		ZI_BLOCKS_##blocks, ZI_HELD_BY_##holder \
	}

const struct zi_coll_shape zi_coll_shapes[_ZI_COLL_COUNT] = {
	[ZI_COLL_BARRIER] = { "barrier", false, NOTHING, NOTHING },
	[ZI_COLL_ALL_REDUCE] = { "all_reduce", true, BUFFER(ONE, ALL), BUFFER(ONE, ALL) },
	[ZI_COLL_REDUCE] = { "reduce", true, BUFFER(ONE, ALL), BUFFER(ONE, ROOT) },
	[ZI_COLL_REDUCE_SCATTER] = { "reduce_scatter", true, BUFFER(EACH, ALL), BUFFER(ONE, ALL) },
	[ZI_COLL_ALL_GATHER] = { "all_gather", false, BUFFER(ONE, ALL), BUFFER(EACH, ALL) },
	[ZI_COLL_BROADCAST] = { "broadcast", false, BUFFER(ONE, ROOT), BUFFER(ONE, OTHERS) },
	[ZI_COLL_GATHER] = { "gather", false, BUFFER(ONE, ALL), BUFFER(EACH, ROOT) },
	[ZI_COLL_SCATTER] = { "scatter", false, BUFFER(EACH, ROOT), BUFFER(ONE, ALL) },
	[ZI_COLL_ALL_TO_ALL] = { "all_to_all", false, BUFFER(EACH, ALL), BUFFER(EACH, ALL) },
	[ZI_COLL_ALL_TO_ALLV] = { "all_to_allv", false, BUFFER(COUNTED, ALL),
	                          BUFFER(COUNTED, ALL) },
	[ZI_COLL_SEND] = { "send", false, NOTHING, NOTHING },
	[ZI_COLL_RECV] = { "recv", false, NOTHING, NOTHING },
};

/* See coll.h. */
const char *zi_coll_operation_name(uint32_t operation)
{
	const char *name = zi_coll_shape_of(operation)->name;

	return name ? name : "?";
}

static bool sum_of(const uint64_t *counts, uint32_t count, uint64_t width, uint64_t *ret_bytes)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < count; i++)
		if (!zi_checked_add(sum, counts[i], &sum))
			return false;
	return zi_checked_mul(sum, width, ret_bytes);
}

/* See coll.h. */
bool zi_coll_counted_bytes(const struct zi_coll_lengths *lengths, uint64_t *ret_source_bytes,
                           uint64_t *ret_target_bytes)
{
	uint64_t source_bytes;

	if (!sum_of(lengths->source_counts, lengths->member_count, lengths->width, &source_bytes) ||
	    !sum_of(lengths->target_counts, lengths->member_count, lengths->width,
	            ret_target_bytes))
		return false;
	*ret_source_bytes = source_bytes;
	return true;
}
