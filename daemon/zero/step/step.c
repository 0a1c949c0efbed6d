/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step: begun by every rank (begin.c), fed with gradients (reduce.c), ended by every rank; then
 * the update (pipeline.c), the commit (commit.c), and what remains of it (step_end.c). Floor 5,
 * shard thread.
 */
#include "daemon/zero/step/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/across/agree/summed.h"
#include "daemon/zero/across/agree/used.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/across/sums/grads.h"
#include "daemon/zero/across/sums/norm.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/param/quiet.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/discard.h"
#include "daemon/zero/step/grad_norm.h"
#include "daemon/zero/step/join.h"
#include "daemon/zero/step/options.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/reduce.h"
#include "daemon/zero/step/scale.h"
#include "daemon/zero/step/step_end.h"
#include "daemon/zero/step/unused.h"

/* Gradients of the step that is over are void. */
void step_units_reset(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		job->units[i].handed_mask = 0;
		job->units[i].held_mask = 0;
		job->units[i].micro_done = 0;
		job->units[i].is_ready = false;
		job->units[i].update_count = 0;
		job->units[i].write_count = 0;
	}
}

/* ---- end of the ranks' part ---- */

/* Names the units for which @is_wrong holds, the first ones. */
static int units_refuse(const struct zero_rank *rank, struct zero_op *op, int error,
                        const char *what,
                        bool (*is_wrong)(const struct zero_rank *rank, uint32_t unit))
{
	const struct zero_job *job = rank->job;
	uint32_t count = 0;
	size_t used = 0;

	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		size_t left = sizeof(op->text.chars) - used;

		if (!is_wrong(rank, i))
			continue;
		if (!count++)
			used = (size_t)snprintf(op->text.chars, left, "%s '%.60s'", what,
			                        job->layout.units[i].name);
		else if (count <= 4 && left > 70)
			used += (size_t)snprintf(op->text.chars + used, left, ", '%.60s'",
			                         job->layout.units[i].name);
	}
	if (count > 4 && sizeof(op->text.chars) - used > 24)
		(void)snprintf(op->text.chars + used, sizeof(op->text.chars) - used, " … %u in all",
		               count);
	return count ? error : 0;
}

static bool is_pinned(const struct zero_rank *rank, uint32_t unit)
{
	return rank->pin_counts[unit] > 0;
}

/* Return: @rank has handed over the last gradient of the unit in this step; or has none of it, as
 * it does not train it. */
bool step_unit_is_handed(const struct zero_rank *rank, uint32_t index)
{
	const struct zero_job *job = rank->job;
	const struct zero_unit *unit = &job->units[index];
	uint32_t wanted = job->step.options.micro_batches;

	if (unit->micro_done == wanted || !set_trains(job, index, rank->number))
		return true;
	return unit->micro_done + 1 == wanted && unit->handed_mask >> rank->number & 1;
}

static bool is_missing(const struct zero_rank *rank, uint32_t index)
{
	return !step_unit_is_handed(rank, index);
}

/* See step.h. */
int step_check_handed(const struct zero_rank *rank, struct zero_op *op)
{
	return units_refuse(rank, op, -ENODATA, "no gradient for units", is_missing);
}

static int step_check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	int r;

	if (job->step.phase != ZERO_STEP_STEPPING || !(job->step.begun_mask >> rank->number & 1))
		return zi_text_error(&op->text, -EINVAL, "step before step_begin");
	r = state_check_rank(rank, &op->text);
	if (r)
		return err_trace(r);
	if (op->blob_bytes > ZI_BLOB_BYTES)
		return zi_text_error(&op->text, -EINVAL,
		                     "a blob of %llu bytes, at most %u are kept",
		                     (unsigned long long)op->blob_bytes, ZI_BLOB_BYTES);
	if (discard_is_wanted(job))
		return discard_refuse(op);
	if (options_are_deferred(job) && !join_has(job, rank->number) &&
	    !(job->step.with_mask >> rank->number & 1))
		return zi_text_error(&op->text, -EINVAL,
		                     "the step was begun with is_deferred: zinf_step_with() ends "
		                     "it, with its hyperparameters");
	r = step_check_handed(rank, op);
	if (!r)
		r = units_refuse(rank, op, -EBUSY, "units still unsharded:", is_pinned);
	return r;
}

/* A rank that has joined says nothing new: what it gave last goes on with the job. */
static void keep_blob(const struct zero_rank *rank, const struct zero_op *op)
{
	struct zero_job *job = rank->job;
	const struct zero_blob *former = &job->blobs[job->blob_index][rank->number];

	if (join_has(job, rank->number))
		blob_keep(job, rank->number, former->bytes, former->byte_count);
	else
		blob_keep(job, rank->number, op->blob, op->blob_bytes);
}

