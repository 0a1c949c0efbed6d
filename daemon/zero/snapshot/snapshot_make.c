/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From asking for a snapshot to having it: at a moment when what is in force in memory is what the
 * catalog says, the job's record is copied and its extents get a second holder. Floor 5, shard
 * thread.
 *
 * While a commit of the job is on its way to the catalog, a snapshot waits. State in memory alone
 * is written first, which counts as a commit under way: steps wait for it; or, when a step has
 * begun, before its update, which waits.
 */
#include "daemon/zero/snapshot/snapshot_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/memory.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/snapshot/snapshot_remove.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/discard.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/step_end.h"

static void snapshot_fail(struct zero_snapshot *snapshot, int error, const struct zi_text *text)
{
	snapshot_tell(snapshot, error, text);
	(void)snapshot_free(snapshot);
}

/* Digits, so that names sort as steps do. A job that went back to an earlier step comes by a second
 * time: what it kept the first time stays until it is the oldest. */
static void name_periodic(const struct zero_snapshot *snapshot, int64_t step,
                          char name[ZI_NAME_BYTES])
{
	(void)snprintf(name, ZI_NAME_BYTES, "auto-%06lld", (long long)step); /* Fits, as below. */
	for (uint32_t i = 2; snapshot_find(snapshot->zero, snapshot->job_name, name); i++)
		(void)snprintf(name, ZI_NAME_BYTES, "auto-%06lld.%u", (long long)step, i);
}

/* One without a name gets that of its step. */
static int name_fill(struct zero_snapshot *snapshot, int64_t step, struct zi_text *text)
{
	char name[ZI_NAME_BYTES];

	if (snapshot->name[0])
		return 0;
	if (snapshot->is_periodic)
		name_periodic(snapshot, step, name);
	else
		(void)snprintf(name, sizeof(name), "step-%lld", (long long)step); /* Fits. */
	if (snapshot_find(snapshot->zero, snapshot->job_name, name))
		return err_origin(zi_text_error(text, -EEXIST, "snapshot '%s/%s' exists",
		                                snapshot->job_name, name));
	(void)zi_copy_name(snapshot->name, sizeof(snapshot->name), name);
	return 0;
}

/* The record, owned. */
static int capture(struct zero_snapshot *snapshot, const struct zero_job *job, enum record_of of)
{
	_cleanup_(zi_freep) struct catalog_extent *extents = NULL;
	_cleanup_(zi_freep) struct catalog_blob *blobs = NULL;
	struct catalog_job record;
	int r;

	extents = calloc(2 * (size_t)job->subgroup_count, sizeof(*extents));
	blobs = calloc(ZI_WORLD_MAX, sizeof(*blobs));
	if (!extents || !blobs)
		return err_origin(-ENOMEM);
	record_describe(job, &record);
	if (of == RECORD_FORMER)
		record_put_marks(&record, job->former.step, &job->former.marks);
	record.incarnation_count = 0;
	record.created_s = snapshot->created_s;
	record.is_automatic = snapshot->is_automatic;
	(void)zi_copy_name(record.snapshot, sizeof(record.snapshot), snapshot->name);
	record_committed(job, of, &record, extents, blobs);
	r = catalog_job_copy(&record, &snapshot->record);
	if (!r)
		r = share_reserve(&job->zero->shares, record.extent_count);
	if (r)
		return err_trace(r);
	snapshot->extents = calloc(record.extent_count, sizeof(*snapshot->extents));
	return snapshot->extents ? 0 : err_origin(-ENOMEM);
}

/* Committed extents get a second holder; those that were written for it alone are its own. */
static void hold(struct zero_snapshot *snapshot, struct zero_job *job, enum record_of of)
{
	bool is_next = of == RECORD_WRITTEN;
	struct tier_extent *extent = snapshot->extents;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++) {
			struct zero_place *place = &job->subgroups[i].places[plane];

			if (!job_keeps(&job->subgroups[i], plane))
				continue;
			if (is_next)
				*extent = place->next;
			else if (of == RECORD_FORMER && place->kept_is == ZERO_KEPT_FORMER)
				*extent = place->kept;
			else
				*extent = *place_committed(place);
			bytes += extent->bytes;
			if (is_next)
				place->next = (struct tier_extent){ 0 };
			else if (extent->bytes)
				share_hold(&job->zero->shares, extent);
			extent++;
		}
	}
	assert(!is_next || snapshot->held_bytes == bytes);
	snapshot->held_bytes = bytes;
}

static int charge(struct zero_snapshot *snapshot, const struct zero_job *job, struct zi_text *text)
{
	int r = snapshot_charge(snapshot, job->nvme_tier, text);

	/* Of a job at rest nothing is lost by it, as long as it is. */
	snapshot->is_unpaid = r && snapshot->is_hold && !job->attached_count;
	return snapshot->is_unpaid ? 0 : r;
}

/* ---- from asking to kept ---- */

