/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizer state that ranks read and write, by ranges of a unit: what may be asked when. The bytes
 * move in state_run.c. Floor 5, shard thread, but for open_run().
 *
 * A read is one rank's. The state that it reads changes only in a call that needs this rank as
 * well, so such a call of this rank waits until the read has ended: -EBUSY (state_check_rank()).
 * A write is all ranks', between steps, and the next commit makes it durable.
 */
#include "daemon/zero/state/state.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/holder.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"

/* ---- the window ---- */

static struct zero_state *state_free(struct zero_state *state)
{
	assert(!state->is_busy);
	assert(!state->op);
	state->window = tier_segment_unref(state->window);
	free(state);
	return NULL;
}

/* See state.h, as are the others without a word of their own. */
void state_forget(struct zero_rank *rank)
{
	struct zero_state *state = zi_steal(rank->state);

	if (!state)
		return;
	state->rank = NULL;
	state->op = NULL;
	state->run.is_void = true;
	if (!state->is_busy)
		(void)state_free(state);
}

/* What the device or the run did for the rank is over. */
static void state_end(struct zero_state *state, int error, const struct zi_text *text)
{
	struct zero_op *op = state->op;

	state->is_busy = false;
	if (!state->rank) {
		(void)state_free(state);
		return;
	}
	if (!op)
		return;
	if (error)
		op->text = *text;
	op_complete(op, error);
}

static void open_run(struct dev_task *task)
{
	struct zero_state *state = container_of(task, struct zero_state, task);

	state->error = tier_segment_build(state->window, &state->text);
}

static void opened(struct dev_task *task)
{
	struct zero_state *state = container_of(task, struct zero_state, task);
	struct zero_job *job = state->job;
	struct zero *zero = job->zero;
	struct zero_rank *rank = state->rank;

	job_unbusy(job);
	if (rank && !state->error)
		state->error = tier_holder_add(rank->holder, state->window);
	state->is_ready = !state->error;
	state_end(state, state->error, &state->text);
	if (rank && !rank->state->is_ready) {
		struct zero_state *failed = zi_steal(rank->state);

		failed->op = NULL;
		(void)state_free(failed); /* It may be opened again. */
	}
	job_settle(job);
	zero_drain(zero);
}

static int open_window(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero_state *state;
	int r;

	if (job->across)
		return zi_text_error(
			&op->text, -EOPNOTSUPP,
			"the optimizer state of a job over several nodes cannot be read "
			"or written");
	if (rank->state)
		return zi_text_error(&op->text, -EALREADY, "the window was opened before");
	state = calloc(1, sizeof(*state));
	if (!state)
		return err_origin(-ENOMEM);
	r = tier_segment_charge(job->cpu_tier, &job->account->account, "zinf-state",
	                        (uint64_t)ZI_STATE_WINDOW_ELEMENTS * sizeof(int32_t),
	                        TIER_PAGES_SMALL, &op->text, &state->window);
	if (r) {
		free(state);
		return err_trace(r);
	}
	state->job = job;
	state->rank = rank;
	state->op = op;
	state->is_busy = true;
	state->task = (struct dev_task){ .run = open_run,
		                         .done = opened,
		                         .loop = job->zero->options.loop };
	rank->state = state;
	op_wait(op);
	job_busy(job);
	dev_submit(job->device, &state->task);
	return 0;
}

/**
 * zero_state_open() - memory through which this rank reads and writes optimizer state
 * @op: completes when it is there
 *
 * Once. -EALREADY; -EOPNOTSUPP over nodes; -ENOSPC, -EDQUOT with figures. Context: shard thread.
 */
void zero_state_open(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZERO_OP_STATE_OPEN)) {
		int r = open_window(rank, op);

		if (r)
			op_complete(op, r);
	}
	zero_drain(zero);
}

/* Of this rank, which may write it; NULL: none. */
struct tier_segment *zero_state_window(struct zero_rank *rank)
{
	return rank->state && rank->state->is_ready ? rank->state->window : NULL;
}

/* ---- what fits ---- */

int state_check_rank(const struct zero_rank *rank, struct zi_text *text)
{
	if (!rank->state || !rank->state->is_busy)
		return 0;
	return zi_text_error(text, -EBUSY,
	                     "rank %u reads optimizer state: wait until that has ended",
	                     rank->number);
}

int state_check_busy(const struct zero_job *job, struct zi_text *text)
{
	if (!job->state_put.is_on)
		return 0;
	return zi_text_error(text, -EBUSY, "optimizer state of unit '%.60s' is being written",
	                     job->layout.units[job->state_put.run.unit].name);
}

int state_check_idle(const struct zero_rank *rank, struct zi_text *text)
{
	int r = state_check_rank(rank, text);

	if (!r)
		r = state_check_busy(rank->job, text);
	if (!r && rank->job->step.phase != ZERO_STEP_NONE)
		r = zi_text_error(text, -EBUSY, "a step is under way");
	return r;
}

