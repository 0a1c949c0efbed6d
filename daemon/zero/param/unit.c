/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units in the hands of ranks: parameters that are pinned. Floor 5, shard thread. What an unshard
 * waits for is the update; with parameters on NVMe then also for the unit to come into the pool
 * (residency.c).
 */
#include "daemon/zero/param/unit.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/agree/agree.h"
#include "daemon/zero/grad/pool.h"
#include "daemon/zero/grad/stall.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/part.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/step/discard.h"
#include "daemon/zero/step/step.h"

/* @op would unshard a unit whose update may have begun. The rank broke its promise, unless it waits
 * for the parameters of a step whose zinf_step() has failed. */
static void refuse_early(struct zero_op *op)
{
	const struct zero_job *job = op->rank->job;
	const struct zero_step *step = &job->step;
	const char *name = job->layout.units[op->unit].name;

	if (step->failed_mask >> op->rank->number & 1)
		op_fail(op, step->failed_error, "unit '%s' cannot be unsharded: %s", name,
		        step->failed_text.chars);
	else
		op_fail(op, -EBUSY,
		        "unit '%s' may be updated already: with update_early a rank does not "
		        "unshard a unit again before zinf_step() once its last gradient was "
		        "handed over, or where it is not in the unit's data-parallel group",
		        name);
}

/* Completes @op when its unit is at the step this rank wants; else leaves it waiting. */
void unit_try_unshard(struct zero_op *op)
{
	struct zero_rank *rank = op->rank;
	struct zero_job *job = rank->job;
	const struct zero_unit *unit = &job->units[op->unit];
	bool has_stepped = job->group.gather_masks[ZERO_GATHER_STEP] >> rank->number & 1;
	bool has_begun = job->step.begun_mask >> rank->number & 1;

	/* It has promised not to come back before its step(). Nothing is updated before it has. */
	if (job->step.phase == ZERO_STEP_STEPPING && has_begun && !has_stepped &&
	    !rank->pin_counts[op->unit] && job->step.options.flags & ZI_STEP_UPDATE_EARLY &&
	    !unit->is_frozen && step_unit_is_handed(rank, op->unit)) {
		refuse_early(op);
		return;
	}
	/* After its step() a rank wants the parameters of the next one. */
	if (unit->is_copying || (job->step.phase == ZERO_STEP_STEPPING && has_stepped))
		return;
	if (unit->update_count && !part_is_updated(job, op)) {
		job->units[op->unit].has_part_waiting |= op->part_run > 0 && !job->across;
		part_prefer(job, op);
		return;
	}
	if (rank->pin_counts[op->unit] == UINT32_MAX) {
		op_fail(op, -EOVERFLOW, "unit '%s' is unsharded too often",
		        job->layout.units[op->unit].name);
		return;
	}
	if (job->residency) {
		int r = residency_demand(op);

		/* Ranks that discard the step hold the room. A rank that has not begun the step
		 * cannot discard it, and waits. */
		if (r && discard_is_wanted(job) && job->step.begun_mask >> rank->number & 1 &&
		    residence_of(job, op->unit)->presence != ZERO_LOADING)
			r = discard_refuse(op);
		if (r == RESIDENCY_E_WAIT)
			return;
		if (r) {
			op_complete(op, r);
			return;
		}
		residency_take(op);
	}
	rank->pin_counts[op->unit]++;
	job->units[op->unit].is_part_used |= op->part_run > 0;
	job->units[op->unit].users_mask |= 1ull << rank->number;
	op_complete(op, 0);
}

/* @rank, a member, leaves: what it had unsharded it uses no more. */
void unit_forget(const struct zero_rank *rank)
{
	struct zero_job *job = rank->job;

	for (uint32_t i = 0; rank->pin_counts && i < job->layout.unit_count; i++)
		job->units[i].users_mask &= ~(1ull << rank->number);
}

/* A subgroup of the unit was updated: those that wait for a part of it may go on. */
static void retry_parts(struct zero_job *job, uint32_t index)
{
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		if (!job->group.ranks[i])
			continue;
		zi_list_for_each_safe(link, &job->group.ranks[i]->ops) {
			struct zero_op *op = container_of(link, struct zero_op, link);

			if (op->opcode == ZI_OP_UNSHARD && op->unit == index && op->part_run)
				unit_try_unshard(op);
		}
	}
}

/* See unit.h. */
void unit_updated(struct zero_job *job, uint32_t index)
{
	struct zero_unit *unit = &job->units[index];

	assert(unit->update_count > 0);
	if (--unit->update_count) {
		if (!unit->has_part_waiting)
			return;
		unit->has_part_waiting = false; /* An operation that still waits sets it again. */
		retry_parts(job, index);
		return;
	}
	/* Parameters are there, and gradients are no longer needed. */
	grad_release(job, index, UINT64_MAX);
	/* In the store, or in the slots of those who write them: item_lend.h. */
	unit->is_param_next = job_stores_param(job) && !job->across;
	if (job->residency)
		residency_changed(job);
	else
		ops_retry(job);
}

