/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step begins: every rank's options are equal, bit by bit, and the store has room for all that
 * the step will write. Floor 5, shard thread.
 */
#include "daemon/zero/zero.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/agree/begin.h"
#include "daemon/zero/grad/spill_space.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/param/write.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/budget.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/join.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/scale.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/unused.h"

/* Documented in step.h. What differs in a bit may differ in the result. */
int step_options_compare(const struct zi_step_options *mine, uint32_t rank,
                         const struct zi_step_options *model, uint32_t model_rank,
                         struct zi_text *text)
{
	const struct {
		const char *name;
		double mine, model;
	} reals[] = {
		{ "lr", mine->lr, model->lr },
		{ "beta1", mine->beta1, model->beta1 },
		{ "beta2", mine->beta2, model->beta2 },
		{ "eps", mine->eps, model->eps },
		{ "weight_decay", mine->weight_decay, model->weight_decay },
		{ "max_norm", mine->max_norm, model->max_norm },
		{ "unscale", mine->unscale, model->unscale },
		{ "lr_decay", mine->lr_decay, model->lr_decay },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(reals); i++) {
		struct zi_reals_text said = zi_format_reals(reals[i].mine, reals[i].model);

		if (memcmp(&reals[i].mine, &reals[i].model, sizeof(double)) != 0)
			return zi_text_error(text, -EINVAL,
			                     "%s is %s in rank %u, but %s in rank %u",
			                     reals[i].name, said.one, rank, said.other, model_rank);
	}
	if (mine->micro_batches != model->micro_batches)
		return zi_text_error(text, -EINVAL,
		                     "micro_batches is %u in rank %u, but %u in rank %u",
		                     mine->micro_batches, rank, model->micro_batches, model_rank);
	if (mine->group_count != model->group_count)
		return zi_text_error(text, -EINVAL,
		                     "group_count of the step is %u in rank %u, but %u in rank %u",
		                     mine->group_count, rank, model->group_count, model_rank);
	if (mine->flags != model->flags)
		return zi_text_error(
			text, -EINVAL,
			"flags (nesterov 1, sum 2, skip_nonfinite 4, want_norm 8, "
			"update_early 16, no_bias_correction 32) are %u in rank %u, but %u in "
			"rank %u",
			mine->flags, rank, model->flags, model_rank);
	return 0;
}

static int groups_compare(const struct zero_job *job, struct zero_op *op)
{
	const struct zero_rank *rank = op->rank;

	assert(op->options.group_count == job->step.options.group_count);
	for (uint32_t i = 0; i < op->options.group_count; i++) {
		const struct zi_step_group *mine = &rank->step_groups[i];
		const struct zi_step_group *model = &job->step.groups[i];
		struct zi_reals_text lr, decay;

		if (memcmp(mine, model, sizeof(*mine)) == 0)
			continue;
		lr = zi_format_reals(mine->lr, model->lr);
		decay = zi_format_reals(mine->weight_decay, model->weight_decay);
		return zi_text_error(&op->text, -EINVAL,
		                     "group %u has lr %s and weight_decay %s in rank %u, but "
		                     "%s and %s in rank %u",
		                     i, lr.one, decay.one, rank->number, lr.other, decay.other,
		                     job->step.options_rank);
	}
	return 0;
}

/* A step without groups has one lr and weight_decay for all of them. */
static int groups_check(const struct zero_job *job, struct zero_op *op)
{
	uint32_t count = stretches_group_count(job);

	if (!op->options.group_count || op->options.group_count == count)
		return 0;
	return zi_text_error(&op->text, -EINVAL,
	                     "group_count of the step is %u, but the job has %u groups of "
	                     "parameters: give all of them, or none",
	                     op->options.group_count, count);
}

/* What one optimizer alone has is nobody else's: it would do nothing, in silence. */
static int optimizer_check(const struct zero_job *job, const struct zi_step_options *options,
                           struct zi_text *text)
{
	enum zi_optimizer optimizer = (enum zi_optimizer)job->config.optimizer;
	bool is_adam = optimizer == ZI_OPTIMIZER_ADAM || optimizer == ZI_OPTIMIZER_ADAMW;

	if (options->lr_decay != 0 && optimizer != ZI_OPTIMIZER_ADAGRAD)
		return zi_text_error(text, -EINVAL,
		                     "lr_decay is %g: adagrad has one, the job's optimizer is %s",
		                     options->lr_decay, zi_optimizer_name(optimizer));
	if ((options->flags & ZI_STEP_NO_BIAS_CORRECTION) && !is_adam)
		return zi_text_error(text, -EINVAL,
		                     "no_bias_correction is set: adam and adamw have one, the "
		                     "job's optimizer is %s",
		                     zi_optimizer_name(optimizer));
	return 0;
}