int state_check_commit(const struct zero_job *job, struct zi_text *text)
{
	if (!job_is_nvme(job))
		return 0;
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		if (job->units[i].is_state_written)
			return zi_text_error(text, -EBUSY,
			                     "optimizer state of unit '%.60s' was written and not "
			                     "committed: a commit comes before the next step",
			                     job->layout.units[i].name);
	if (!job->state_put.is_count_written)
		return 0;
	return zi_text_error(text, -EBUSY,
	                     "the number of updates was written and not committed: a commit comes "
	                     "before the next step");
}

static const char *kind_name(enum zi_state_kind kind)
{
	switch (kind) {
	case ZI_STATE_REMAINDER:
		return "a remainder of the master";
	case ZI_STATE_FIRST:
		return "a first moment";
	case ZI_STATE_SECOND:
		return "a second moment";
	case _ZI_STATE_COUNT:
	default:
		return "state of this kind";
	}
}

int state_check_range(const struct zero_job *job, struct zero_op *op)
{
	const struct zero_state_range *range = &op->state;
	uint64_t element_count = job->units[op->unit].element_count;

	if (!state_has_kind(job, (enum zi_state_kind)range->kind))
		return zi_text_error(&op->text, -EINVAL,
		                     "%s (kind %u): optimizer %s over %s parameters has none",
		                     kind_name((enum zi_state_kind)range->kind), range->kind,
		                     zi_optimizer_name((enum zi_optimizer)job->config.optimizer),
		                     zi_dtype_name((enum zi_dtype)job->config.param_dtype));
	if (!range->count || range->count > ZI_STATE_WINDOW_ELEMENTS)
		return zi_text_error(&op->text, -EINVAL, "%llu elements of state, from 1 to %u",
		                     (unsigned long long)range->count, ZI_STATE_WINDOW_ELEMENTS);
	if (range->first > element_count || range->count > element_count - range->first)
		return zi_text_error(
			&op->text, -EINVAL, "%llu elements from %llu on, but unit '%.60s' has %llu",
			(unsigned long long)range->count, (unsigned long long)range->first,
			job->layout.units[op->unit].name, (unsigned long long)element_count);
	return 0;
}

int state_check_window(const struct zero_rank *rank, struct zero_op *op)
{
	if (!rank->state || !rank->state->is_ready)
		return zi_text_error(&op->text, -EINVAL,
		                     "rank %u has no window for optimizer state: STATE_OPEN comes "
		                     "first",
		                     rank->number);
	return state_check_rank(rank, &op->text);
}

/* ---- reading ---- */

/* Before the update of a step begins its state is as it was. */
static int read_check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	const struct zero_step *step = &job->step;
	bool is_before_update = step->phase == ZERO_STEP_STEPPING && !step->is_early &&
	                        !(job->group.gather_masks[ZERO_GATHER_STEP] >> rank->number & 1);
	int r;

	if (job->across)
		return zi_text_error(&op->text, -EOPNOTSUPP,
		                     "the optimizer state of a job over several nodes cannot be "
		                     "read");
	r = state_check_window(rank, op);
	if (!r)
		r = state_check_range(job, op);
	if (!r)
		r = state_check_busy(job, &op->text);
	if (r)
		return err_trace(r);
	if (step->phase != ZERO_STEP_NONE && !is_before_update)
		return zi_text_error(
			&op->text, -EBUSY, "a step is under way: wait for its ticket%s",
			step->is_early ? ", as update_early changes units before it ends" : "");
	if (job->group.gather_masks[ZERO_GATHER_COMMIT] >> rank->number & 1)
		return zi_text_error(&op->text, -EBUSY, "a commit is under way");
	if (job->units[op->unit].is_copying)
		return zi_text_error(&op->text, -EBUSY, "unit '%s' is being written",
		                     job->layout.units[op->unit].name);
	return 0;
}

static void read_ended(struct state_run *run)
{
	struct zero_state *state = container_of(run, struct zero_state, run);

	state_end(state, run->error, &run->text);
}

static int read_start(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_state *state = rank->state;
	int r;

	state->run = (struct state_run){
		.job = rank->job,
		.action = STATE_GET,
		.unit = op->unit,
		.kind = (enum zi_state_kind)op->state.kind,
		.first = op->state.first,
		.count = op->state.count,
		.window = tier_segment_ref(state->window),
		.done = read_ended,
	};
	r = state_run_start(&state->run, &op->text);
	if (r)
		return err_trace(r);
	state->op = op;
	state->is_busy = true;
	op_wait(op);
	return 0;
}

/**
 * zero_state_read() - a range of a unit's optimizer state into this rank's window
 * @op: unit, state
 *
 * The newest state: of the last step, or written since. During a step until its update begins.
 * -EINVAL kind, range; -EBUSY; -EOPNOTSUPP over nodes; -EBADMSG, -EIO of the store.
 * Context: shard thread.
 */
void zero_state_read(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZERO_OP_STATE_READ)) {
		int r = read_check(rank, op);

		if (!r)
			r = read_start(rank, op);
		if (r)
			op_complete(op, r);
	}
	zero_drain(zero);
}
