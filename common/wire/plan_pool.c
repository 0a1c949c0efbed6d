/* SPDX-License-Identifier: Apache-2.0 */
/* See plan_pool.h. */
#include "common/wire/plan_pool.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"

#define POOL_LARGEST 3u
/* Of the largest unit, and of all of them. */
#define POOL_SMALL_PART 8u
#define POOL_PART       8u

/* By elements: in slots of huge pages a unit of some kilobytes takes as much as one of 2 MiB. */
bool zi_plan_pool_is_small(uint64_t padded_count, uint64_t largest_count)
{
	assert(padded_count <= largest_count);
	return padded_count <= largest_count / POOL_SMALL_PART;
}

uint64_t zi_plan_pool_bytes(const struct zi_plan_pool *pool)
{
	uint64_t part_bytes = pool->all_bytes / pool->slot_bytes / POOL_PART * pool->slot_bytes;
	uint64_t bytes =
		POOL_LARGEST * pool->largest_bytes + ZI_MIN(pool->small_bytes, pool->largest_bytes);

	assert(pool->largest_bytes <= pool->all_bytes);
	assert(pool->small_bytes < pool->all_bytes || !pool->all_bytes);
	if (!pool->is_divided)
		bytes = ZI_MAX(bytes, part_bytes);
	return ZI_MIN(bytes, pool->all_bytes);
}
