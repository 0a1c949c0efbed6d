/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizer state that all ranks write together, the number of updates, and what follows written
 * parameters; see state.h. Floor 5, shard thread.
 */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/state/state.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/power.h"

/* ---- state ---- */

/* Of both calls of all ranks. */
static int change_moment_check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	int r;

	if (job->across)
		return zi_text_error(&op->text, -EOPNOTSUPP,
		                     "the optimizer state of a job over several nodes cannot be "
		                     "written");
	r = change_check(job->zero, &op->text);
	if (!r)
		r = state_check_idle(rank, &op->text);
	if (r)
		return err_trace(r);
	if (gather_is_full(job, ZERO_GATHER_COMMIT))
		return zi_text_error(&op->text, -EBUSY, "a commit is under way");
	if (gather_is_full(job, ZERO_GATHER_WRITE_END) || job->pipeline.kind != ZERO_PIPELINE_NONE)
		return zi_text_error(&op->text, -EBUSY,
		                     "all ranks have called param_write_end: it ends first");
	return err_trace(ahead_check_none(job, &op->text));
}

/* Two ranks' calls are one. */
static bool is_same(const struct zero_op *op, const struct zero_op *model)
{
	const struct zero_state_range *one = &op->state, *other = &model->state;

	if (op->opcode != model->opcode)
		return false;
	if (op->opcode == ZERO_OP_STATE_COUNT)
		return one->update_count == other->update_count &&
		       one->betas[0] == other->betas[0] && one->betas[1] == other->betas[1];
	return op->unit == model->unit && op->root == model->root && one->kind == other->kind &&
	       one->first == other->first && one->count == other->count;
}

static void say_call(const struct zero_op *op, struct zi_text *text)
{
	const struct zero_state_range *range = &op->state;

	if (op->opcode == ZERO_OP_STATE_COUNT)
		zi_text_append(text, "%llu updates with betas %.17g and %.17g",
		               (unsigned long long)range->update_count, range->betas[0],
		               range->betas[1]);
	else
		zi_text_append(text, "kind %u of unit %u from root %u, %llu elements from %llu on",
		               range->kind, op->unit, op->root, (unsigned long long)range->count,
		               (unsigned long long)range->first);
}

static int compare(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;

	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *other = job->group.ranks[i];
		const struct zero_op *model = other ? other->gathered[ZERO_GATHER_STATE] : NULL;

		if (!model || other == rank || is_same(op, model))
			continue;
		zi_text_set(&op->text, "rank %u writes ", rank->number);
		say_call(op, &op->text);
		zi_text_append(&op->text, ", but rank %u ", i);
		say_call(model, &op->text);
		return err_origin(-EINVAL);
	}
	return 0;
}

static int write_check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	int r = change_moment_check(rank, op);

	if (!r)
		r = state_check_range(job, op);
	if (r)
		return err_trace(r);
	if (op->root >= job->group.world_size)
		return zi_text_error(&op->text, -EINVAL, "root is %u of %u ranks", op->root,
		                     job->group.world_size);
	if (op->root == rank->number)
		r = state_check_window(rank, op);
	return r ? err_trace(r) : err_trace(compare(rank, op));
}

/* The group that asked is still there. */
static bool is_put_wanted(const struct zero_job *job)
{
	return job->group.phase == ZERO_GROUP_LIVE &&
	       job->group.generation == job->state_put.run.generation;
}

/* What was changed in memory, or written over, cannot be had back: a failure ends the group, and
 * the committed state counts. */
static void put_ended(struct state_run *run)
{
	struct zero_job *job = run->job;
	struct zi_text text = run->text;

	job->units[run->unit].is_copying = false;
	job->state_put.is_on = false;
	if (!is_put_wanted(job))
		return;
	if (run->error) {
		group_break(job, run->error, UINT32_MAX, &text);
		return;
	}
	gather_complete(job, ZERO_GATHER_STATE, 0, NULL);
	ops_retry(job);
}

/* Return: 0, @run ends in its `done`; or why nothing has begun. */
static int put_start(struct zero_job *job, const struct state_run *run, struct zi_text *text)
{
	int r;

	assert(!job->state_put.is_on);
	job->state_put.run = *run;
	r = state_run_start(&job->state_put.run, text);
	if (r)
		return err_trace(r);
	job->state_put.is_on = true;
	job->units[run->unit].is_copying = true;
	return 0;
}

/* Every rank has come. */
static void write_go(struct zero_job *job, const struct zero_op *op)
{
	struct zero_state *state = job->group.ranks[op->root]->state;
	struct zi_text text = { "" };
	int r = put_start(job,
	                  &(struct state_run){
				  .job = job,
				  .action = STATE_PUT,
				  .unit = op->unit,
				  .kind = (enum zi_state_kind)op->state.kind,
				  .first = op->state.first,
				  .count = op->state.count,
				  .window = tier_segment_ref(state->window),
				  .done = put_ended,
			  },
	                  &text);

	if (r)
		gather_complete(job, ZERO_GATHER_STATE, r, &text);
}

