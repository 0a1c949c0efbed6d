/* SPDX-License-Identifier: Apache-2.0 */
/* Where in the pool a run of slots may lie, and who must go for it. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"

/* A unit's slots in the pool. */
struct zero_run {
	uint32_t unit;
	uint32_t first, count;
	uint64_t distance; /* uses until it is used next */
	bool is_fixed;     /* must stay */
};

/* A pool, as room_choose() sees it. */
struct zero_shelf {
	const struct zero_run *runs; /* (run_count,) by first slot, without overlap */
	uint32_t run_count;
	uint32_t slot_count;
	uint32_t seam;  /* no window reaches over this slot's begin; 0: none */
	bool is_uneven; /* what fits below the seam lies there: of room_seam() */
};

/* A window of the pool, and what lies in it. */
struct zero_room {
	uint32_t first;               /* slot */
	uint32_t run_first, run_last; /* runs that must go: first, and one after the last */
};

uint32_t room_seam(uint32_t slot_count, uint32_t largest, uint32_t second, bool *ret_is_uneven);
/* Of run lengths the longest, and the longest of all that are shorter; 0: there are none. */
void room_note_longest(uint32_t count, uint32_t *largest, uint32_t *second);
bool room_choose(const struct zero_shelf *shelf, uint32_t wanted, uint64_t soonest,
                 struct zero_room *ret_room);
