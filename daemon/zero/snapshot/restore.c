/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that nobody uses is put back to one of its snapshots: one transaction names the snapshot's
 * extents, step and blobs as the job's, and what was committed before is let go. Nothing is copied.
 * Floor 5, shard thread.
 */
#include "daemon/zero/zero.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/forward.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/owner.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/place/recover_take.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/import_write.h"
#include "daemon/zero/snapshot/load.h"
#include "daemon/zero/snapshot/part.h"
#include "daemon/zero/snapshot/restore_as.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/flush.h"
#include "daemon/zero/step/step.h"

struct restore {
	struct zero_job *job;           /* busy meanwhile */
	struct zero_snapshot *snapshot; /* in use meanwhile */
	struct zero_snapshot_op *op;
	struct catalog_job record; /* the snapshot's, under the job's name; its arrays stay there */
	struct catalog_request request;
	struct zero_flush flush;
};

static int job_check(const struct zero_job *job, struct zi_text *text)
{
	const struct zero_rank *rank = NULL;

	if (job->refusal)
		return err_origin(zi_text_error(text, job->refusal, "%s", job->refusal_text.chars));
	for (uint32_t i = 0; i < ZI_WORLD_MAX && !rank; i++)
		rank = job->group.ranks[i];
	if (rank)
		return err_origin(
			zi_text_error(text, -EBUSY,
		                      "job '%s' is in use by %u processes, such as rank %u, "
		                      "pid %d: end them first",
		                      job->name, job->group.rank_count, rank->number, rank->pid));
	if (job->attached_count || job->busy_count || job->is_deleting || !job->is_stored ||
	    job->step.phase != ZERO_STEP_NONE)
		return err_origin(zi_text_error(text, -EBUSY,
		                                "job '%s' is still working: try again", job->name));
	if (!job_is_nvme(job))
		return err_origin(
			zi_text_error(text, -EOPNOTSUPP,
		                      "state of job '%s' is only in memory: delete the job "
		                      "(zctl delete), and start it with the snapshot "
		                      "(zinf_load)",
		                      job->name));
	return 0;
}

/* What the job is must be what the snapshot is of: a job may have been made anew since. */
static int match_check(const struct zero_job *job, const struct zero_snapshot *snapshot,
                       struct zi_text *text)
{
	const struct catalog_job *record = snapshot->record;
	int r = load_config_check(&job->config, job->is_stateless, snapshot, text);

	if (!r && job->is_stateless && !forward_is_stateless(record))
		r = zi_text_error(text, err_origin(-EINVAL),
		                  "job '%s' is forward only and has no optimizer state, but "
		                  "snapshot '%s/%s' has: make a new job of it (--as)",
		                  job->name, snapshot->job_name, snapshot->name);
	if (!r)
		r = load_model_check(&job->layout, "the job", snapshot, text);
	for (uint32_t i = 0; i < record->extent_count && !r; i++)
		if (snapshot->extents[i].bytes &&
		    snapshot->extents[i].member->tier != job->nvme_tier)
			r = zi_text_error(text, err_origin(-EXDEV),
			                  "snapshot '%s/%s' lies on %s, the job on %s", job->name,
			                  snapshot->name, snapshot->extents[i].member->tier->name,
			                  job->nvme_tier->name);
	return err_trace(r);
}

static int restore_check(struct zero *zero, const struct zero_job *job,
                         const struct zero_snapshot *snapshot, struct zero_snapshot_op *op)
{
	struct zi_text *text = &op->text;
	int r = change_check(zero, text);

	if (r)
		return err_trace(r);
	if (!snapshot || !snapshot_may_use(snapshot->uid, op) ||
	    snapshot->phase != ZERO_SNAPSHOT_KEPT)
		return err_origin(
			zi_text_error(text, -ENOENT, "no snapshot '%s/%s'", op->job, op->name));
	if (!job || !snapshot_may_use(job->uid, op))
		return err_origin(zi_text_error(text, -ENOENT,
		                                "there is no job '%s': make it of its "
		                                "snapshot, under this name or another (--as)",
		                                op->job));
	if (snapshot->moving)
		r = zi_text_error(text, err_origin(-EBUSY),
		                  "snapshot '%s/%s' is being moved off a path: try again", op->job,
		                  op->name);
	if (!r && snapshot->refusal)
		r = zi_text_error(text, err_origin(snapshot->refusal),
		                  "snapshot '%s/%s' cannot be read: %s", op->job, op->name,
		                  snapshot->refusal_text.chars);
	if (!r)
		r = job_check(job, text);
	if (!r)
		r = part_check_restore(job, snapshot->record, text);
	return r ? err_trace(r) : err_trace(match_check(job, snapshot, text));
}

