/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that are in force and not committed (commit_interval). Floor 5, shard thread.
 *
 *   committed ──step──▶ ahead ──step──▶ ahead ── … ──step that is due──▶ committed
 *                         │  no rank is left, the group broke, zero_commit(), the daemon stops
 *                         └──▶ what is in memory alone is written, and all of it committed
 *
 * While a job is ahead, its parameters (without a pool) and resident state are in memory alone, and
 * the rest is in extents that no commit names: `extent` of a place is the newest, `kept` the
 * committed one, which stays until the next commit. Blobs, the powers of beta and the loss scale go
 * the same way.
 * So a job that is ahead is updated in place by nobody before the step is certain; and when
 * something fails within such a step, it falls back to the committed one, as it does when the
 * daemon is killed.
 */
#include "daemon/zero/step/ahead.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/agree/commit.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/step.h"

/* Does this step end in a commit? State in memory alone is committed as a number, always. */
bool ahead_is_due(const struct zero_job *job, int64_t step)
{
	return !job_is_nvme(job) || step - job->committed_step >= (int64_t)job_interval(job);
}

/* The step is in force: its extents become the newest. */
void ahead_take(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[i];

		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			place_advance(job, &subgroup->places[plane], job->current_step);
		subgroup->is_reset = false;
		subgroup->is_param_next = false;
	}
	extents_release_abandoned(job);
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		job->units[i].is_written = false;
		job->units[i].is_param_next = false;
	}
}

/* See ahead.h. */
void ahead_set(struct zero_job *job, int64_t step, const struct zero_marks *marks)
{
	job->committed_step = step;
	job->current_step = step;
	job->committed = *marks;
	job->update_count = marks->update_count;
	job->beta1_power = marks->beta1_power;
	job->beta2_power = marks->beta2_power;
	job->blob_index = marks->blob_index;
	scale_resume(job);
}

/* What was just committed is what to fall back to. It has the name that the catalog was told: the
 * group may be another one since. */
void ahead_mark(struct zero_job *job)
{
	job->committed_step = job->current_step;
	job->committed = (struct zero_marks){
		.update_count = job->update_count,
		.beta1_power = job->beta1_power,
		.beta2_power = job->beta2_power,
		.scale = job->scale,
		.blob_index = job->blob_index,
		.world = job->world,
		.number = job->record.number,
		.line = job->record.line,
		.placement = job->record.placement,
	};
}

/* Back to the committed step: memory is read anew before it is used. Nothing may be in flight. */
void ahead_drop(struct zero_job *job)
{
	if (!job_is_ahead(job))
		return;
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			place_fall_back(job, &job->subgroups[i].places[plane]);
	job->current_step = job->committed_step;
	job->update_count = job->committed.update_count;
	job->beta1_power = job->committed.beta1_power;
	job->beta2_power = job->committed.beta2_power;
	job->blob_index = job->committed.blob_index;
	scale_resume(job);
}

/* A commit that nobody asked for has failed. */
void ahead_lost(struct zero_job *job, const struct zi_text *why)
{
	const struct zero_options *options = &job->zero->options;
	struct zi_text text;

	zi_text_set(
		&text,
		"job '%s' falls back from step %lld to %lld, which is committed: what was ahead "
		"could not be written (%s)",
		job->name, (long long)job->current_step, (long long)job->committed_step,
		why->chars);
	job_unload(job);
	if (options->fell_back)
		options->fell_back(options->fell_back_arg, &text);
}

/*
 * A job that is ahead and has no group that goes on: before anything else happens to it, it is
 * committed, with the blobs of its newest step. When that fails it falls back, which is told.
 * Return: true when the commit has begun; it ends in step_end().
 */
bool ahead_commit(struct zero_job *job)
{
	struct zi_text text = { "" };

	if (!job_is_ahead(job) || job->group.phase == ZERO_GROUP_LIVE)
		return false;
	assert(job->step.phase == ZERO_STEP_NONE);
	if (job->votes == &commit_votes && !across_talks(job)) {
		zi_text_set(&text, "its nodes commit together, and their group broke");
		ahead_lost(job, &text);
		return false;
	}
	if (!frozen_check(job->zero, &text) && !commit_start(job, true, &text))
		return true;
	ahead_lost(job, &text);
	return false;
}

/* Documented in the header. */
int ahead_check_none(const struct zero_job *job, struct zi_text *text)
{
	if (!job_is_ahead(job))
		return 0;
	return zi_text_error(text, -EBUSY,
	                     "steps %lld to %lld are not committed (commit_interval %u): "
	                     "call zinf_commit() first",
	                     (long long)job->committed_step + 1, (long long)job->current_step,
	                     job_interval(job));
}
