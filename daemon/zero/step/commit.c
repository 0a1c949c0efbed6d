/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the catalog, and zero_commit(). Floor 5, shard thread. */
#include "daemon/zero/step/commit.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/agree/agree.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/lost.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/write.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/step/budget.h"
#include "daemon/zero/step/flush.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/step_end.h"
#include "daemon/zero/step/votes.h"

/* What every request may name; a commit adds the rest. */
static void record_fill(struct zero_job *job)
{
	record_describe(job, &job->record);
	job->record.extents = job->record_extents;
	job->record.blobs = job->record_blobs;
}

/* A path that the request relies on. */
static void record_member(struct zero_job *job, const struct tier_extent *extent)
{
	if (extent->bytes)
		job->record_members |= tier_member_bit(extent->member);
}

/* What the commit names is down. */
static void ask_prepared(struct zero_flush *flush)
{
	struct zero_job *job = container_of(flush, struct zero_job, record_flush);

	job->step.votes->prepared(job);
}

/* See votes.h. */
void commit_prepared(struct zero_job *job, int error, const struct zi_text *text)
{
	struct catalog_request *request = &job->request;

	assert(job->step.phase == ZERO_STEP_COMMITTING);
	assert(request->kind == CATALOG_COMMIT);
	if (!error) {
		catalog_submit(job->zero->options.catalog, request);
		return;
	}
	request->result = error;
	request->is_uncertain = false;
	request->text = *text;
	request->done(request);
}

static void submit(struct zero_job *job, enum catalog_request_kind kind, bool is_whole,
                   catalog_request_fn done)
{
	bool is_voted = kind == CATALOG_COMMIT && !is_whole && job->step.votes;
	bool is_durable = job->config.durability == ZI_DURABILITY_POWER;
	bool is_flushed = is_durable && job_is_nvme(job) &&
	                  (kind == CATALOG_COMMIT || job->record.extent_count);

	job->request = (struct catalog_request){
		.kind = kind,
		.job = &job->record,
		.is_durable = is_durable,
		.done = done,
		.loop = job->zero->options.loop,
	};
	if (kind == CATALOG_COMMIT) {
		job->request.traffic = job->record_traffic;
		job->request.traffic_count = budget_record(job);
		job->request.keeps_former = is_whole || job_keeps_former(job);
		job->request.is_whole = is_whole;
	}
	job->record_flush.ready = is_voted ? ask_prepared : NULL;
	job_busy(job);
	flush_then_submit(job->zero, &job->record_flush, job->nvme_tier,
	                  is_flushed ? job->record_members : 0, &job->request);
}

/* Return: 0; the catalog's error, with what to do, once nothing can be committed any more. */
int frozen_check(const struct zero *zero, struct zi_text *text)
{
	if (!zero->frozen)
		return 0;
	if (text)
		*text = zero->frozen_text;
	return err_origin(zero->frozen);
}

/* See commit.h. */
int change_check(const struct zero *zero, struct zi_text *text)
{
	if (zero->is_stopping)
		return err_origin(zi_text_error(text, -ESHUTDOWN, "the daemon is stopping"));
	return err_trace(frozen_check(zero, text));
}

/* See commit.h. */
void request_end(struct zero_job *job)
{
	job_unbusy(job);
	request_look(job->zero, &job->request);
}

/* See commit.h. */
void request_look(struct zero *zero, const struct catalog_request *request)
{
	if (!request->is_uncertain || zero->frozen)
		return;
	assert(request->result);
	zero->frozen = request->result;
	zi_text_set(&zero->frozen_text,
	            "nothing is committed until zinfd is restarted, on a sound disk: its catalog "
	            "failed and could not be mended (%.120s); every job is at a committed "
	            "step then",
	            request->text.chars);
	if (zero->options.frozen)
		zero->options.frozen(zero->options.frozen_arg, &zero->frozen_text);
}

/* One request of a job at a time. @done calls request_end() first. A job that is made with a step
 * (load.c) is told of with all that belongs to it. */
