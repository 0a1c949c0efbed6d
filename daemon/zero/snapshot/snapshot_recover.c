/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots as the catalog knows them, when the daemon starts; see place/recover.c, which meets
 * their rows among those of jobs. Floor 5, before the loop runs. */
#include "daemon/zero/snapshot/snapshot_recover.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/recover_row.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot.h"

static int recover_extents(struct zero_snapshot *snapshot)
{
	struct catalog_job *record = snapshot->record;
	struct zero *zero = snapshot->zero;
	struct zero_scale scale;

	if (scale_get(record, &scale)) {
		zi_text_set(&snapshot->refusal_text, "its loss scale is invalid");
		return -EUCLEAN;
	}
	for (uint32_t i = 0; i < record->extent_count; i++) {
		const struct catalog_extent *row = &record->extents[i];
		struct tier_extent extent = recover_place(zero, row);

		if (!row->extent.bytes)
			continue;
		if (!extent.member) {
			zi_text_set(&snapshot->refusal_text,
			            "it lies on a store that the configuration does not name: give "
			            "zinfd its store again and restart it");
			return -ENODEV;
		}
		if (!extent.member->store) {
			zi_text_set(&snapshot->refusal_text,
			            "a part of it lies on %s of %s, which was not there when zinfd "
			            "started: give it that path again and restart it",
			            extent.member->path, extent.member->tier->name);
			return -ENODEV;
		}
		if (share_claim(&zero->shares, &extent, recover_digest(row))) {
			zi_text_set(&snapshot->refusal_text,
			            "it is damaged: extent %u of plane %s, unit %u, is outside its "
			            "store, or in use for something else",
			            row->subgroup, zi_plane_name(row->plane), row->unit);
			return -EUCLEAN;
		}
		snapshot->extents[i] = extent;
		snapshot->held_bytes += extent.bytes;
	}
	return 0;
}

/*
 * @record: of a snapshot, owned by this. One whose extents cannot be right is kept, refused and
 * explained. Return: 0; -ENOMEM.
 */
int snapshot_recover(struct zero *zero, struct catalog_job *record)
{
	_cleanup_(catalog_job_freep) struct catalog_job *owned = record;
	struct zero_snapshot *snapshot;
	struct zi_text text;
	int r;

	r = share_reserve(&zero->shares, record->extent_count);
	if (r)
		return err_trace(r);
	snapshot = snapshot_new(zero, record->name, record->snapshot, record->uid);
	if (!snapshot)
		return err_origin(-ENOMEM);
	snapshot->phase = ZERO_SNAPSHOT_KEPT;
	snapshot->record = zi_steal(owned);
	snapshot->is_automatic = record->is_automatic;
	snapshot->created_s = record->created_s;
	snapshot->extents = calloc(record->extent_count + 1ul, sizeof(*snapshot->extents));
	if (!snapshot->extents) {
		(void)snapshot_free(snapshot);
		return err_origin(-ENOMEM);
	}
	snapshot->refusal_text = snapshot->record->damage;
	snapshot->refusal =
		record->damage.chars[0] ? err_origin(-EUCLEAN) : recover_extents(snapshot);
	for (uint32_t i = 0; snapshot->refusal && i < record->extent_count; i++)
		share_release(&zero->shares, &snapshot->extents[i]);
	/* The space is taken, whatever the limits are now. */
	if (!snapshot->refusal && snapshot_charge(snapshot, snapshot_tier(snapshot), &text))
		log_warning("Snapshot '%s/%s' is beyond a limit, and kept: %s", record->name,
		            record->snapshot, text.chars);
	return 0;
}
