/* SPDX-License-Identifier: Apache-2.0 */
/* See grad_norm.h. */
#include "daemon/zero/step/grad_norm.h"

#include <math.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/grad/stall.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/step/discard.h"
#include "daemon/zero/step/step.h"
#include "kernels/norm.h"

/* Documented in the header, as are all that are not static, but for the handler. Asked for several
 * times, it is summed once. */
double grad_norm_sum(struct zero_job *job)
{
	struct zero_step *step = &job->step;

	assert(step->is_norm_wanted);
	assert(step->reduce_count == 0);
	if (!step->is_norm_known)
		step->norm_sum = kern_norm_join(job->norm_blocks, job->block_count);
	step->is_norm_known = true;
	return step->norm_sum;
}

static bool unit_is_summed(const struct zero_job *job, uint32_t index)
{
	const struct zero_unit *unit = &job->units[index];

	return unit->is_frozen || unit->micro_done == job->step.options.micro_batches;
}

static bool is_known(const struct zero_job *job)
{
	if (job->step.reduce_count)
		return false;
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		if (!unit_is_summed(job, i))
			return false;
	return true;
}

void grad_norm_try(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;

	/* A peer that knows the norm may discard the step for it before this rank has asked. */
	if (discard_is_wanted(job) && !is_known(job)) {
		op_complete(op, discard_refuse(op));
		return;
	}
	/* The step was discarded, and another step may be under way. */
	if (job->step.phase != ZERO_STEP_STEPPING || !job->step.is_norm_wanted ||
	    !(job->step.begun_mask >> op->rank->number & 1)) {
		op_fail(op, -ECANCELED, "grad_norm: its step is over");
		return;
	}
	if (!is_known(job))
		return;
	op->norm = sqrt(grad_norm_sum(job));
	op_complete(op, 0);
}

/* Ranks that have something of the unit to hand over in this step. */
static uint64_t missing_of(const struct zero_job *job, uint32_t index)
{
	uint64_t mask = 0;

	for_each_rank_here(job, i) {
		const struct zero_rank *rank = job->group.ranks[i];

		if (!rank || !(job->step.begun_mask >> i & 1) || !step_unit_is_handed(rank, index))
			mask |= 1ull << i;
	}
	return mask & set_mask_here(job, index);
}

uint64_t grad_norm_missing_mask(const struct zero_job *job)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		if (!unit_is_summed(job, i))
			mask |= missing_of(job, i);
	return mask;
}

/* The unit that @rank would hand over first, as backward goes from the last one. */
static const char *unit_missed_by(const struct zero_job *job, uint32_t rank)
{
	for (uint32_t i = job->layout.unit_count; i-- > 0;)
		if (!unit_is_summed(job, i) && missing_of(job, i) >> rank & 1)
			return job->layout.units[i].name;
	return "?";
}

bool grad_norm_say_late(const struct zero_job *job, struct zi_text *ret_text)
{
	uint64_t missing_mask = grad_norm_missing_mask(job);
	struct zi_text text = { "" };

	if (job->step.phase != ZERO_STEP_STEPPING || !missing_mask)
		return false;
	for_each_rank_here(job, i) {
		const struct zero_rank *rank = job->group.ranks[i];

		if (!(missing_mask >> i & 1) || !rank)
			continue;
		zi_text_append(&text, "%srank %u (pid %d) has not handed over unit '%.40s'",
		               text.chars[0] ? "; " : "", i, rank->pid, unit_missed_by(job, i));
		if (rank->doing)
			zi_text_append(
				&text, ", its last call was %s %.1f s ago", op_name(rank->doing),
				(double)(zi_clock_now_ns() - rank->doing_ns) / (double)ZI_NS_PER_S);
	}
	*ret_text = text;
	return true;
}

static int check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	uint64_t bit = 1ull << rank->number;

	if (job->across)
		return zi_text_error(&op->text, -EOPNOTSUPP,
		                     "grad_norm: a job over several nodes has it only in the "
		                     "statistics of zinf_wait()");
	if (job->step.phase != ZERO_STEP_STEPPING || !(job->step.begun_mask & bit))
		return zi_text_error(&op->text, -EINVAL, "grad_norm before step_begin");
	if (job->group.gather_masks[ZERO_GATHER_STEP] & bit)
		return zi_text_error(&op->text, -EINVAL, "grad_norm after step");
	if (!job->step.is_norm_wanted)
		return zi_text_error(&op->text, -EINVAL,
		                     "this step computes no norm: begin it with is_deferred or "
		                     "want_norm");
	if (discard_is_wanted(job) && !is_known(job))
		return discard_refuse(op);
	return step_check_handed(rank, op);
}

/**
 * zero_grad_norm() - the norm of the gradients of the step under way
 * @op: completes when all ranks have handed over all units, with op->norm
 *
 * -ENODATA names units of the rank itself; -ECANCELED the step is discarded. Context: shard
 * thread.
 */
void zero_grad_norm(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	int r;

	if (!op_begin(rank, op, ZI_OP_GRAD_NORM)) {
		zero_drain(zero);
		return;
	}
	r = check(rank, op);
	if (r) {
		op_complete(op, r);
	} else {
		op_wait(op);
		grad_norm_try(op);
		stall_look(job); /* It may stand still now. */
	}
	zero_drain(zero);
}