void request_submit(struct zero_job *job, enum catalog_request_kind kind, catalog_request_fn done)
{
	assert(kind != CATALOG_COMMIT);
	if (kind == CATALOG_JOB_CREATE)
		lost_end(job->zero, job->name, job->uid);
	record_fill(job);
	if (kind == CATALOG_JOB_CREATE && job->committed_step >= 0 && job_is_nvme(job)) {
		record_committed(job, RECORD_PRESENT, &job->record, job->record_extents,
		                 job->record_blobs);
		/* Whoever wrote it may have had no need to flush it. */
		job->record_members = 0;
		for (uint32_t i = 0; i < job->subgroup_count * _ZERO_PLANE_COUNT; i++)
			record_member(job, place_committed(&job->subgroups[i / 2].places[i % 2]));
	}
	submit(job, kind, false, done);
}

/* See commit.h. */
void step_back_submit(struct zero_job *job, const struct zero_marks *stays, catalog_request_fn done)
{
	record_fill(job);
	job->record.number = stays->number;
	job->record.line = stays->line;
	submit(job, CATALOG_STEP_BACK, false, done);
}

/* See commit.h. */
void whole_submit(struct zero_job *job, uint32_t members, catalog_request_fn done)
{
	job->record_members = members;
	submit(job, CATALOG_COMMIT, true, done);
}

/* Neither those in force nor the committed ones. */
uint32_t blob_next(const struct zero_job *job)
{
	for (uint32_t i = 0;; i++)
		if (i != job->blob_index && i != job->committed.blob_index)
			return i;
}

/* The blob of the commit to come; the committed one stays beside it. */
void blob_keep(struct zero_job *job, uint32_t rank, const void *bytes, uint64_t byte_count)
{
	struct zero_blob *blob = &job->blobs[blob_next(job)][rank];

	assert(blob->bytes);
	assert(byte_count <= ZI_BLOB_BYTES);
	if (byte_count)
		memcpy(blob->bytes, bytes, byte_count);
	blob->byte_count = byte_count;
}

static void record_place(struct zero_job *job, const struct zero_subgroup *subgroup, uint32_t plane)
{
	const struct zero_place *place = &subgroup->places[plane];
	/* Also what was never written has a row: a row that is lost cannot pass for "all zero". */
	bool is_cleared = plane == ZERO_PLANE_STATE && (subgroup->is_reset || !place->extent.bytes);

	/* What lies in an extent of an earlier step that was not committed is committed now. */
	bool is_older = !place->next.bytes && !is_cleared && place->kept_is == ZERO_KEPT_AHEAD;
	const struct tier_extent *extent = is_older ? &place->extent : &place->next;
	uint32_t index = is_older ? place->hash_index : place_next_index(place);

	if (!place->next.bytes && !is_cleared && !is_older)
		return;
	job->record_extents[job->record.extent_count++] = record_extent(
		subgroup, plane, extent, &job->hashes[plane][index][subgroup->tile_first],
		is_older ? place->step : (uint64_t)job->record.step);
	record_member(job, extent);
}

static void record_blobs(struct zero_job *job)
{
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++) {
		struct zero_blob *blob = &job->blobs[job->step.blob_index][i];

		/* Ranks of a larger world that was, or that are elsewhere now: theirs are of a
		 * former commit. */
		if (!(job->here_mask >> i & 1))
			blob->byte_count = 0;
	}
	record_put_blobs(job, job->step.blob_index, ZI_WORLD_MAX, &job->record, job->record_blobs);
}

static void committed(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;
	struct zi_text text = request->text;

	request_end(job);
	job->step.stats.commit_ns = zi_clock_now_ns() - job->step.commit_ns;
	step_end(job, request->result, &text);
	zero_drain(zero);
}