void snapshot_stored(struct catalog_request *request)
{
	struct zero_snapshot *snapshot = container_of(request, struct zero_snapshot, request);
	struct zero *zero = snapshot->zero;
	uint32_t keep_count = snapshot->keep_count;
	struct zi_text text = request->text;

	zero->snapshot_busy_count--;
	request_look(zero, request);
	if (request->result) {
		snapshot_fail(snapshot, request->result, &text);
	} else if (snapshot->keep_id) {
		snapshot->phase = ZERO_SNAPSHOT_STORED;
		keep_told(snapshot, 0, &text);
	} else {
		snapshot->phase = ZERO_SNAPSHOT_KEPT;
		snapshot_tell(snapshot, 0, &text);
		evacuate_kick(zero);
		if (keep_count)
			snapshot_retain(zero, snapshot->job_name, keep_count);
	}
	zero_drain(zero);
}

/* Nobody but the reader knows of it. */
static void held(struct zero_snapshot *snapshot)
{
	struct zi_text none = { "" };

	snapshot->phase = ZERO_SNAPSHOT_KEPT;
	snapshot->use_count++;
	snapshot->op->held = snapshot;
	snapshot_tell(snapshot, 0, &none);
}

/* What is in force now, in memory and in the catalog alike. Ends in snapshot_fail() or
 * snapshot_stored(). */
static void take(struct zero_snapshot *snapshot, struct zero_job *job, enum record_of of)
{
	struct zi_text text = { "" };
	int r;

	zi_text_set(&text, "no memory for a snapshot of job '%s'", job->name);
	r = snapshot->is_hold ? 0 : name_fill(snapshot, job->committed_step, &text);
	if (!r)
		r = capture(snapshot, job, of);
	if (r) {
		snapshot_fail(snapshot, r, &text);
		return;
	}
	hold(snapshot, job, of);
	snapshot->job = NULL;
	/* What was written for it was paid for before. */
	r = of == RECORD_WRITTEN ? 0 : charge(snapshot, job, &text);
	if (r)
		snapshot_fail(snapshot, r, &text);
	else if (snapshot->is_hold)
		held(snapshot);
	else
		snapshot_submit(snapshot, ZERO_SNAPSHOT_STORING, snapshot_stored);
}

/* Between steps: none begins until it is written. */
static void keep_begin(struct zero_job *job)
{
	job->step.is_commit = false;
	job->step.is_keep = true;
	job->step.generation = job->group.generation;
	job_step_set(job, ZERO_STEP_COMMITTING);
}

/* State in memory alone is written first, at a moment when no step changes it. Return: whether it
 * is. */
static bool write_start(struct zero_snapshot *snapshot, struct zero_job *job)
{
	struct zi_text text = { "" };
	int r = 0;

	for (uint32_t i = 0; i < job->layout.unit_count && !r; i++)
		if (job->units[i].is_written || job->units[i].is_state_written ||
		    job->units[i].is_copying)
			r = zi_text_error(&text, -EBUSY, "unit '%s' was written and not committed",
			                  job->layout.units[i].name);
	if (!r)
		r = memory_plan_items(job);
	/* Space that is not paid for may be what another job's next step needs. */
	snapshot->held_bytes = extents_wanted_bytes(job, EXTENTS_KEEP);
	if (!r)
		r = charge(snapshot, job, &text);
	if (!r)
		r = extents_reserve(job, EXTENTS_KEEP, &text);
	if (r) {
		snapshot_fail(snapshot, r, &text);
		return false;
	}
	snapshot->phase = ZERO_SNAPSHOT_WRITING;
	if (job->step.phase == ZERO_STEP_NONE)
		keep_begin(job);
	else
		(void)pipeline_abort(job); /* Nothing is in flight: see is_ready(). */
	assert(job->pipeline.kind == ZERO_PIPELINE_NONE);
	pipeline_start(job, ZERO_PIPELINE_KEEP);
	return true;
}

/* The step, in which it began, is no more. */
void snapshot_outlives_step(struct zero_job *job)
{
	assert(job->pipeline.kind == ZERO_PIPELINE_KEEP);
	keep_begin(job);
}

/* Whose snapshot is being written by the KEEP pipeline. */
static struct zero_snapshot *snapshot_writing(const struct zero_job *job)
{
	zi_list_for_each(link, &job->zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (snapshot->job == job && snapshot->phase == ZERO_SNAPSHOT_WRITING)
			return snapshot;
	}
	return NULL;
}

/* The KEEP pipeline has ended. */
void snapshot_written(struct zero_job *job, int error, const struct zi_text *text)
{
	struct zero_snapshot *snapshot = snapshot_writing(job);

	assert(snapshot);
	if (error)
		snapshot_fail(snapshot, error, text);
	else
		take(snapshot, job, RECORD_WRITTEN);
	extents_release_next(job); /* What the snapshot did not take, and where a write failed. */
	if (job->step.is_discarding) {
		discard_advance(job);
	} else if (job->step.phase == ZERO_STEP_STEPPING) {
		pipeline_start(job, ZERO_PIPELINE_UPDATE);
		step_advance(job);
	} else {
		step_end(job, error, text);
	}
}

