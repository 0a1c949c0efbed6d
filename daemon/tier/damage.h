/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of a store that could not be read, since the daemon started. Floor 4, shard thread; plain
 * figures.
 *
 * A drive that returns everything but one sector is not a drive that dies: what lies there is lost
 * to its job, which is told, and the next write there makes the sector good. One that has lost
 * several is another matter.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/types.h"

/* So many different places, and a store counts as dying. Drives promise one sector that cannot be
 * read in 10^15 to 10^17 bits (100 TB to 10 PB): one is bad luck, a second after weeks of training
 * may be. Four within the life of a daemon are some hundred times what any drive promises. And few
 * enough that a path which answers no read at all is found out by the reads of one step. */
#define TIER_DAMAGE_PLACES_MAX 4u

struct tier_damage {
	struct zi_extent places[TIER_DAMAGE_PLACES_MAX];
	uint32_t place_count;
	uint64_t read_count; /* reads that failed so, also of the same place */
};

/* Is this what a read says of a place, and not of the whole store? @error: negative errno. */
bool tier_damage_is(int error);
/* A read of @place failed so. Return: whether it was the last place that is put up with. */
bool tier_damage_add(struct tier_damage *damage, const struct zi_extent *place);
