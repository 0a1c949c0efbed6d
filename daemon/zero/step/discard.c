/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See discard.h.
 *
 * Ranks may be anywhere in the step: a rank has called zinf_step(), another rank waits for the norm
 * or for a bucket, a third rank has handed over nothing. After the first call no rank can get what
 * needs all ranks. So each waiting rank gets an error, and calls zinf_step_discard() as well. The
 * step stays STEPPING until nothing of it is in flight. So calls that wait for its end see no state
 * in between.
 *
 * Nothing has to be undone: before all ranks have called zinf_step(), a step changes only sums, and
 * reads state ahead. The exception is an early update: such a step cannot be discarded.
 */
#include "daemon/zero/step/discard.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/grad/pool.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/grad/spill_space.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/step_end.h"

/* Documented in the header, as are all that are not static, but for the handler. */
bool discard_is_wanted(const struct zero_job *job)
{
	return job->group.gather_masks[ZERO_GATHER_DISCARD];
}

static void say_wanted(const struct zero_job *job, struct zi_text *text)
{
	uint32_t first = (uint32_t)__builtin_ctzll(job->group.gather_masks[ZERO_GATHER_DISCARD]);
	const struct zero_rank *rank = job->group.ranks[first];

	zi_text_set(text,
	            "rank %u (pid %d) discards this step: call zinf_step_discard() in every rank",
	            first, rank ? rank->pid : 0);
}

int discard_refuse(struct zero_op *op)
{
	say_wanted(op->rank->job, &op->text);
	return err_origin(-ECANCELED);
}

/* A unit whose update has begun; UINT32_MAX: none. */
static uint32_t updated_unit(const struct zero_job *job)
{
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		if (job->step.is_early && job->units[i].is_ready)
			return i;
	return UINT32_MAX;
}

static int check_early(const struct zero_job *job, struct zi_text *text)
{
	uint32_t unit = updated_unit(job);

	if (unit == UINT32_MAX)
		return 0;
	return err_origin(zi_text_error(
		text, -EOPNOTSUPP,
		"the step cannot be discarded: it was begun with update_early, and unit '%.60s' is "
		"updated already; end it with zinf_step(), or attach again (the job is then at "
		"its last committed step)",
		job->layout.units[unit].name));
}

static int check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	uint64_t bit = 1ull << rank->number;

	if (job->across)
		return zi_text_error(&op->text, -EOPNOTSUPP,
		                     "step_discard: a job over several nodes cannot discard a "
		                     "step; end it with zinf_step(), or attach again");
	if (job->step.phase != ZERO_STEP_STEPPING || !(job->step.begun_mask & bit))
		return zi_text_error(&op->text, -EINVAL, "step_discard before step_begin");
	if (gather_is_full(job, ZERO_GATHER_STEP) ||
	    (job->group.gather_masks[ZERO_GATHER_STEP] & bit))
		return zi_text_error(&op->text, -EBUSY,
		                     "rank %u has ended this step: zinf_wait() its ticket",
		                     rank->number);
	return check_early(job, &op->text);
}

/* What the ranks have, they have no more: the gradient of each unit is acquired anew. */
static void drop_gradients(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		grad_release(job, i, UINT64_MAX);
		grad_pool_clear(job, i);
	}
}

/* Nobody waits any more, whose call has timed out: it comes again, or begins another step. */
static uint64_t missed_mask(const struct zero_job *job)
{
	uint64_t mask = job->group.gather_masks[ZERO_GATHER_DISCARD];

	for_each_rank_here(job, i)
		if (job->group.ranks[i] && job->group.ranks[i]->gathered[ZERO_GATHER_DISCARD])
			mask &= ~(1ull << i);
	return mask;
}

static void end(struct zero_job *job)
{
	spill_release(job);
	extents_release_next(job);
	drop_gradients(job);
	step_units_reset(job);
	if (job->residency)
		for_each_rank_here(job, i)
			if (job->group.ranks[i])
				residency_step_discarded(job->group.ranks[i]);
	job->step.is_discarding = false;
	job_step_set(job, ZERO_STEP_NONE);
	job->group.discarded_mask = missed_mask(job);
	gather_complete(job, ZERO_GATHER_DISCARD, 0, NULL);
	if (job->residency)
		residency_pump(job);
	step_go_on(job);
}

void discard_advance(struct zero_job *job)
{
	if (!job->step.is_discarding || job->step.reduce_count ||
	    job->pipeline.kind != ZERO_PIPELINE_NONE || !spill_is_idle(job))
		return;
	end(job);
}

/* All ranks have come. A snapshot that is being written ends first. No update began after the first
 * rank had come (step_unit_advance()). */
static void begin(struct zero_job *job)
{
	assert(updated_unit(job) == UINT32_MAX);
	job->step.is_discarding = true;
	spill_abort(job);
	if (job->pipeline.kind != ZERO_PIPELINE_KEEP)
		(void)pipeline_abort(job);
	discard_advance(job);
}

/* As gather_join(), without stall_look(): ranks that wait for this one get an error and continue
 * (tell_others()). A second call of a rank replaces its former one, which the rank gave up (a
 * deadline, an interrupt). */
static void join(struct zero_op *op)
{
	struct zero_rank *rank = op->rank;
	struct zero_op *former = rank->gathered[ZERO_GATHER_DISCARD];

	if (former)
		op_fail(former, -ECANCELED, "step_discard was called again");
	rank->job->group.gather_masks[ZERO_GATHER_DISCARD] |= 1ull << rank->number;
	rank->gathered[ZERO_GATHER_DISCARD] = op;
	op_wait(op);
}

/* Whoever waits for what needs all ranks goes on with an error. */
static void tell_others(struct zero_job *job)
{
	struct zi_text text;

	say_wanted(job, &text);
	if (job->group.gather_masks[ZERO_GATHER_STEP])
		gather_complete(job, ZERO_GATHER_STEP, -ECANCELED, &text);
	ops_retry(job);
}

static void come(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	uint64_t bit = 1ull << op->rank->number;
	int r;

	if (job->group.discarded_mask & bit) {
		job->group.discarded_mask &= ~bit;
		op_complete(op, 0);
		return;
	}
	if (job->group.gather_masks[ZERO_GATHER_DISCARD] & bit) {
		join(op);
		return;
	}
	r = check(op->rank, op);
	if (r) {
		op_complete(op, r);
		return;
	}
	join(op);
	if (gather_is_full(job, ZERO_GATHER_DISCARD))
		begin(job);
	else
		tell_others(job);
}

/**
 * zero_step_discard() - ends the step that the rank has begun, without changing anything
 * @op: completes when all ranks have called it, and nothing of the step is in flight
 *
 * -EOPNOTSUPP units are updated early, or the job spans nodes; -EBUSY the rank has called step().
 * Context: shard thread.
 */
void zero_step_discard(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZI_OP_STEP_DISCARD))
		come(op);
	zero_drain(zero);
}
