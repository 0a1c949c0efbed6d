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
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/memory.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/commit.h"
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

/* The record, owned. @is_next: state in memory alone, as it was just written. */
static int capture(struct zero_snapshot *snapshot, const struct zero_job *job, bool is_next)
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
	record.incarnation_count = 0;
	record.created_s = snapshot->created_s;
	record.is_automatic = snapshot->is_automatic;
	(void)zi_copy_name(record.snapshot, sizeof(record.snapshot), snapshot->name);
	record_committed(job, is_next, &record, extents, blobs);
	r = catalog_job_copy(&record, &snapshot->record);
	if (!r)
		r = share_reserve(&job->zero->shares, record.extent_count);
	if (r)
		return err_trace(r);
	snapshot->extents = calloc(record.extent_count, sizeof(*snapshot->extents));
	return snapshot->extents ? 0 : err_origin(-ENOMEM);
}

/* Committed extents get a second holder; those that were written for it alone are its own. */
static void hold(struct zero_snapshot *snapshot, struct zero_job *job, bool is_next)
{
	struct tier_extent *extent = snapshot->extents;
	uint64_t bytes = 0;

	for_each_subgroup_here(job, subgroup) {
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++, extent++) {
			struct zero_place *place = &subgroup->places[plane];

			*extent = is_next ? place->next : *place_committed(place);
			bytes += extent->bytes;
			if (is_next)
				place->next = (struct tier_extent){ 0 };
			else if (extent->bytes)
				share_hold(&job->zero->shares, extent);
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
static void take(struct zero_snapshot *snapshot, struct zero_job *job, bool is_next)
{
	struct zi_text text = { "" };
	int r;

	zi_text_set(&text, "no memory for a snapshot of job '%s'", job->name);
	r = snapshot->is_hold ? 0 : name_fill(snapshot, job->committed_step, &text);
	if (!r)
		r = capture(snapshot, job, is_next);
	if (r) {
		snapshot_fail(snapshot, r, &text);
		return;
	}
	hold(snapshot, job, is_next);
	snapshot->job = NULL;
	/* What was written for it was paid for before. */
	r = is_next ? 0 : charge(snapshot, job, &text);
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
		if (job->units[i].is_written || job->units[i].is_copying)
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
		take(snapshot, job, true);
	extents_release_next(job); /* What the snapshot did not take, and where a write failed. */
	if (job->step.phase == ZERO_STEP_STEPPING) {
		pipeline_start(job, ZERO_PIPELINE_UPDATE);
		step_advance(job);
	} else {
		step_end(job, error, text);
	}
}

static bool is_ready(const struct zero_job *job)
{
	if (job_is_nvme(job))
		return job->step.phase != ZERO_STEP_COMMITTING && !job->is_materializing;
	if (job->is_materializing)
		return false;
	/* A rank may wait for the snapshot while others have begun the next step, which changes
	 * nothing until all have ended it: until then its pipeline has nothing in flight, as all is
	 * in memory. */
	if (job->step.phase == ZERO_STEP_STEPPING)
		return job->pipeline.kind == ZERO_PIPELINE_UPDATE && !job->step.is_early &&
		       !job->step.is_asked;
	return job->step.phase == ZERO_STEP_NONE && !job->busy_count;
}

/* Looked at whenever a step, or what was in flight, has ended. */
void snapshot_retry(struct zero_job *job)
{
	zi_list_for_each_safe(link, &job->zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (snapshot->job != job || snapshot->phase != ZERO_SNAPSHOT_WAITING)
			continue;
		if (!is_ready(job))
			return;
		if (job_is_nvme(job))
			take(snapshot, job, false);
		else if (write_start(snapshot, job))
			return; /* One at a time. */
	}
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

static int create_check(struct zero *zero, const struct zero_job *job, struct zero_snapshot_op *op)
{
	struct zi_text *text = &op->text;
	int r = change_check(zero, text);

	if (r)
		return err_trace(r);
	if (!job)
		return err_origin(zi_text_error(text, -ENOENT, "no job '%s'", op->job));
	r = snapshot_access(job->uid, op, text);
	if (r)
		return err_trace(r);
	if (job->refusal)
		return err_origin(zi_text_error(text, job->refusal, "%s", job->refusal_text.chars));
	if (job->is_deleting)
		return err_origin(
			zi_text_error(text, -EBUSY, "job '%s' is being deleted", op->job));
	if (job->committed_step < 0)
		return err_origin(zi_text_error(
			text, -ENODATA, "job '%s' has not committed anything yet", op->job));
	if (!job->nvme_tier)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"state of job '%s' is in memory alone and the daemon has no nvme tier to "
			"keep a snapshot on: configure one",
			op->job));
	if (op->name[0] && snapshot_find(zero, op->job, op->name))
		return err_origin(
			zi_text_error(text, -EEXIST, "snapshot '%s/%s' exists", op->job, op->name));
	return 0;
}

/**
 * zero_snapshot_create() - keep a job's committed step
 * @op: names, who asks, retention; completed with the name, the step and what it holds
 *
 * Context: shard thread.
 */
void zero_snapshot_create(struct zero *zero, struct zero_snapshot_op *op)
{
	struct zero_job *job = job_find(zero, op->job);
	struct zero_snapshot *snapshot;
	int r;

	zi_list_init(&op->link);
	r = create_check(zero, job, op);
	if (r) {
		snapshot_op_end(zero, op, r);
		zero_drain(zero);
		return;
	}
	snapshot = snapshot_new(zero, op->job, op->name, job->uid);
	if (!snapshot) {
		zi_text_set(&op->text, "no memory for a snapshot");
		snapshot_op_end(zero, op, err_origin(-ENOMEM));
		zero_drain(zero);
		return;
	}
	snapshot->op = op;
	snapshot->job = job;
	snapshot->is_automatic = op->is_automatic;
	snapshot->keep_count = op->keep_count;
	snapshot->is_hold = op->is_hold;
	snapshot_retry(job);
	zero_drain(zero);
}