/**
 * zero_state_write() - a range of the root's window becomes optimizer state of a unit
 * @op: unit, root, state; collective; the next commit makes it durable
 *
 * -EINVAL kind, range, or ranks differ; -EBUSY; -EOPNOTSUPP over nodes; -ENOSPC, -EDQUOT with
 * figures, and nothing of the range has changed. Other failures end the group.
 * Context: shard thread.
 */
void zero_state_write(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;

	if (op_begin(rank, op, ZERO_OP_STATE_WRITE)) {
		int r = write_check(rank, op);

		if (r)
			op_complete(op, r);
		else if (gather_join(op, ZERO_GATHER_STATE) && !group_needs_all(job))
			write_go(job, op);
		else
			(void)group_needs_all(job);
	}
	zero_drain(zero);
}

/* ---- the number of updates ---- */

static int count_check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_state_range *range = &op->state;
	int r = change_moment_check(rank, op);

	if (r)
		return err_trace(r);
	if (range->update_count > ZI_UPDATE_COUNT_MAX)
		return zi_text_error(&op->text, -EINVAL, "%llu updates, at most %llu",
		                     (unsigned long long)range->update_count,
		                     (unsigned long long)ZI_UPDATE_COUNT_MAX);
	for (uint32_t i = 0; i < ZI_COUNT_OF(range->betas); i++)
		if (!(range->betas[i] >= 0) || !(range->betas[i] < 1))
			return zi_text_error(&op->text, -EINVAL, "beta%u is %g, from 0 to below 1",
			                     i + 1, range->betas[i]);
	return err_trace(compare(rank, op));
}

static void count_go(struct zero_job *job, const struct zero_op *op)
{
	struct zero_power power = { 0 };

	job->update_count = op->state.update_count;
	job->beta1_power = power_of(&power, op->state.betas[0], job->update_count);
	power = (struct zero_power){ 0 };
	job->beta2_power = power_of(&power, op->state.betas[1], job->update_count);
	job->state_put.is_count_written = true;
	gather_complete(job, ZERO_GATHER_STATE, 0, NULL);
	ops_retry(job);
}

/**
 * zero_state_count() - the number of updates that the optimizer state has seen
 * @op: state.update_count, state.betas; collective; the next commit makes it durable
 *
 * -EINVAL out of range, or ranks differ; -EBUSY; -EOPNOTSUPP over nodes. Context: shard thread.
 */
void zero_state_count(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;

	if (op_begin(rank, op, ZERO_OP_STATE_COUNT)) {
		int r = count_check(rank, op);

		if (r)
			op_complete(op, r);
		else if (gather_join(op, ZERO_GATHER_STATE) && !group_needs_all(job))
			count_go(job, op);
		else
			(void)group_needs_all(job);
	}
	zero_drain(zero);
}

/* ---- what follows a write of parameters ---- */

static void follow_ended(struct state_run *run)
{
	struct zero_job *job = run->job;
	struct zi_text text = run->text;

	job->units[run->unit].is_copying = false;
	job->state_put.is_on = false;
	if (is_put_wanted(job))
		job->state_put.followed(job, run->error, &text);
}

int state_follow(struct zero_job *job, uint32_t unit,
                 void (*followed)(struct zero_job *job, int error, const struct zi_text *text),
                 struct zi_text *text)
{
	int r;

	assert(!job->across);
	if (!state_has_kind(job, ZI_STATE_REMAINDER))
		return 0;
	job->state_put.followed = followed;
	r = put_start(job,
	              &(struct state_run){ .job = job,
	                                   .action = STATE_FOLLOW,
	                                   .unit = unit,
	                                   .kind = ZI_STATE_REMAINDER,
	                                   .count = job->units[unit].padded_count,
	                                   .done = follow_ended },
	              text);
	return r ? err_trace(r) : STATE_E_STARTED;
}

/* ---- commit and its absence ---- */

void state_unload(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		state_void(&job->subgroups[i]);
	for (uint32_t i = 0; i < job->layout.unit_count && job->units; i++)
		job->units[i].is_state_written = false;
	if (!job->state_put.is_count_written)
		return;
	job->state_put.is_count_written = false;
	job->update_count = job->committed.update_count;
	job->beta1_power = job->committed.beta1_power;
	job->beta2_power = job->committed.beta2_power;
}

void state_committed(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		job->subgroups[i].is_state_next = false;
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		job->units[i].is_state_written = false;
	job->state_put.is_count_written = false;
}