/* A gradient of a unit that the rank does not train: there is no memory for it. Return: -EPERM. */
int unit_refuse_foreign(struct zero_op *op)
{
	const struct zero_job *job = op->rank->job;

	if (job->units[op->unit].is_frozen)
		return zi_text_error(
			&op->text, -EPERM,
			"all parameters of unit '%.60s' are frozen: it has no gradient",
			job->layout.units[op->unit].name);
	return zi_text_error(&op->text, -EPERM,
	                     "unit '%.60s' belongs to data-parallel group '%.60s' (ranks %s): "
	                     "rank %u has no gradient there",
	                     job->layout.units[op->unit].name, set_name(job, op->unit),
	                     set_format(set_of(job, op->unit)->members).chars, op->rank->number);
}

static void unshard(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZI_OP_UNSHARD)) {
		op_wait(op);
		unit_try_unshard(op);
		if (rank->job->residency)
			residency_pump(rank->job);
		if (op->has_waited)
			stall_look(rank->job); /* It stands still now. */
	}
	zero_drain(zero);
}

/**
 * zero_unshard() - wait until the unit is at the current step, and pin it
 * @op: unit; completes when it is
 *
 * -EBUSY its last gradient was handed over, and the step promised update_early. Context: shard
 * thread.
 */
void zero_unshard(struct zero_rank *rank, struct zero_op *op)
{
	op->part_run = 0;
	unshard(rank, op);
}

static bool waits_for_part(const struct zero_rank *rank, uint32_t unit)
{
	zi_list_for_each(link, &rank->ops) {
		const struct zero_op *op = container_of(link, struct zero_op, link);

		if (op->opcode == ZI_OP_UNSHARD && op->unit == unit && op->part_run)
			return true;
	}
	return false;
}

/**
 * zero_unshard_part() - the same, as soon as the part that the rank reads is at the current step
 * @op: unit, part_run, part
 *
 * -EINVAL part_run is 0; -EALREADY the rank waits for a part of the unit: a retry looks at one
 * operation of each rank.
 */
void zero_unshard_part(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op->part_run && !waits_for_part(rank, op->unit)) {
		unshard(rank, op);
		return;
	}
	if (op_begin(rank, op, ZI_OP_UNSHARD)) {
		if (op->part_run)
			op_fail(op, -EALREADY, "a part of unit '%.60s' is waited for already",
			        rank->job->layout.units[op->unit].name);
		else
			op_fail(op, -EINVAL, "unshard_part of runs of 0 subgroups");
	}
	zero_drain(zero);
}

/**
 * zero_reshard() - one use of the unit is over
 * @op: unit; -EINVAL when it was not unsharded
 */
void zero_reshard(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;

	if (op_begin(rank, op, ZI_OP_RESHARD)) {
		if (rank->pin_counts[op->unit]) {
			bool is_last = --rank->pin_counts[op->unit] == 0;

			if (is_last)
				job->units[op->unit].users_mask &= ~(1ull << rank->number);
			op_complete(op, 0);
			if (is_last && job->residency)
				residency_release(rank, op->unit);
			/* Before its place in the pool is given away: the update may need it. */
			step_unit_advance(job, op->unit);
			if (is_last && job->residency)
				residency_changed(job);
		} else {
			op_fail(op, -EINVAL, "unit '%s' was not unsharded",
			        rank->job->layout.units[op->unit].name);
		}
	}
	zero_drain(zero);
}

/**
 * zero_prefetch() - a hint
 * @op: unit; completes at once: parameters are in memory already, or, on NVMe, on their way
 */
void zero_prefetch(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZI_OP_PREFETCH)) {
		if (rank->job->residency)
			residency_hint(rank->job, op->unit);
		op_complete(op, 0);
	}
	zero_drain(zero);
}

static void barrier_passed(struct zero_job *job)
{
	gather_complete(job, ZERO_GATHER_BARRIER, 0, NULL);
}

/**
 * zero_barrier() - completes when every rank has come
 */
void zero_barrier(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;

	if (op_begin(rank, op, ZI_OP_BARRIER)) {
		bool is_full = gather_join(op, ZERO_GATHER_BARRIER);

		if (group_needs_all(job) || !is_full)
			; /* It waits, or has heard why it need not. */
		else if (agree_is_held(job))
			agree_hold(job, ZERO_GATHER_BARRIER, barrier_passed);
		else
			agree_all(job, ZERO_GATHER_BARRIER, NULL, barrier_passed);
	}
	zero_drain(zero);
}