/* The catalog says so: memory follows. */
static int adopt(struct zero_job *job, const struct catalog_job *record)
{
	struct zero_scale scale = { 0 };
	struct zero_marks marks;
	int r;

	(void)scale_get(record, &scale); /* It was looked at when the snapshot was found. */
	job_drop_memory(job);
	extents_release_all(job);
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			job->subgroups[i].places[plane] = (struct zero_place){ 0 };
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		job->blobs[job->blob_index][i].byte_count = 0;
	record_take_placement(job, record);
	r = sets_build(job);
	if (r) {
		job->refusal = r;
		zi_text_set(&job->refusal_text,
		            "job '%s' was restored, but there is no memory for its data-parallel "
		            "groups: "
		            "restart zinfd",
		            job->name);
		return err_trace(r);
	}
	owners_build(job);
	marks = record_marks(record, &scale, job->blob_index);
	ahead_set(job, record->step, &marks);
	r = recover_state(job, record, true);
	if (r && !job->refusal) {
		job->refusal = r;
		zi_text_set(&job->refusal_text,
		            "job '%s' was restored, but not taken in (%s): restart zinfd",
		            job->name, zi_err_name(r));
	}
	return err_trace(r);
}

static void restored(struct catalog_request *request)
{
	struct restore *restore = container_of(request, struct restore, request);
	struct zero_snapshot_op *op = restore->op;
	struct zero_job *job = restore->job;
	struct zero *zero = job->zero;
	int r = request->result;

	request_look(zero, request);
	restore->snapshot->use_count--;
	evacuate_kick(zero);
	job_unbusy(job);
	op->text = request->text;
	if (!r) {
		r = adopt(job, &restore->record);
		op->text = job->refusal_text;
		op->step = restore->record.step;
		op->held_bytes = restore->snapshot->held_bytes;
	}
	free(restore);
	snapshot_op_end(zero, op, r);
	job_settle(job);
	zero_drain(zero);
}

/**
 * zero_snapshot_restore() - a job at rest stands at its snapshot again
 * @op: names and who asks; completed when the catalog says so
 *
 * Context: shard thread.
 */
void zero_snapshot_restore(struct zero *zero, struct zero_snapshot_op *op)
{
	struct zero_snapshot *snapshot = snapshot_find(zero, op->job, op->name);
	struct zero_job *job = job_find(zero, op->job);
	struct restore *restore = NULL;
	struct tier *tier = NULL;
	uint32_t members = 0;
	int r;

	if (op->as[0]) {
		snapshot_restore_as(zero, op);
		return;
	}
	zi_list_init(&op->link);
	r = restore_check(zero, job, snapshot, op);
	if (!r) {
		restore = calloc(1, sizeof(*restore));
		if (!restore || share_reserve(&zero->shares, snapshot->record->extent_count))
			r = zi_text_error(&op->text, err_origin(-ENOMEM), "no memory to restore");
	}
	if (r) {
		free(restore);
		snapshot_op_end(zero, op, r);
		zero_drain(zero);
		return;
	}
	*restore = (struct restore){ .job = job, .snapshot = snapshot, .op = op };
	restore->record = *snapshot->record;
	restore->record.snapshot[0] = '\0';
	restore->record.number = job->committed.number + 1; /* A commit like any other. */
	restore->request = (struct catalog_request){
		.kind = CATALOG_COMMIT,
		.job = &restore->record,
		.is_durable = job->config.durability == ZI_DURABILITY_POWER,
		.done = restored,
		.loop = zero->options.loop,
	};
	snapshot->use_count++;
	job_busy(job);
	/* What the job is about to rely on may never have been flushed. */
	if (restore->request.is_durable)
		members = snapshot_members(snapshot, &tier);
	flush_then_submit(zero, &restore->flush, tier, members, &restore->request);
	zero_drain(zero);
}
