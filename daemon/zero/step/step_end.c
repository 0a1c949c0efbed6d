/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a step, or a commit, ends: skipped, aborted with its group, taken as committed (or as ahead
 * of its commit), or undone after an error; and what its ranks hear. Floor 5, shard thread.
 */
#include "daemon/zero/step/step_end.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/across/agree/agree.h"
#include "daemon/zero/across/bytes/lent.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/grad/spill_space.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/snapshot/snapshot_make.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/discard.h"
#include "daemon/zero/step/doubt.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/scale.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/votes.h"

/* ---- non-finite gradients ---- */

/* Nothing changes but the step's number: what was read ahead has been dropped. */
static void skip_end(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r = 0;

	if (!job->step.is_due) {
		step_end(job, 0, NULL);
		return;
	}
	if (!job_is_ahead(job)) {
		commit_submit(job);
		return;
	}
	/* The steps before this one. */
	r = extents_reserve(job, EXTENTS_COMMIT, &text);
	if (r)
		step_end(job, r, &text);
	else
		pipeline_start(job, ZERO_PIPELINE_WRITE);
}

/* Its gradients are not finite. */
void step_skip(struct zero_job *job)
{
	job->step.is_skipped = true;
	job->step.stats.is_skipped = 1;
	extents_release_next(job);
	job_step_set(job, ZERO_STEP_COMMITTING);
	if (pipeline_abort(job))
		skip_end(job);
}

/* ---- nothing of it remains ---- */

/* See step_end.h. */
void step_undone(struct zero_job *job)
{
	bool is_unload = job->is_unload_due;

	job->is_undo_due = false;
	job->is_unload_due = false;
	extents_release_next(job);
	spill_release(job);
	if (is_unload)
		job_unload(job);
}

/* Nothing of the step will be: what it wrote is given back, and with @is_unload what the job was
 * ahead. Parameters may be on their way from there into a pool that ranks see: they come first. */
static void step_undo(struct zero_job *job, bool is_unload)
{
	job->is_undo_due = true;
	job->is_unload_due |= is_unload;
	if (residency_stop(job) && spill_is_idle(job) && lent_is_idle(job))
		step_undone(job); /* Else in job_settle(). */
}

/* The group broke before every rank called step(): nothing of the step remains. What was updated
 * early is in memory alone, and read anew from the committed extents before it is used. */
void step_abort(struct zero_job *job)
{
	assert(job->step.phase == ZERO_STEP_STEPPING);
	if (job->step.is_asked)
		doubt_keep(job);
	spill_lose(job);
	step_units_reset(job);
	job->step.is_discarding = false;
	job_step_set(job, ZERO_STEP_NONE);
	if (job->pipeline.kind == ZERO_PIPELINE_KEEP) {
		snapshot_outlives_step(job);
		return;
	}
	if (job->step.is_early)
		job_unload(job);
	/* What is still in flight, writes to new extents too, ends in step_drained(). */
	if (pipeline_abort(job))
		step_undo(job, false);
}

/* The aborted pipeline of a step has drained. */
void step_drained(struct zero_job *job)
{
	if (job->step.phase == ZERO_STEP_COMMITTING) {
		skip_end(job);
		return;
	}
	if (job->step.is_discarding) {
		discard_advance(job);
		return;
	}
	step_undo(job, false);
	job_settle(job);
}

/* ---- it is in force ---- */

static void step_take(struct zero_job *job)
{
	struct zero_step *step = &job->step;

	bool is_whole = !step->is_skipped || job_is_ahead(job);

	job->current_step = (int64_t)step->stats.step;
	job->blob_index = step->blob_index;
	if (!step->is_commit && !step->is_skipped) {
		job->update_count++;
		job->beta1_power = step->next_beta1_power;
		job->beta2_power = step->next_beta2_power;
	}
	if (!step->is_commit)
		job->scale = step->next_scale;
	if (step->is_due) {
		former_keep(job);
		ahead_mark(job);
		if (is_whole)
			extents_commit(job);
	} else if (!step->is_skipped) {
		ahead_take(job);
	}
	step->stats.committed_step = job->committed_step;
	step->stats.update_count = job->update_count;
	step->stats.loss_scale = scale_of(job);
	if (!step->is_commit)
		job->last_stats = step->stats;
}

static void stats_give(struct zero_job *job, enum zero_gather gather)
{
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *rank = job->group.ranks[i];

		if (!rank || !rank->gathered[gather])
			continue;
		rank->gathered[gather]->stats = job->step.stats;
		rank->gathered[gather]->culprit_unit = job->step.culprit_unit;
		rank->gathered[gather]->unused_count = job->step.unused_count;
	}
}

/* The group that made the step; another one has no part in it. */
static bool step_is_theirs(const struct zero_job *job)
{
	return job->group.generation == job->step.generation && job->group.phase == ZERO_GROUP_LIVE;
}