/* Step, powers, blobs, and the extents that are replaced. Ends in step_end(). */
void commit_submit(struct zero_job *job)
{
	struct zero_step *step = &job->step;

	bool is_whole = job_is_nvme(job) && (!step->is_skipped || job_is_ahead(job));

	assert(step->phase == ZERO_STEP_COMMITTING);
	assert(step->is_due);
	assert(job->pipeline.kind == ZERO_PIPELINE_NONE);

	step->votes = step->is_settling ? NULL : job->votes; /* The others have it. */
	step->commit_ns = zi_clock_now_ns();
	record_fill(job);
	job->record.world_size = job->world;
	job->record.step = (int64_t)step->stats.step;
	job->record.number = step->is_settling ? job->doubt.number : job->committed.number + 1;
	job->record.line = step->line;
	job->record.placement = step->is_settling ? job->doubt.placement : record_placement(job);
	job->record.update_count = job->update_count;
	job->record.beta1_power = job->beta1_power;
	job->record.beta2_power = job->beta2_power;
	scale_put(step->is_commit ? &job->scale : &step->next_scale, &job->record);
	if (!step->is_commit && !step->is_skipped) {
		job->record.update_count++;
		job->record.beta1_power = step->next_beta1_power;
		job->record.beta2_power = step->next_beta2_power;
	}
	job->record_members = 0;
	for (uint32_t i = 0; i < job->subgroup_count && is_whole; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			if (job_keeps(&job->subgroups[i], plane))
				record_place(job, &job->subgroups[i], plane);
	record_blobs(job);
	submit(job, CATALOG_COMMIT, false, committed);
}

/* ---- zero_commit() ---- */

/* The WRITE pipeline has ended. */
void commit_written(struct zero_job *job, int error, const struct zi_text *text)
{
	job->step.stats.write_bytes = job->pipeline.write_bytes;
	if (error)
		step_end(job, error, text);
	else
		commit_submit(job);
}

/* See commit.h. */
int commit_start(struct zero_job *job, bool is_unasked, struct zi_text *text)
{
	int r;

	assert(!job->former.is_kept);
	r = extents_reserve(job, EXTENTS_COMMIT, text);
	if (r)
		return err_trace(r);
	job->step.is_commit = true;
	job->step.is_due = true;
	job->step.is_unasked = is_unasked;
	job->step.blob_index = is_unasked ? job->blob_index : blob_next(job);
	job->step.is_keep = false;
	job->step.is_skipped = false;
	job->step.generation = job->group.generation;
	/* Its group may be over, and another one there. */
	job->step.line = job->across ? across_line(job) : job->group.line;
	job->step.culprit_unit = UINT32_MAX;
	job->step.stats = (struct zi_step_stats){
		.step = (uint64_t)ZI_MAX(job->current_step, (int64_t)0),
		.norm = __builtin_nan(""),
		.clip = 1.0,
		.culprit = UINT32_MAX,
	};
	job_step_set(job, ZERO_STEP_COMMITTING);
	pipeline_start(job, ZERO_PIPELINE_WRITE);
	return 0;
}

/* Every rank has come. */
static void commit_asked(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r = commit_start(job, false, &text);

	if (!r)
		return;
	if (job->across) {
		group_break(job, r, UINT32_MAX, &text); /* Other nodes have begun. */
		return;
	}
	gather_complete(job, ZERO_GATHER_COMMIT, r, &text);
	ops_retry(job); /* Steps wait for its end. */
}

/**
 * zero_commit() - commit what param_write_end() stored, and steps that are not committed yet
 * @op: blob; collective; completes at the commit, with the step in its statistics
 *
 * -EBUSY a step is under way, or a unit is open for writing. Context: shard thread.
 */
void zero_commit(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	const struct zero_rank *writer;
	int r;

	if (!op_begin(rank, op, ZI_OP_COMMIT)) {
		zero_drain(zero);
		return;
	}
	writer = write_pending(job);
	r = frozen_check(zero, &op->text);
	if (!r)
		r = state_check_idle(rank, &op->text);
	if (r) {
		op_complete(op, r);
	} else if (job->write_source) {
		op_fail(op, -EBUSY, "unit '%s' is being written",
		        job->layout.units[job->write_unit].name);
	} else if (gather_is_full(job, ZERO_GATHER_WRITE_END)) {
		op_fail(op, -EBUSY, "all ranks have called param_write_end: it ends first");
	} else if (writer) {
		op_fail(op, -EBUSY, "rank %u has unit '%s' open for writing", writer->number,
		        job->layout.units[writer->write->unit].name);
	} else if (op->blob_bytes > ZI_BLOB_BYTES) {
		op_fail(op, -EINVAL, "a blob of %llu bytes, at most %u are kept",
		        (unsigned long long)op->blob_bytes, ZI_BLOB_BYTES);
	} else {
		bool is_full;

		blob_keep(job, rank->number, op->blob, op->blob_bytes);
		is_full = gather_join(op, ZERO_GATHER_COMMIT);
		if (!group_needs_all(job) && is_full)
			agree_all(job, ZERO_GATHER_COMMIT, NULL, commit_asked);
	}
	zero_drain(zero);
}
