/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room in the pool: where a run of slots may lie, and which units must go for it. Pure arithmetic.
 * Floor 5.
 *
 * Next-use eviction (L. A. Belady, A study of replacement algorithms for a virtual-storage
 * computer, IBM Systems Journal 5(2), 1966: evict what is used again last), for runs of different
 * lengths that must be contiguous: of all windows, the one whose soonest next use is latest. With
 * runs of one length that is Belady's choice.
 */
#include "daemon/zero/param/room.h"

#include "common/base/assert.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/param/order.h"

/* A window from @first on. Return: its soonest next use; with *ret_is_free false it cannot be. */
static uint64_t window_distance(const struct zero_run *runs, uint32_t run_count, uint32_t first,
                                uint32_t wanted, uint32_t run_first, bool *ret_is_free,
                                uint32_t *ret_run_last)
{
	uint64_t distance = ZERO_DISTANCE_NEVER;
	uint32_t i = run_first;

	for (; i < run_count && runs[i].first < first + wanted; i++) {
		if (runs[i].is_fixed) {
			*ret_is_free = false;
			return 0;
		}
		distance = ZI_MIN(distance, runs[i].distance);
	}
	*ret_is_free = true;
	*ret_run_last = i;
	return distance;
}

/*
 * room_choose() - a window of @wanted slots
 * @runs: (@run_count,) by first slot, without overlap
 * @slot_count: of the pool
 * @soonest: only runs whose next use is as far as this may go
 * @ret_room: where, and which runs must go: as few as possible among equals, the lowest of those
 *
 * A best window can always be shifted down until it begins at a run, or where one ends: nothing
 * else is tried. Return: false when there is none.
 */
bool room_choose(const struct zero_run *runs, uint32_t run_count, uint32_t slot_count,
                 uint32_t wanted, uint64_t soonest, struct zero_room *ret_room)
{
	uint64_t best_distance = 0;
	uint32_t best_count = UINT32_MAX;

	assert(wanted > 0);
	/* Begins: the pool's, then of each run its own and where it ends. */
	for (uint32_t begin = 0; begin <= 2 * run_count; begin++) {
		uint32_t index = begin ? (begin - 1) / 2 : 0;
		bool is_behind = begin && (begin - 1) % 2;
		uint32_t first =
			begin ? runs[index].first + (is_behind ? runs[index].count : 0) : 0;
		uint32_t run_first = index + is_behind;
		uint32_t run_last = run_first;
		uint64_t distance;
		bool is_free;

		if (first > slot_count || slot_count - first < wanted)
			break;
		distance = window_distance(runs, run_count, first, wanted, run_first, &is_free,
		                           &run_last);
		if (!is_free || distance < soonest)
			continue;
		if (best_count != UINT32_MAX &&
		    (distance < best_distance ||
		     (distance == best_distance && run_last - run_first >= best_count)))
			continue;
		best_distance = distance;
		best_count = run_last - run_first;
		*ret_room = (struct zero_room){ .first = first,
			                        .run_first = run_first,
			                        .run_last = run_last };
	}
	return best_count != UINT32_MAX;
}
