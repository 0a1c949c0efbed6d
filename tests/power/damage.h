/* SPDX-License-Identifier: Apache-2.0 */
/* What a disk does to what lies on it, long after it was flushed. */
#pragma once

#include <stdint.h>

#include "tests/power/disk.h"

enum damage_kind {
	DAMAGE_FLIP,      /* a bit */
	DAMAGE_ZERO,      /* a sector reads as zeros */
	DAMAGE_NOISE,     /* a sector reads as anything */
	DAMAGE_STALE,     /* a page is as it was before: a write was lost */
	DAMAGE_MISPLACED, /* a page lies where another belongs, too */
	DAMAGE_CUT,       /* the file ends early */
	_DAMAGE_KIND_COUNT,
};

/* Damages the chosen state of @disk once, in one file of the part. @before: a chosen state of an
 * earlier time. Return: false when it changes nothing. */
bool damage(struct disk *disk, struct disk *before, enum disk_part part, enum damage_kind kind,
            uint64_t seed);