/* The step is in force, skipped, and the run can only go on in the same way. */
static void step_exhausted(struct zero_job *job)
{
	const struct zero_step *step = &job->step;
	const char *unit =
		step->culprit_unit == UINT32_MAX ? "?" : job->layout.units[step->culprit_unit].name;
	/* Others end where the scale's inverse is no f32 any more. */
	const char *bound =
		job->training.scaler_kind == ZI_SCALER_DEEPSPEED ? "scale_min" : "1 / scale in f32";
	struct zi_text text;

	if (step->stats.culprit == UINT32_MAX)
		zi_text_set(&text,
		            "loss scale %g is the least one (%s), and in step %llu the sum of "
		            "gradients of unit '%.96s' is not finite: the model diverges, or wants "
		            "bf16",
		            scale_of(job), bound, (unsigned long long)step->stats.step, unit);
	else
		zi_text_set(&text,
		            "loss scale %g is the least one (%s), and in step %llu rank %u's "
		            "gradient of unit '%.96s' is not finite: the model diverges, or wants "
		            "bf16",
		            scale_of(job), bound, (unsigned long long)step->stats.step,
		            step->stats.culprit, unit);
	group_break(job, step->scale_error, step->stats.culprit, &text);
}

/* What it hears of the step. */
static void step_tell(struct zero_job *job, int error, const struct zi_text *text)
{
	enum zero_gather gather = job->step.is_commit ? ZERO_GATHER_COMMIT : ZERO_GATHER_STEP;

	if (!error && !job->step.is_commit && job->step.scale_error) {
		step_exhausted(job);
		return;
	}
	if (!error)
		stats_give(job, gather);
	if (!error || (job->step.is_commit && !job->across))
		gather_complete(job, gather, error, text);
	else
		group_break(job, error, UINT32_MAX, text);
}

/* See step_end.h. */
void step_go_on(struct zero_job *job)
{
	bool is_theirs = step_is_theirs(job);

	snapshot_retry(job);
	if (is_theirs && job->group.error && !job->group.is_left)
		(void)group_needs_all(job);
	if (is_theirs && job->group.phase == ZERO_GROUP_LIVE)
		agree_held(job);
	if (is_theirs && job->group.phase == ZERO_GROUP_LIVE)
		ops_retry(job);
	job_settle(job);
}

/* What was taken, or undone, is told; and whoever waited for its end goes on. */
static void step_over(struct zero_job *job, int error, const struct zi_text *text)
{
	if (!job->step.is_commit)
		step_units_reset(job);
	job_step_set(job, ZERO_STEP_NONE);
	if (job->step.is_settling) {
		doubt_over(job);
		return;
	}
	if (step_is_theirs(job))
		step_tell(job, error, text);
	if (job->residency)
		residency_pump(job);
	if (!error || !job->step.votes) /* Else it may yet be gone back from. */
		snapshot_keep_due(job, job->step.former_step);
	step_go_on(job);
}

/* All nodes have it, or that is not known, or the former one could not be let go. */
static void commit_over(struct zero_job *job, int error, const struct zi_text *text)
{
	if (!error)
		former_release(job);
	else if (step_is_theirs(job))
		group_break(job, error, UINT32_MAX, text);
	step_over(job, error, text);
}

static void former_dropped(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;
	struct zi_text text = request->text;

	request_end(job);
	if (!request->result)
		job->former.is_stored = false;
	commit_over(job, request->result, &text);
	zero_drain(zero);
}

/* See votes.h. In force here it is in any case: a group that does not know whether it is elsewhere
 * as well trains no further. */
void step_committed(struct zero_job *job, int error, const struct zi_text *text)
{
	struct zero *zero = job->zero;

	assert(job->step.phase == ZERO_STEP_COMMITTING);
	job_unbusy(job);
	if (!error && former_is_elsewhere(job))
		step_back_submit(job, &job->committed, former_dropped);
	else
		commit_over(job, error, text);
	zero_drain(zero);
}

/*
 * The catalog answered, or it never came to that; or state was written for a snapshot, which
 * changes nothing. A step in memory alone that the catalog did not
 * take is in force all the same: there is no other copy. Its ranks hear the error.
 */
void step_end(struct zero_job *job, int error, const struct zi_text *text)
{
	struct zero_step *step = &job->step;

	assert(job->pipeline.kind == ZERO_PIPELINE_NONE);
	step->former_step = job->committed_step;
	spill_release(job);
	if (step->is_keep) {
		job_step_set(job, ZERO_STEP_NONE);
		step_go_on(job);
		return;
	}
	if (!step->is_commit && !error)
		step->stats.step_ns = zi_clock_now_ns() - step->last_step_ns;
	if (!error || (!job_is_nvme(job) && !step->is_commit)) {
		step_take(job);
		if (!error && step->is_due && step->votes) {
			job_busy(job);
			step->votes->committed(job);
			return;
		}
	} else if (!step->is_commit) {
		step_undo(job, true);
	} else {
		extents_release_next(job);
		if (step->is_unasked)
			ahead_lost(job, text);
	}
	step_over(job, error, text);
}
