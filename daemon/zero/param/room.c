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
#include "common/base/order.h"
#include "daemon/zero/job/job.h"

/*
 * room_seam() - where no run may lie across, in a pool of @slot_count slots for runs of up to
 * @largest; 0: nowhere
 * @second: the longest run that is shorter than @largest; 0: all are as long
 * @ret_is_uneven: the value for zero_shelf->is_uneven
 *
 * A pinned run does not move, and may cut the free slots into pieces that are too short.
 *
 *   pool for              seam                 reason
 *   three of the largest  none                 a pinned run leaves room for any other
 *   two                   in the middle        the half without the pinned run is free
 *   less                  below the last       above it is room for one of the largest, below it
 *                         @largest slots       for three others; else none
 *
 * Units differ so much in length where an embedding is larger than several blocks.
 */
uint32_t room_seam(uint32_t slot_count, uint32_t largest, uint32_t second, bool *ret_is_uneven)
{
	assert(largest <= slot_count);
	*ret_is_uneven = false;
	if (slot_count / 2 >= largest)
		return slot_count / 3 < largest ? slot_count / 2 : 0;
	if (!second || second > (slot_count - largest) / 3)
		return 0;
	*ret_is_uneven = true;
	return slot_count - largest;
}

void room_note_longest(uint32_t count, uint32_t *largest, uint32_t *second)
{
	if (count > *largest) {
		*second = *largest;
		*largest = count;
	} else if (count < *largest && count > *second) {
		*second = count;
	}
}

/* The best window so far. */
struct choice {
	uint64_t distance;
	uint32_t count; /* runs that must go; UINT32_MAX: there is none yet */
};

/* The window from @first on, which begins before the end of run @run_first and behind the one
 * before: better than @choice? */
static void try_window(const struct zero_shelf *shelf, uint32_t first, uint32_t run_first,
                       uint32_t wanted, uint64_t soonest, struct choice *choice,
                       struct zero_room *ret_room)
{
	uint64_t distance = ZI_DISTANCE_NEVER;
	uint32_t i = run_first;

	if (first > shelf->slot_count || shelf->slot_count - first < wanted)
		return;
	if (first < shelf->seam && shelf->seam < first + wanted)
		return;
	for (; i < shelf->run_count && shelf->runs[i].first < first + wanted; i++) {
		if (shelf->runs[i].is_fixed)
			return;
		distance = ZI_MIN(distance, shelf->runs[i].distance);
	}
	if (distance < soonest)
		return;
	if (choice->count != UINT32_MAX &&
	    (distance < choice->distance ||
	     (distance == choice->distance && i - run_first >= choice->count)))
		return;
	*choice = (struct choice){ .distance = distance, .count = i - run_first };
	*ret_room = (struct zero_room){ .first = first, .run_first = run_first, .run_last = i };
}

static bool choose(const struct zero_shelf *shelf, uint32_t wanted, uint64_t soonest,
                   struct zero_room *ret_room)
{
	struct choice choice = { .count = UINT32_MAX };
	uint32_t behind_seam = 0;

	try_window(shelf, 0, 0, wanted, soonest, &choice, ret_room);
	for (uint32_t i = 0; i < shelf->run_count; i++) {
		const struct zero_run *run = &shelf->runs[i];

		try_window(shelf, run->first, i, wanted, soonest, &choice, ret_room);
		try_window(shelf, run->first + run->count, i + 1, wanted, soonest, &choice,
		           ret_room);
		behind_seam += run->first + run->count <= shelf->seam;
	}
	if (shelf->seam)
		try_window(shelf, shelf->seam, behind_seam, wanted, soonest, &choice, ret_room);
	return choice.count != UINT32_MAX;
}

/*
 * room_choose() - a window of @wanted slots
 * @soonest: only runs whose next use is as far as this may go
 * @ret_room: where, and which runs must go: as few as possible among equals, the lowest of those
 *
 * A best window can always be shifted down until it begins at a run, or where one ends, or at the
 * seam: nothing else is tried. In an uneven pool a window that fits below the seam lies there.
 * Return: false when there is none.
 */
bool room_choose(const struct zero_shelf *shelf, uint32_t wanted, uint64_t soonest,
                 struct zero_room *ret_room)
{
	struct zero_shelf below = *shelf;

	assert(wanted > 0);
	if (!shelf->is_uneven || wanted > shelf->seam)
		return choose(shelf, wanted, soonest, ret_room);
	below.slot_count = shelf->seam;
	below.seam = 0;
	/* Never above, not even where a demand waits for it: it would be pinned there, and its rank
	 * may wait for a rank that needs the largest unit. */
	return choose(&below, wanted, soonest, ret_room);
}