/**
 * zero_step() - a rank's part of the step is over
 * @op: blob, copied; completes at the commit, with statistics
 *
 * -ENODATA, -EBUSY name units; the call may be made again. Context: shard thread.
 */
void zero_step(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	bool is_first;
	int r;

	if (!op_begin(rank, op, ZI_OP_STEP)) {
		zero_drain(zero);
		return;
	}
	is_first = job->group.gather_masks[ZERO_GATHER_STEP] == 0;
	r = step_check(rank, op);
	if (r) {
		op_complete(op, r);
	} else {
		keep_blob(rank, op);
		if (is_first)
			job->step.first_step_ns = op->queued_ns;
		if (job->residency)
			residency_step(rank);
		job->step.failed_mask &= ~(1ull << rank->number);
		if (gather_join(op, ZERO_GATHER_STEP)) {
			job->step.last_step_ns = op->queued_ns;
			quiet_agree(job, ZERO_GATHER_STEP, NULL, step_advance);
		}
	}
	zero_drain(zero);
}

/* See step.h. */
void step_fail(struct zero_job *job, uint64_t mask, int error, const struct zi_text *text)
{
	assert(error < 0);
	job->step.failed_mask |= mask;
	job->step.failed_error = error;
	job->step.failed_text = text ? *text : (struct zi_text){ "" };
}

/* ---- the update ---- */

/* Return: the sum of squares is finite. */
static bool take_norm(struct zero_step *step, double sum)
{
	float clip;

	step->norm = sqrt(sum);
	step->stats.norm = step->norm;
	if (step->options.max_norm > 0) {
		clip = (float)(step->options.max_norm / (step->norm + 1e-6));
		step->hyper.clip = clip < 1.0f ? clip : 1.0f;
	}
	step->stats.clip = (double)step->hyper.clip;
	return isfinite(sum);
}

static void take_betas(struct zero_job *job, uint32_t group, struct kern_hyper *hyper)
{
	const struct zi_step_betas *betas = &job->step.betas[group];
	uint64_t count = job->update_count + 1;

	hyper->beta1 = betas->beta1;
	hyper->beta2 = betas->beta2;
	hyper->eps = betas->eps;
	hyper->beta1_power = power_of(&job->powers[group][0], betas->beta1, count);
	hyper->beta2_power = power_of(&job->powers[group][1], betas->beta2, count);
}

/* Of each group of parameters; of the hyperparameters as they are now. */
static void scalars_prepare(struct zero_job *job)
{
	struct zero_step *step = &job->step;
	struct kern_hyper hyper = step->hyper;

	for (uint32_t i = 0; i < stretches_group_count(job); i++) {
		if (step->options.group_count) {
			hyper.lr = step->groups[i].lr;
			hyper.weight_decay = step->groups[i].weight_decay;
		}
		if (step->options.flags & ZI_STEP_BETAS)
			take_betas(job, i, &hyper);
		kern_optim_prepare(&step->scalars[i], &hyper);
	}
}

/* All that the update needs but a norm: known when the step begins. */
void step_prepare(struct zero_job *job)
{
	struct zero_step *step = &job->step;
	const struct zi_step_options *options = &step->options;

	step->next_beta1_power = job->beta1_power * options->beta1;
	step->next_beta2_power = job->beta2_power * options->beta2;
	step->hyper = (struct kern_hyper){
		.optimizer = (enum zi_optimizer)job->config.optimizer,
		.lr = options->lr,
		.beta1 = options->beta1,
		.beta2 = options->beta2,
		.eps = options->eps,
		.weight_decay = options->weight_decay,
		.is_nesterov = options->flags & ZI_STEP_NESTEROV,
		.beta1_power = step->next_beta1_power,
		.beta2_power = step->next_beta2_power,
		.is_first = job->update_count == 0,
		.update_count = job->update_count,
		.unscale = scale_unscale(job),
		.clip = 1.0f,
		.lr_decay = options->lr_decay,
		.has_no_bias_correction = options->flags & ZI_STEP_NO_BIAS_CORRECTION,
	};
	scalars_prepare(job);
}

/*
 * A unit's update begins before the ranks end the step: its gradients are there, and no rank uses
 * its parameters any more, nor will before it has called step() (each has promised so when it
 * began; who does not train the unit may be the last to begin). Looked at whenever one of these may
 * have become true. A step that a rank discards is updated no further. The job may be gone
 * afterwards, if an error was met.
 */