/* See snapshot_make.h. */
bool snapshot_is_writable(const struct zero_job *job, bool is_kept_by_all)
{
	if (job->is_materializing)
		return false;
	/* A rank may wait for the snapshot while others have begun the next step, which changes
	 * nothing until all have ended it: until then its pipeline has nothing in flight, as all is
	 * in memory. One that all nodes keep comes before all of them end it. */
	if (job->step.phase == ZERO_STEP_STEPPING)
		return job->pipeline.kind == ZERO_PIPELINE_UPDATE && !job->step.is_early &&
		       (is_kept_by_all || !job->step.is_asked);
	return job->step.phase == ZERO_STEP_NONE &&
	       job->busy_count == (is_kept_by_all ? keep_waits(job) : 0);
}

/* Whether one that all nodes keep can be made now. Return: 0, and of what; 1 later; -ESTALE. */
static int find_kept(const struct zero_snapshot *snapshot, const struct zero_job *job,
                     enum record_of *ret_of, struct zi_text *text)
{
	const struct zero_marks *marks = &job->committed, *former = &job->former.marks;

	*ret_of = RECORD_PRESENT;
	if (marks->number == snapshot->keep_number && marks->line == snapshot->keep_line)
		return job_is_nvme(job) ? job->is_materializing : !snapshot_is_writable(job, true);
	*ret_of = RECORD_FORMER;
	if (job->former.is_kept && former->number == snapshot->keep_number &&
	    former->line == snapshot->keep_line && !former_is_elsewhere(job))
		return 0;
	return err_origin(zi_text_error(
		text, -ESTALE, "job '%.60s' is at commit %llu (%016llx), not %llu (%016llx)",
		job->name, (unsigned long long)marks->number, (unsigned long long)marks->line,
		(unsigned long long)snapshot->keep_number,
		(unsigned long long)snapshot->keep_line));
}

static int find(const struct zero_snapshot *snapshot, const struct zero_job *job,
                enum record_of *ret_of, struct zi_text *text)
{
	if (snapshot->keep_id)
		return find_kept(snapshot, job, ret_of, text);
	*ret_of = RECORD_PRESENT;
	if (!job_is_nvme(job))
		return !snapshot_is_writable(job, false);
	return job->step.phase == ZERO_STEP_COMMITTING || job->is_materializing;
}

/* The first one that waits, if its time has come, is made, or fails. Return: one was, and there may
 * be others; what is told of it may have changed them all. */
static bool retry_one(struct zero_job *job)
{
	zi_list_for_each(link, &job->zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);
		struct zi_text text = { "" };
		enum record_of of;
		int r;

		if (snapshot->job != job || snapshot->phase != ZERO_SNAPSHOT_WAITING)
			continue;
		r = find(snapshot, job, &of, &text);
		if (r > 0)
			continue;
		if (r)
			snapshot_fail(snapshot, r, &text);
		else if (job_is_nvme(job))
			take(snapshot, job, of);
		else
			return !write_start(snapshot, job); /* One at a time. */
		return true;
	}
	return false;
}

/* Looked at whenever a step, or what was in flight, has ended. */
void snapshot_retry(struct zero_job *job)
{
	keep_retry(job);
	while (retry_one(job))
		;
}

/* See snapshot_make.h. Taken at once, or (state in memory alone) before the next update. */
void snapshot_keep_due(struct zero_job *job, int64_t former_step)
{
	struct zero *zero = job->zero;
	int64_t interval = job->config.snapshot_interval;
	struct zero_snapshot *snapshot;

	if (!interval || job->committed_step <= former_step || job->is_deleting || zero->frozen)
		return;
	/* Step 0 is the first values, which are nobody's work. */
	if (job->committed_step / interval == ZI_MAX(former_step, (int64_t)0) / interval)
		return;
	/* Nobody writes state any more. */
	if (zero->is_stopping && !job_is_nvme(job))
		return;
	snapshot = snapshot_new(zero, job->name, "", job->uid);
	if (!snapshot) {
		job->unkept_count++;
		zi_text_set(&job->unkept_text, "no memory for a snapshot");
		return;
	}
	snapshot->job = job;
	snapshot->is_automatic = true;
	snapshot->is_periodic = true;
	snapshot->keep_count = job->config.snapshot_keep;
}

/* What waits for a job that ends, or for a daemon that stops, is refused. */
void snapshot_cancel(struct zero_job *job, int error, const char *why)
{
	struct zi_text text;

	zi_text_set(&text, "%s", why);
	zi_list_for_each_safe(link, &job->zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (snapshot->job == job && snapshot->phase == ZERO_SNAPSHOT_WAITING)
			snapshot_fail(snapshot, error, &text);
	}
}