static int begin_check(const struct zero_job *job, struct zero_op *op)
{
	const struct zero_rank *writer = write_pending(job);
	int r;

	if (job->zero->is_stopping)
		return zi_text_error(&op->text, -ESTALE, "the daemon is stopping");
	if (job->zero->frozen)
		return frozen_check(job->zero, &op->text);
	if (writer)
		return zi_text_error(&op->text, -EBUSY, "rank %u has unit '%s' open for writing",
		                     writer->number, job->layout.units[writer->write->unit].name);
	if (job->write_source)
		return zi_text_error(&op->text, -EBUSY, "unit '%s' is being written",
		                     job->layout.units[job->write_unit].name);
	if (gather_is_full(job, ZERO_GATHER_WRITE_END))
		return zi_text_error(&op->text, -EBUSY,
		                     "all ranks have called param_write_end: it ends first");
	if (job->committed_step < 0)
		return zi_text_error(&op->text, -EINVAL,
		                     "parameters were never committed: write them, then commit");
	for (uint32_t i = 0; i < job->layout.unit_count && job_is_nvme(job); i++)
		if (job->units[i].is_written && (job_stores_param(job) || job->units[i].is_frozen))
			return zi_text_error(
				&op->text, -EBUSY,
				"unit '%.60s' was written and not committed: %s a commit comes "
				"before the next step",
				job->layout.units[i].name,
				job_stores_param(job) ? "with parameters on nvme"
						      : "as it is frozen whole");
	if (job->step.phase == ZERO_STEP_STEPPING && job->step.begun_mask >> op->rank->number & 1)
		return zi_text_error(&op->text, -EALREADY, "rank %u began this step before",
		                     op->rank->number);
	if (op->options.micro_batches > 1 && job->config.schedule != ZI_SCHEDULE_SHARDED)
		return zi_text_error(&op->text, -EINVAL,
		                     "micro_batches is %u, but with grad_reduction per_step a "
		                     "rank accumulates by itself: give 1",
		                     op->options.micro_batches);
	if (!op->options.micro_batches)
		return zi_text_error(&op->text, -EINVAL, "micro_batches is 0");
	r = groups_check(job, op);
	return r ? r : err_trace(scale_options_check(job, &op->options, &op->text));
}

/* Who begins a step: a rank here, or where all have joined one of another node. */
struct beginner {
	uint32_t rank;
	const struct zi_step_options *options;
	const struct zi_step_group *groups;
};

/* How the step will go, by the first rank's options. */
static struct zero_step step_of(const struct zero_job *job, const struct beginner *first)
{
	struct zero_step step = {
		.phase = job->step.phase,
		.generation = job->group.generation,
		.line = job->group.line,
		.options = *first->options,
		.options_rank = first->rank,
		.norm = __builtin_nan(""),
		.is_due = ahead_is_due(job, job->current_step + 1),
		.blob_index = blob_next(job),
		.culprit_unit = UINT32_MAX,
		.next_scale = job->scale,
		.stats = {
			.step = (uint64_t)job->current_step + 1,
			.norm = __builtin_nan(""),
			.clip = 1.0,
			.culprit = UINT32_MAX,
			.loss_scale = scale_of(job),
		},
	};

	memcpy(step.groups, first->groups, first->options->group_count * sizeof(step.groups[0]));
	step.skips_nonfinite = (first->options->flags & ZI_STEP_SKIP_NONFINITE) || scale_is_on(job);
	step.is_norm_wanted = first->options->max_norm > 0 || step.skips_nonfinite ||
	                      (first->options->flags & ZI_STEP_WANT_NORM);
	step.is_pass1 = step.is_norm_wanted || job->config.schedule == ZI_SCHEDULE_SHARDED;
	/* What is in memory alone may not change before the step is certain. */
	step.is_early = (first->options->flags & ZI_STEP_UPDATE_EARLY) && !step.is_norm_wanted &&
	                job_is_nvme(job) && !job_is_ahead(job) && !job->across;
	/* Else buckets would be full before all gradients are in. */
	step.is_pass1 |= job->grad_pool && !step.is_early;
	/* The step's own pass rounds to the gradients' type. */
	step.is_pass1 |= job_reduce_dtype(job) != (enum zi_dtype)job->config.grad_dtype;
	step.is_pass1 |= job->across != NULL; /* The ranks here have a part of it alone. */
	return step;
}

/* Space for all that it will write, and leave to write it. Return: 0; -ENOSPC, -EDQUOT;
 * BUDGET_E_WAIT. */
static int step_reserve(struct zero_job *job, const struct zero_step *step, struct zi_text *text)
{
	int r = extents_reserve(job, step->is_due ? EXTENTS_STEP : EXTENTS_AHEAD, text);

	if (r)
		return err_trace(r);
	r = step->is_pass1 ? spill_reserve(job, text) : 0;
	if (!r)
		r = budget_take(job, text);
	if (!r)
		return 0;
	spill_release(job);
	extents_release_next(job);
	return r == BUDGET_E_WAIT ? r : err_trace(r);
}

