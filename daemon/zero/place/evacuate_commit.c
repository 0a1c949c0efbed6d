/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was moved off a path is told to the catalog: the rows of every job at rest and every
 * snapshot that hold it, in one transaction, so that what was shared is shared still. Floor 5,
 * shard thread.
 *
 * Who cannot follow now (a job that trains, a snapshot that is read or loaded) stays a holder of
 * the old place, and nothing is wrong: its next step leaves it, or it is moved when it is free. The
 * round holds the old places itself, from before they are read: they are nobody else's meanwhile.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/zero.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/step/budget.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/flush.h"

static int moved_compare(const void *left, const void *right)
{
	const struct zero_moved *a = left, *b = right;

	if (a->from.member != b->from.member)
		return a->from.member < b->from.member ? -1 : 1;
	if (a->from.offset_bytes != b->from.offset_bytes)
		return a->from.offset_bytes < b->from.offset_bytes ? -1 : 1;
	return 0;
}

/* NULL: it was not moved. */
static struct zero_moved *moved_find(struct zero_evacuation *evacuation,
                                     const struct tier_extent *extent)
{
	const struct zero_moved key = { .from = *extent };

	if (!extent->bytes || !tier_member_is_leaving(extent->member))
		return NULL;
	return bsearch(&key, evacuation->moved, evacuation->moved_count, sizeof(key),
	               moved_compare);
}

/* ---- who holds it ---- */

/* Its rows in job->record, if it has any. */
static bool record_job(struct zero_evacuation *evacuation, struct zero_job *job)
{
	record_describe(job, &job->record);
	job->record.extents = job->record_extents;
	job->record.blobs = job->record_blobs;
	for (uint32_t i = 0; i < job->subgroup_count * _ZERO_PLANE_COUNT; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[i / _ZERO_PLANE_COUNT];
		uint32_t plane = i % _ZERO_PLANE_COUNT;
		const struct zero_place *place = &subgroup->places[plane];
		const struct zero_moved *moved = moved_find(evacuation, &place->extent);

		if (moved)
			job->record_extents[job->record.extent_count++] = record_extent(
				subgroup, plane, &moved->to,
				&job->hashes[plane][place->hash_index][subgroup->tile_first],
				place->step);
	}
	if (!job->record.extent_count)
		return false;
	record_put_blobs(job, job->committed.blob_index, job->committed.world, &job->record,
	                 job->record_blobs);
	return true;
}

/* Row @target lies where @extent is. */
static void row_place(struct catalog_extent *target, const struct tier_extent *extent)
{
	/* Who exports reads the length of rows meanwhile, on another thread. */
	assert(target->extent.bytes == extent->bytes);
	target->extent.offset_bytes = extent->offset_bytes;
	memcpy(target->store_uuid, extent->member->uuid, sizeof(target->store_uuid));
}

/* Its rows in snapshot->moving, if it has any. Without memory it stays where it is. */
static bool record_snapshot(struct zero_evacuation *evacuation, struct zero_snapshot *snapshot)
{
	const struct catalog_job *record = snapshot->record;
	struct catalog_extent *rows;
	uint32_t count = 0;

	for (uint32_t i = 0; i < record->extent_count; i++)
		count += moved_find(evacuation, &snapshot->extents[i]) != NULL;
	if (!count)
		return false;
	snapshot->moving =
		calloc(1, sizeof(*snapshot->moving) + count * sizeof(struct catalog_extent));
	if (!snapshot->moving)
		return false;
	*snapshot->moving = *record; /* All but its rows stay there. */
	rows = (struct catalog_extent *)(snapshot->moving + 1);
	snapshot->moving->extents = rows;
	snapshot->moving->extent_count = 0;
	for (uint32_t i = 0; i < record->extent_count; i++) {
		const struct zero_moved *moved = moved_find(evacuation, &snapshot->extents[i]);

		if (!moved)
			continue;
		rows[snapshot->moving->extent_count] = record->extents[i];
		row_place(&rows[snapshot->moving->extent_count++], &moved->to);
	}
	return true;
}

/* Everybody who follows. Return: their number. */
static uint32_t collect(struct zero *zero)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	uint32_t count = 0;

	zi_list_for_each(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);
		bool is_owner = job == evacuation->job;

		if ((!is_owner && !evacuate_is_at_rest(job)) || !record_job(evacuation, job))
			continue;
		if (!is_owner)
			evacuate_lock(job);
		job->is_moving = true;
		evacuation->is_durable |= job->config.durability == ZI_DURABILITY_POWER;
		evacuation->records[count++] = &job->record;
	}
	zi_list_for_each(link, &zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (!snapshot_is_movable(snapshot) || !record_snapshot(evacuation, snapshot))
			continue;
		evacuation->is_durable |=
			snapshot->record->config.durability == ZI_DURABILITY_POWER;
		evacuation->records[count++] = snapshot->moving;
	}
	return count;
}