void step_unit_advance(struct zero_job *job, uint32_t index)
{
	const struct zero_unit *unit = &job->units[index];

	if (!job->step.is_early || job->step.phase != ZERO_STEP_STEPPING || unit->is_ready ||
	    discard_is_wanted(job) || unit->is_frozen || job->pipeline.error ||
	    job->here_mask & ~job->step.begun_mask)
		return;
	if (job->step.is_pass1 ? unit->micro_done != job->step.options.micro_batches
	                       : unit->handed_mask != set_mask_here(job, index))
		return;
	if (unit->users_mask)
		return;
	for_each_rank_here(job, i)
		if (!job->group.ranks[i])
			return;
	pipeline_ready(job, index);
}

/* Return: every rank has called step(), so that it ends by itself, in a commit or not: what is left
 * of it (sums of gradients, the update, the commit) is the daemon's alone. */
bool step_is_called(const struct zero_job *job)
{
	if (job->step.phase == ZERO_STEP_STEPPING)
		return gather_is_agreed(job, ZERO_GATHER_STEP) && !job->pipeline.error;
	return job->step.phase == ZERO_STEP_UPDATING || job->step.phase == ZERO_STEP_COMMITTING;
}

/* See step.h. */
void step_update(struct zero_job *job)
{
	struct zero_step *step = &job->step;

	assert(step->phase == ZERO_STEP_STEPPING);
	step->update_ns = zi_clock_now_ns();
	step->stats.grad_wait_ns = step->last_step_ns - step->first_step_ns;
	step->stats.norm_wait_ns = step->update_ns - step->last_step_ns;
	if (step->will_skip) {
		step_skip(job);
		return;
	}
	job_step_set(job, ZERO_STEP_UPDATING);
	pipeline_arm(job);
}

/* The norm is known, if it is wanted, and with it what is to become of the step. */
static void decide(struct zero_job *job)
{
	struct zero_step *step = &job->step;
	bool is_finite = true;

	if (job->across)
		unused_settle_all(job);
	options_settle(job);
	if (step->is_norm_wanted)
		is_finite = take_norm(step, grad_norm_sum(job));
	if (!is_finite)
		(void)norm_culprit(job, &step->stats.culprit, &step->culprit_unit); /* If any. */
	scale_advance(job, is_finite);
	step->will_skip = !is_finite && step->skips_nonfinite;
	/* Else they were known from the start, and an early update may be reading them. */
	if (step->is_norm_wanted)
		scalars_prepare(job);
}

/* To the update, when every rank has called step() and all sums are there. */
void step_advance(struct zero_job *job)
{
	struct zero_step *step = &job->step;

	if (step->phase != ZERO_STEP_STEPPING || !gather_is_agreed(job, ZERO_GATHER_STEP) ||
	    job->pipeline.error)
		return;
	used_ask(job);
	if (step->reduce_count || step->is_asked || !grads_are_there(job) || !used_is_known(job))
		return;
	/* A snapshot is being written; snapshot_written() looks again. */
	if (job->pipeline.kind == ZERO_PIPELINE_KEEP)
		return;
	if (keep_holds(job) || (step->is_norm_wanted && !norm_have(job)))
		return;
	decide(job);
	if (summed_is_due(job))
		summed_ask(job);
	else
		step_update(job);
}

/* The UPDATE pipeline has ended. */
void step_updated(struct zero_job *job, int error, const struct zi_text *text)
{
	struct zero_step *step = &job->step;
	const struct zero_pipeline *pipeline = &job->pipeline;

	if (error && step->phase == ZERO_STEP_STEPPING) {
		/* Reading ahead met it: the step will not be. */
		group_break(job, error, UINT32_MAX, text);
		job_settle(job);
		return;
	}
	step->stats.read_bytes = pipeline->read_bytes;
	step->stats.write_bytes = pipeline->write_bytes;
	step->stats.io_read_ns = pipeline->io_read_ns;
	step->stats.io_write_ns = pipeline->io_write_ns;
	step->stats.cpu_ns = pipeline->cpu_ns;
	if (error)
		step_end(job, error, text);
	else
		step_go_to_commit(job);
}

/* See step.h. */
void step_go_to_commit(struct zero_job *job)
{
	if (job->step.phase != ZERO_STEP_UPDATING || job->pipeline.kind != ZERO_PIPELINE_NONE)
		return;
	if (job->residency && job->residency->void_count)
		return;
	if (!params_are_there(job))
		return;
	if (!job->step.is_due) {
		step_end(job, 0, NULL);
		return;
	}
	job_step_set(job, ZERO_STEP_COMMITTING);
	commit_submit(job);
}
