/* SPDX-License-Identifier: Apache-2.0 */
/* Places of a store that could not be read. Floor 4. */
#include "daemon/tier/damage.h"

#include <errno.h>

#include "common/base/assert.h"

/* What Linux makes of a medium error: ENODATA where the drive says so, EILSEQ where its checksum of
 * the sector does not fit, EIO where it only says that it failed. A drive that is gone may say EIO
 * as well: then its next write fails, or reads of other places. */
bool tier_damage_is(int error)
{
	return error == -EIO || error == -ENODATA || error == -EILSEQ;
}

static bool is_overlapping(const struct zi_extent *a, const struct zi_extent *b)
{
	return a->offset_bytes < b->offset_bytes + b->bytes &&
	       b->offset_bytes < a->offset_bytes + a->bytes;
}

/* Two reads that meet the same sector are about one place. */
bool tier_damage_add(struct tier_damage *damage, const struct zi_extent *place)
{
	assert(place->bytes > 0);

	damage->read_count++;
	if (damage->place_count == TIER_DAMAGE_PLACES_MAX)
		return true;
	for (uint32_t i = 0; i < damage->place_count; i++)
		if (is_overlapping(&damage->places[i], place))
			return false;
	damage->places[damage->place_count++] = *place;
	return damage->place_count == TIER_DAMAGE_PLACES_MAX;
}