/* ---- and after ---- */

/* One holder goes from the old place to the new one. The round holds the old one still. */
static void take_over(struct zero *zero, struct tier_extent *extent)
{
	struct zero_moved *moved = moved_find(&zero->evacuation, extent);

	if (!moved)
		return;
	share_release(&zero->shares, extent);
	*extent = moved->to;
	if (moved->is_taken)
		share_hold(&zero->shares, extent);
	moved->is_taken = true;
}

static void take_over_snapshot(struct zero_snapshot *snapshot)
{
	for (uint32_t i = 0; i < snapshot->record->extent_count; i++) {
		struct tier_extent *extent = &snapshot->extents[i];

		if (!moved_find(&snapshot->zero->evacuation, extent))
			continue;
		take_over(snapshot->zero, extent);
		row_place(&snapshot->record->extents[i], extent);
	}
}

/* Everybody follows, or (@is_told: not) stays. What nobody wants is given back, unless after the
 * restart of a catalog that broke somebody may. */
static void settle(struct zero *zero, bool is_told)
{
	struct zero_evacuation *evacuation = &zero->evacuation;

	zi_list_for_each(link, &zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (snapshot->moving && is_told)
			take_over_snapshot(snapshot);
		free(snapshot->moving);
		snapshot->moving = NULL;
	}
	zi_list_for_each(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		for (uint32_t i = 0; job->is_moving && is_told && i < job->subgroup_count; i++)
			for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
				take_over(zero, &job->subgroups[i].places[plane].extent);
	}
	for (uint32_t i = 0; i < evacuation->moved_count && !zero->frozen; i++) {
		struct zero_moved *moved = &evacuation->moved[i];

		share_release(&zero->shares, &moved->from);
		if (!moved->is_taken)
			tier_extent_release(&moved->to);
	}
	evacuation->moved_count = 0;
	free(evacuation->records);
	evacuation->records = NULL;
	zi_list_for_each_safe(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (!job->is_moving)
			continue;
		job->is_moving = false;
		if (job != evacuation->job)
			evacuate_unlock(job);
	}
}

static void told(struct catalog_request *request)
{
	struct zero *zero = container_of(request, struct zero, evacuation.request);
	struct zi_text text = request->text;

	zero->snapshot_busy_count--;
	request_look(zero, request);
	settle(zero, !request->result);
	evacuate_round_over(zero, request->result, &text);
	zero_drain(zero);
}

/* See evacuate.h. */
void evacuate_commit(struct zero *zero)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	uint32_t holder_max = 0, count = 0;
	struct zi_text text = { "" };
	int r = 0;

	qsort(evacuation->moved, evacuation->moved_count, sizeof(evacuation->moved[0]),
	      moved_compare);
	evacuation->members = 0;
	evacuation->is_durable = false;
	for (uint32_t i = 0; i < evacuation->moved_count; i++)
		evacuation->members |= tier_member_bit(evacuation->moved[i].to.member);
	zi_list_for_each(link, &zero->jobs)
		holder_max++;
	zi_list_for_each(link, &zero->snapshots)
		holder_max++;
	if (evacuation->moved_count && !zero->frozen) {
		evacuation->records = calloc(holder_max + 1ul, sizeof(*evacuation->records));
		if (!evacuation->records ||
		    share_reserve(&zero->shares, 2 * evacuation->moved_count))
			r = zi_text_error(&text, err_origin(-ENOMEM), "no memory to move extents");
		else
			count = collect(zero);
	}
	if (!count) {
		settle(zero, false);
		evacuate_round_over(zero, r, &text);
		return;
	}
	evacuation->request = (struct catalog_request){
		.kind = CATALOG_COMMIT,
		.job = evacuation->records[0],
		.others = evacuation->records + 1,
		.other_count = count - 1,
		.is_durable = evacuation->is_durable,
		.done = told,
		.loop = zero->options.loop,
	};
	if (evacuation->job) {
		evacuation->request.traffic = evacuation->job->record_traffic;
		evacuation->request.traffic_count = budget_record(evacuation->job);
	}
	zero->snapshot_busy_count++;
	flush_then_submit(zero, &evacuation->flush, evacuation->tier,
	                  evacuation->is_durable ? evacuation->members : 0, &evacuation->request);
}
