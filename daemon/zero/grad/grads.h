/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where gradients lie: those of each rank, in a segment of its own that it alone writes, and their
 * sums. Floor 5; shard thread, and device threads, for units that they work on.
 */
#pragma once

#include "common/base/assert.h"
#include "daemon/zero/grad/pool.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/set.h"

/* The gradient of a unit that the rank trains, from @offset_bytes of its first element on. */
static inline void *grad_at(const struct zero_job *job, uint32_t rank, uint32_t unit,
                            uint64_t offset_bytes)
{
	const struct zero_grad_pool *pool = job->grad_pool;
	const struct zero_set *set = set_of(job, unit);
	uint64_t begin = set->grad_bases[rank] + job->units[unit].grad_offset;

	zi_debug_assert(set->members >> rank & 1);
	/* It stays where it is while there is a task that works on the unit. */
	if (pool)
		begin = pool->buckets[rank].firsts[unit] * job->slot_bytes;
	zi_debug_assert(!pool || pool->buckets[rank].firsts[unit] != BUCKET_NONE);
	return (char *)job->grads[rank]->region.base + begin + offset_bytes;
}
/* Of a subgroup, from @offset_bytes of its first element on: (n,) of the ranks that are here, in
 * their order. Return: n. */
static inline uint32_t grad_sources(const struct zero_job *job,
                                    const struct zero_subgroup *subgroup, uint64_t offset_bytes,
                                    const void *ret_sources[ZI_WORLD_MAX])
{
	uint64_t rest = set_mask_here(job, subgroup->unit);
	uint32_t count = 0;

	for (; rest; rest &= rest - 1)
		ret_sources[count++] = grad_at(job, (uint32_t)__builtin_ctzll(rest), subgroup->unit,
		                               subgroup->grad_begin + offset_bytes);
	return count;
}
/* Sums have memory that no rank sees. */
static inline bool grad_sums_are_apart(const struct zero_job *job)
{
	return job->grad_pool || job->sums || job_has_wide_sums(job);
}
/* Else: in whose buffer the sum of a unit lies, once it is made: the first one's here that trains
 * it. */
static inline uint32_t grad_sum_rank(const struct zero_job *job, uint32_t unit)
{
	uint64_t mask = set_mask_here(job, unit);

	assert(mask);
	return (uint32_t)__builtin_ctzll(mask);
}
static inline void *grad_sum_at(const struct zero_job *job, const struct zero_subgroup *subgroup)
{
	if (job_has_wide_sums(job))
		return (char *)job->accum->region.base + subgroup->accum_offset;
	if (grad_sums_are_apart(job))
		return subgroup->sum;
	return grad_at(job, grad_sum_rank(job, subgroup->unit), subgroup->unit,
	               subgroup->grad_begin);
}
