/* SPDX-License-Identifier: Apache-2.0 */
/* See pool.h. A bucket is a rank's from its acquire to its reduce, then the daemon's until the sum
 * is made, or in an early update the step: only then its slots may be another unit's. */
#include "daemon/zero/grad/pool.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "daemon/zero/job/advice.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/param/room.h"

/* Slots of the longest unit, and of the longest that is shorter. */
static void count_slots(const struct zero_job *job, uint32_t *slot_counts, uint32_t *largest,
                        uint32_t *second)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);

	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		uint64_t bytes =
			zi_geometry_unit_bytes(job->units[i].padded_count, width, job->slot_bytes);

		slot_counts[i] = (uint32_t)(bytes / job->slot_bytes);
		room_note_longest(slot_counts[i], largest, second);
	}
}

/* Return: 0; -ENOMEM. */
static int make_tables(struct zero_job *job)
{
	uint32_t unit_count = job->layout.unit_count;
	struct zero_grad_pool *pool = job->grad_pool;
	uint32_t largest = 0, second = 0;
	int r = 0;

	pool->slot_counts = calloc(unit_count, sizeof(*pool->slot_counts));
	if (!pool->slot_counts)
		return err_origin(-ENOMEM);
	count_slots(job, pool->slot_counts, &largest, &second);
	for_each_rank_here(job, rank) {
		if (!r)
			r = buckets_init(&pool->buckets[rank], pool->slot_count, largest, second,
			                 unit_count);
	}
	return err_trace(r);
}

static int charge_tables(struct zero_job *job, struct zi_text *text)
{
	int r = tier_charge_take(&job->grad_pool->charge, job->cpu_tier, &job->account->account,
	                         job->grad_plan.table_bytes, text);

	if (!r)
		return 0;
	advice_append(job, text);
	return err_origin(r == TIER_E_QUOTA ? -EDQUOT : -ENOSPC);
}

/* See pool.h. */
int grad_pool_new(struct zero_job *job, struct zi_text *text)
{
	uint64_t slot_count = job->grad_plan.rank_bytes / job->slot_bytes;
	int r = 0;

	assert(!job->grad_pool);
	if (slot_count > UINT32_MAX - 1)
		r = err_origin(-EOVERFLOW);
	if (!r)
		job->grad_pool = calloc(1, sizeof(*job->grad_pool));
	if (!r && !job->grad_pool)
		r = err_origin(-ENOMEM);
	if (r)
		return err_origin(zi_text_error(text, r, "no memory for tables"));
	job->grad_pool->slot_count = (uint32_t)slot_count;
	r = charge_tables(job, text);
	if (!r && make_tables(job))
		r = err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	if (r)
		grad_pool_free(job);
	return err_trace(r);
}

/* See pool.h. */
void grad_pool_free(struct zero_job *job)
{
	struct zero_grad_pool *pool = job->grad_pool;

	if (!pool)
		return;
	job->grad_pool = NULL;
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		buckets_deinit(&pool->buckets[i]);
	free(pool->slot_counts);
	tier_charge_return(&pool->charge);
	free(pool);
}

/* See pool.h. */
uint64_t grad_pool_charged_bytes(const struct zero_job *job)
{
	return job->grad_pool ? job->grad_pool->charge.bytes : 0;
}

/* See pool.h. */
bool grad_pool_take(struct zero_job *job, uint32_t rank, uint32_t unit, uint64_t *ret_offset)
{
	struct zero_buckets *buckets = &job->grad_pool->buckets[rank];

	assert(!(job->units[unit].held_mask >> rank & 1));
	if (!buckets_have(buckets, unit) &&
	    !buckets_take(buckets, unit, job->grad_pool->slot_counts[unit]))
		return false;
	*ret_offset = buckets->firsts[unit] * job->slot_bytes;
	return true;
}

/* See pool.h. */
bool grad_pool_has(const struct zero_job *job, uint32_t rank, uint32_t unit)
{
	return buckets_have(&job->grad_pool->buckets[rank], unit);
}

/* See pool.h. */
void grad_pool_clear(struct zero_job *job, uint32_t unit)
{
	if (!job->grad_pool)
		return;
	for_each_rank_here(job, rank)
		if (buckets_have(&job->grad_pool->buckets[rank], unit))
			buckets_give(&job->grad_pool->buckets[rank], unit);
}

/* See pool.h. */
void grad_release(struct zero_job *job, uint32_t unit, uint64_t mask)
{
	uint64_t rest = job->grad_pool ? job->units[unit].held_mask & mask : 0;

	for (; rest; rest &= rest - 1)
		buckets_give(&job->grad_pool->buckets[__builtin_ctzll(rest)], unit);
	job->units[unit].held_mask &= ~mask;
}
