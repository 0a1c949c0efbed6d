/* SPDX-License-Identifier: Apache-2.0 */
/* The space of what could not be recovered: as far as its rows can be believed, it is given to
 * nobody. Floor 5, before the loop runs. */
#include "daemon/zero/place/recover_refused.h"

#include <string.h>

#include "common/base/err.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/recover_row.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot.h"

/*
 * Nobody writes where damaged data may lie, as far as its rows can be believed: what is outside the
 * store, or another's, is passed over. @extents: (stored->extent_count,), what is held is noted
 * there; NULL: it is held for good. Return: 0; -EUCLEAN something was passed over; -ENOMEM.
 */
static int keep_space(struct zero *zero, const struct catalog_job *stored,
                      struct tier_extent *extents)
{
	bool is_whole = true;
	int r;

	r = share_reserve(&zero->shares, stored->extent_count);
	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < stored->extent_count; i++) {
		struct tier_extent extent = recover_place(zero, &stored->extents[i]);

		if (!extent.member || !extent.member->store || !extent.bytes)
			continue;
		if (share_keep(&zero->shares, &extent))
			is_whole = false;
		else if (extents)
			extents[i] = extent;
	}
	return is_whole ? 0 : err_origin(-EUCLEAN);
}

/*
 * When every sound row has claimed its space. What a refused snapshot holds is given back with it,
 * unless rows of refused ones contradict each other or others: then nobody knows whose it is, and
 * it is given to nobody before the next start. Return: 0; -ENOMEM.
 */
int recover_keep_refused(struct zero *zero, struct catalog_job *const *refused, uint32_t count)
{
	bool is_disputed = false;
	int r = 0;

	for (uint32_t i = 0; i < count && r != -ENOMEM; i++) {
		r = keep_space(zero, refused[i], NULL);
		is_disputed |= r != 0;
	}
	zi_list_for_each(link, &zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (!snapshot->refusal || r == -ENOMEM)
			continue;
		r = keep_space(zero, snapshot->record, snapshot->extents);
		is_disputed |= r != 0;
	}
	zi_list_for_each(link, &zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (snapshot->refusal && is_disputed)
			memset(snapshot->extents, 0,
			       snapshot->record->extent_count * sizeof(*snapshot->extents));
	}
	return r == -ENOMEM ? err_trace(r) : 0;
}

/* Which of the two is the newer one may be what is not known of a refused job; or this one may have
 * been released long ago, and another's former commit lies there that is needed. -ENOMEM. */
int recover_keep_refused_formers(struct zero *zero, struct catalog_job *const *refused,
                                 uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (refused[i]->former && keep_space(zero, refused[i]->former, NULL) == -ENOMEM)
			return err_trace(-ENOMEM);
	return 0;
}