/* The first rank; then state is read ahead. Return: 0; -ENOSPC, -EDQUOT, -EINVAL; BUDGET_E_WAIT,
 * and nothing has begun. */
static int step_start(struct zero_job *job, const struct beginner *first, struct zi_text *text)
{
	struct zero_step *step = &job->step;
	struct zero_step next = step_of(job, first);
	int r = optimizer_check(job, first->options, text);

	assert(step->reduce_count == 0);
	assert(!job->former.is_kept);
	if (r)
		return err_trace(r);
	r = step_reserve(job, &next, text);
	if (r)
		return r == BUDGET_E_WAIT ? r : err_trace(r);
	*step = next;
	step_prepare(job);
	for_each_rank_here(job, i)
		job->blobs[step->blob_index][i].byte_count = 0;
	step_units_reset(job);
	unused_reset(job);
	if (step->is_norm_wanted)
		stretches_clear_norm(job);
	job_step_set(job, ZERO_STEP_STEPPING);
	pipeline_start(job, ZERO_PIPELINE_UPDATE);
	return 0;
}

/* One more has begun: others may have handed over already what it has no part in. */
static void units_advance(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->layout.unit_count && job->step.is_early; i++)
		step_unit_advance(job, i);
}

/* As other nodes have begun it, where all ranks have joined; @op is one of theirs. Return: as
 * step_start(). */
static int step_start_far(struct zero_job *job, struct zero_op *op)
{
	struct zero_op model = { .rank = op->rank, .options = job->join.options };
	struct beginner first = { .rank = job->join.rank,
		                  .options = &job->join.options,
		                  .groups = job->join.groups };
	int r = begin_check(job, &model);

	if (r) {
		op->text = model.text;
		return err_trace(r);
	}
	r = step_start(job, &first, &op->text);
	if (!r)
		job->join.has_begun = false;
	return r == BUDGET_E_WAIT ? r : err_trace(r);
}

/* Of nodes whose ranks have all joined. Return: whether @op may go on; else it waits, or has
 * failed. */
static bool try_far(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	int r;

	if (job->step.phase != ZERO_STEP_NONE)
		return true;
	if (join_is_asked(job))
		return op->options.flags & ZI_STEP_JOINED;
	if (!join_has_begun(job))
		return true;
	r = step_start_far(job, op);
	if (r && r != BUDGET_E_WAIT)
		op_complete(op, r);
	if (!r)
		join_step(job, op->rank);
	return !r;
}

/* @op waits in its rank's list. It goes on waiting while the former step is being written. */
void step_try_begin(struct zero_op *op)
{
	struct zero_rank *rank = op->rank;
	struct zero_job *job = rank->job;
	bool is_first;
	int r;

	if (group_needs_all(job))
		return;
	if (job->step.phase == ZERO_STEP_UPDATING || job->step.phase == ZERO_STEP_COMMITTING ||
	    gather_is_asked(job, ZERO_GATHER_COMMIT))
		return;
	if (!try_far(op))
		return;
	if (op->options.flags & ZI_STEP_JOINED) {
		join_try(op);
		units_advance(job);
		return;
	}
	is_first = job->step.phase == ZERO_STEP_NONE;
	r = begin_check(job, op);
	if (!r && is_first) {
		r = step_start(job,
		               &(struct beginner){ .rank = rank->number,
		                                   .options = &op->options,
		                                   .groups = rank->step_groups },
		               &op->text);
		if (r == BUDGET_E_WAIT)
			return;
		if (!r)
			agree_begin(job);
	} else if (!r) {
		r = step_options_compare(&op->options, rank->number, &job->step.options,
		                         job->step.options_rank, &op->text);
		if (!r)
			r = groups_compare(job, op);
	}
	if (!r) {
		join_forget(job, rank->number);
		job->step.begun_mask |= 1ull << rank->number;
	}
	if (!r && is_first)
		join_step(job, rank);
	op_complete(op, r);
	units_advance(job);
}

/**
 * zero_step_begin() - a rank begins a step
 * @op: options; completes when the former step is committed
 *
 * The first rank's options are the model, those of joined ranks are nobody's (join.c); -EINVAL
 * names what differs; -ENOSPC says what is missing, -EDQUOT whose write budget is used up.
 * Context: shard thread.
 */
void zero_step_begin(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZI_OP_STEP_BEGIN)) {
		if (op->options.group_count)
			memcpy(rank->step_groups, op->groups,
			       op->options.group_count * sizeof(rank->step_groups[0]));
		op_wait(op);
		step_try_begin(op);
	}
	zero_drain(zero);
}
