/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of a job's parameters: runs of slots, one for each unit that is there or on its way, in
 * order; who gives way to whom is decided by next use (room.c). Floor 5, shard thread.
 */
#include "daemon/zero/param/pool.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/order.h"
#include "common/wire/geometry.h"
#include "common/wire/plan_pool.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/param/room.h"

/* Slots of the largest unit; *ret_unit is that one. */
uint32_t pool_slots_min(const struct zero_job *job, uint32_t *ret_unit)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
	uint64_t most_bytes = 0;

	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		uint64_t bytes =
			zi_geometry_unit_bytes(job->units[i].padded_count, width, job->slot_bytes);

		if (bytes > most_bytes)
			*ret_unit = i;
		most_bytes = ZI_MAX(most_bytes, bytes);
	}
	return (uint32_t)(most_bytes / job->slot_bytes);
}

/* See common/wire/plan_pool.h. */
uint64_t pool_slots_chosen(const struct zero_job *job)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
	uint32_t largest = 0;
	uint32_t slots_min = pool_slots_min(job, &largest);
	struct zi_plan_pool pool = {
		.all_bytes = job->param_bytes,
		.largest_bytes = slots_min * job->slot_bytes,
		.slot_bytes = job->slot_bytes,
		.is_divided = job_divides_param(job),
	};

	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		uint64_t padded_count = job->units[i].padded_count;

		if (zi_plan_pool_is_small(padded_count, job->units[largest].padded_count))
			pool.small_bytes +=
				zi_geometry_unit_bytes(padded_count, width, job->slot_bytes);
	}
	return zi_plan_pool_bytes(&pool) / job->slot_bytes;
}

/* Uses until any rank uses it next. */
uint64_t pool_distance(const struct zero_job *job, uint32_t unit)
{
	uint64_t distance = ZI_DISTANCE_NEVER;

	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *rank = job->group.ranks[i];

		if (rank)
			distance = ZI_MIN(distance, zi_order_distance(&job->residency->order, unit,
			                                              rank->order_place));
	}
	return distance;
}

/* Only what is pinned by @pin_mask, and with @is_moving what cannot go right now, stays. */
bool pool_find_room(struct zero_job *job, uint32_t unit, uint64_t soonest, uint64_t pin_mask,
                    bool is_moving, struct zero_room *ret_room)
{
	struct zero_residency *residency = job->residency;

	for (uint32_t i = 0; i < residency->run_count; i++) {
		struct zero_run *run = &residency->runs[i];
		const struct zero_residence *residence = &residency->units[run->unit];

		run->distance = pool_distance(job, run->unit);
		run->is_fixed = residence->pinned_mask & pin_mask;
		if (is_moving)
			run->is_fixed |= residence->presence == ZERO_LOADING ||
			                 job->units[run->unit].pooled_count;
	}
	return room_choose(&(struct zero_shelf){ .runs = residency->runs,
	                                         .run_count = residency->run_count,
	                                         .slot_count = residency->slot_count,
	                                         .seam = residency->seam,
	                                         .is_uneven = residency->is_uneven },
	                   residency->units[unit].slot_count, soonest, ret_room);
}

static void run_remove(struct zero_job *job, uint32_t index)
{
	struct zero_residency *residency = job->residency;
	struct zero_run *run = &residency->runs[index];

	residency->units[run->unit].presence = ZERO_ABSENT;
	residency->run_count--;
	memmove(run, run + 1, (residency->run_count - index) * sizeof(*run));
}

void pool_evict(struct zero_job *job, uint32_t unit)
{
	const struct zero_residency *residency = job->residency;

	assert(!residence_of(job, unit)->pinned_mask);
	for (uint32_t i = 0; i < residency->run_count; i++)
		if (residency->runs[i].unit == unit) {
			run_remove(job, i);
			return;
		}
	assert(false);
}

void pool_insert(struct zero_job *job, uint32_t unit, const struct zero_room *room)
{
	struct zero_residency *residency = job->residency;
	struct zero_residence *residence = &residency->units[unit];
	struct zero_run *run = &residency->runs[room->run_first];

	for (uint32_t i = room->run_first; i < room->run_last; i++) {
		residency->evicted_count++;
		run_remove(job, room->run_first);
	}
	memmove(run + 1, run, (residency->run_count - room->run_first) * sizeof(*run));
	residency->run_count++;
	*run = (struct zero_run){ .unit = unit,
		                  .first = room->first,
		                  .count = residence->slot_count };
	residence->presence = ZERO_LOADING;
	residence->slot_first = room->first;
	residence->is_void = false;
}
