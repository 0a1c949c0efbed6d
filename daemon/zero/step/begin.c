/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step begins: every rank's options are equal, bit by bit (options.c), and the store has room for
 * all that the step will write. Floor 5, shard thread.
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
#include "daemon/zero/step/options.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/scale.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/unused.h"

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
	r = state_check_busy(job, &op->text);
	if (!r)
		r = state_check_commit(job, &op->text);
	if (r)
		return err_trace(r);
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
	if (job->across && (op->options.flags & (ZI_STEP_DEFERRED | ZI_STEP_BETAS)))
		return zi_text_error(&op->text, -EOPNOTSUPP,
		                     "%s of a step: a job over several nodes has none, give "
		                     "zinf_step_begin() the hyperparameters%s",
		                     op->options.flags & ZI_STEP_DEFERRED ? "is_deferred"
		                                                          : "group_betas",
		                     op->options.flags & ZI_STEP_DEFERRED ? "" : " of all groups");
	r = options_check_groups(job, &op->options, &op->text);
	return r ? r : err_trace(scale_options_check(job, &op->options, &op->text));
}

/* Who begins a step: a rank here, or where all have joined one of another node. */
struct beginner {
	uint32_t rank;
	const struct zi_step_options *options;
	const struct zi_step_group *groups;
	const struct zi_step_betas *betas; /* NULL: its options have none */
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
	if (first->options->flags & ZI_STEP_BETAS)
		memcpy(step.betas, first->betas,
		       first->options->group_count * sizeof(step.betas[0]));
	step.skips_nonfinite = (first->options->flags & ZI_STEP_SKIP_NONFINITE) || scale_is_on(job);
	step.is_norm_wanted = first->options->max_norm > 0 || step.skips_nonfinite ||
	                      (first->options->flags & (ZI_STEP_WANT_NORM | ZI_STEP_DEFERRED));
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
	int r = options_check_optimizer(job, first->options, text);

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
		                                   .groups = rank->step_groups,
		                                   .betas = rank->step_betas },
		               &op->text);
		if (r == BUDGET_E_WAIT)
			return;
		if (!r)
			agree_begin(job);
	} else if (!r) {
		r = step_options_compare(&op->options, rank->number, &job->step.options,
		                         job->step.options_rank, &op->text);
		if (!r)
			r = options_compare_groups(job, op, job->step.options_rank);
	}
	if (!r) {
		join_forget(job, rank->number);
		job->group.discarded_mask &= ~(1ull << rank->number);
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
		options_keep_groups(op);
		op_wait(op);
		step_try_begin(op);
	}
	zero_drain(zero);
}
