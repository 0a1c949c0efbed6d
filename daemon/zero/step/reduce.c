/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients: handed over unit by unit, and summed over the ranks before the update where clipping,
 * a norm, the finite check or the sharded schedule need the sum (docs/ARITHMETIC.md). Floor 5,
 * shard thread, but for reduce_run().
 *
 * The sum lands in the buffer of the first rank here that trains the unit, in place: each element
 * is read from every rank before it is written. So the other ranks have theirs back after it, and
 * that one after the update. With buckets it lands in a plane of its own, or goes to the store
 * (grad/spill.c), and all of them are free at once.
 */
#include "daemon/zero/step/reduce.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/sums/grads.h"
#include "daemon/zero/grad/grads.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/grad/spill_write.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/param/unit.h"
#include "daemon/zero/step/culprit.h"
#include "daemon/zero/step/discard.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/unused.h"
#include "kernels/cast.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"

/* Rounded at a time: a part of the first cache. */
#define ROUND_ELEMENTS 2048u

/* The norm of what was summed, and whose fault it is where there is none. */
static void look(struct zero_subgroup *subgroup, const void *summed, enum zi_dtype dtype,
                 float unscale, const struct culprit_sum *sum)
{
	struct zero_job *job = subgroup->job;

	kern_norm_blocks(&job->norm_blocks[subgroup->block_first], summed, subgroup->element_count,
	                 unscale, dtype);
	culprit_look(subgroup, sum);
}

/* See reduce.h. */
void reduce_round(const struct zero_job *job, float *values, uint64_t count)
{
	enum zi_dtype reduce = job_reduce_dtype(job);
	uint16_t narrow[ROUND_ELEMENTS];

	if (job->config.grad_dtype != ZI_DTYPE_F32 || reduce == ZI_DTYPE_F32)
		return;
	for (uint64_t i = 0; i < count; i += ROUND_ELEMENTS) {
		uint64_t part = ZI_MIN(count - i, (uint64_t)ROUND_ELEMENTS);

		kern_narrow(narrow, values + i, part, reduce);
		kern_widen(values + i, narrow, part, reduce);
	}
}

static void reduce_run(struct dev_task *task)
{
	struct zero_subgroup *subgroup = container_of(task, struct zero_subgroup, reduce_task);
	struct zero_job *job = subgroup->job;
	enum zi_dtype dtype = (enum zi_dtype)job->config.grad_dtype;
	enum zi_dtype sum_dtype = job_sum_dtype(job);
	struct kern_reduce_options options = {
		.dtype = sum_dtype,
		.average = set_of(job, subgroup->unit)->factor,
	};
	void *target = grad_sum_at(job, subgroup);
	const void *sources[ZI_WORLD_MAX];
	uint32_t source_count = grad_sources(job, subgroup, 0, sources);
	uint64_t count = subgroup->element_count;
	struct culprit_sum sum = {
		.sources = sources,
		.source_count = source_count,
		.sum = target,
		.sum_dtype = sum_dtype,
		.rounded_to = job_reduce_dtype(job),
	};

	if (subgroup->is_first_micro)
		subgroup->culprit = CULPRIT_NONE;
	for (uint32_t i = 0; i < source_count; i++) { /* Whatever its rank left there. */
		stretches_clear(job, subgroup->unit, subgroup_element(subgroup), count,
		                (void *)sources[i], zi_dtype_bytes(dtype));
		reduce_round(job, (void *)sources[i], count);
	}
	if (job->accum) {
		float *accum =
			(float *)(void *)((char *)job->accum->region.base + subgroup->accum_offset);

		kern_reduce_accumulate(accum, sources, source_count, count,
		                       subgroup->is_first_micro, dtype);
		sum.sum = accum;
		sum.sum_dtype = sum.rounded_to = ZI_DTYPE_F32;
		if (!subgroup->is_last_micro) {
			/* Its gradients are gone when the norm is known. */
			if (job->step.is_norm_wanted)
				look(subgroup, accum, ZI_DTYPE_F32, 1.0f, &sum);
			return;
		}
		kern_reduce_finish(target, accum, count, &options);
	} else {
		kern_reduce(target, sources, source_count, count, &options);
	}
	reduce_round(job, target, count);
	sum.lost = target;
	if (subgroup->spill_slot)
		spill_hash(subgroup, target);
	if (job->step.is_norm_wanted)
		look(subgroup, target, sum_dtype, job->step.hyper.unscale, &sum);
}

/* See reduce.h. */
void reduce_unit_over(struct zero_job *job, uint32_t index)
{
	struct zero_unit *unit = &job->units[index];

	unit->micro_done++;
	if (unit->micro_done < job->step.options.micro_batches) {
		unit->handed_mask = 0;
		grad_release(job, index, UINT64_MAX);
	} else if (grad_sums_are_apart(job)) {
		grad_release(job, index, UINT64_MAX);
	} else {
		grad_release(job, index, ~(1ull << grad_sum_rank(job, index)));
	}
	ops_retry(job);
	step_unit_advance(job, index);
	step_advance(job);
}

/* See reduce.h. */
void reduce_end(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;
	struct zero_unit *unit = &job->units[subgroup->unit];

	assert(unit->reduce_count > 0);
	assert(job->step.reduce_count > 0);
	unit->reduce_count--;
	job->step.reduce_count--;
	if (job->step.phase != ZERO_STEP_STEPPING)
		job_settle(job); /* The step was aborted. */
	else if (job->step.is_discarding)
		discard_advance(job);
	else if (!unit->reduce_count)
		reduce_unit_over(job, subgroup->unit);
}

/* What was in a slot. */
static void spilled(struct zero_subgroup *subgroup)
{
	spill_give(subgroup);
	reduce_end(subgroup);
}

static void reduce_done(struct dev_task *task)
{
	struct zero_subgroup *subgroup = container_of(task, struct zero_subgroup, reduce_task);
	struct zero_job *job = subgroup->job;
	struct zero *zero = job->zero;
	bool is_lost = job->step.phase != ZERO_STEP_STEPPING || job->step.is_discarding ||
	               job->pipeline.error;

	job_unbusy(job);
	if (subgroup->spill_slot && !is_lost) {
		spill_write(subgroup, spilled);
	} else if (subgroup->spill_slot) {
		spilled(subgroup);
	} else {
		reduce_end(subgroup);
	}
	zero_drain(zero);
}

/* See reduce.h. */
void reduce_start(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;

	subgroup->reduce_task = (struct dev_task){
		.run = reduce_run,
		.done = reduce_done,
		.loop = job->zero->options.loop,
	};
	job_busy(job);
	dev_submit(job->device, &subgroup->reduce_task);
}

/* Every rank has handed this micro-batch's gradient over. Ends in step_advance(). */
void reduce_unit(struct zero_job *job, uint32_t index)
{
	struct zero_unit *unit = &job->units[index];

	assert(unit->reduce_count == 0);
	for (uint32_t i = 0; i < unit->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + i];

		subgroup->is_first_micro = unit->micro_done == 0;
		subgroup->is_last_micro = unit->micro_done + 1 == job->step.options.micro_batches;
		unit->reduce_count++;
		job->step.reduce_count++;
		if (!spill_is_due(subgroup) || spill_take(subgroup))
			reduce_start(subgroup);
	}
}

/* Whatever the rank left there: padding counts as +0. */
static void clear_padding(const struct zero_rank *rank, uint32_t index)
{
	const struct zero_job *job = rank->job;
	const struct zero_unit *unit = &job->units[index];
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);

	memset(grad_at(job, rank->number, index, unit->element_count * width), 0,
	       (unit->padded_count - unit->element_count) * width);
}

static int reduce_check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	const struct zero_unit *unit = &job->units[op->unit];
	const char *name = job->layout.units[op->unit].name;
	uint64_t bit = 1ull << rank->number;

	if (!set_trains(job, op->unit, rank->number))
		return unit_refuse_foreign(op);
	if (job->step.phase != ZERO_STEP_STEPPING || !(job->step.begun_mask & bit))
		return zi_text_error(&op->text, -EINVAL,
		                     "a gradient of unit '%s' before step_begin", name);
	if (job->group.gather_masks[ZERO_GATHER_DISCARD] & bit)
		return zi_text_error(&op->text, -EINVAL,
		                     "a gradient of unit '%s' after step_discard", name);
	if (job->group.gather_masks[ZERO_GATHER_STEP] & bit)
		return zi_text_error(&op->text, -EINVAL, "a gradient of unit '%s' after step",
		                     name);
	if (unit->micro_done == job->step.options.micro_batches)
		return zi_text_error(&op->text, -EALREADY,
		                     "all %u gradients of unit '%s' were handed over in this step",
		                     job->step.options.micro_batches, name);
	if (unit->handed_mask & bit)
		return zi_text_error(&op->text, -EALREADY,
		                     "the gradient of unit '%s' was handed over before%s", name,
		                     job->step.options.micro_batches > 1
		                             ? ", and its buffer was not acquired since"
		                             : "");
	if (job->grad_pool && !grad_pool_has(job, rank->number, op->unit))
		return zi_text_error(&op->text, -EINVAL,
		                     "the gradient of unit '%s' was not acquired", name);
	return 0;
}

/* By every rank here, in all micro-batches. */
static bool is_complete(const struct zero_job *job, uint32_t index)
{
	const struct zero_unit *unit = &job->units[index];

	return unit->handed_mask == set_mask_here(job, index) &&
	       unit->micro_done + 1 == job->step.options.micro_batches;
}

/**
 * zero_reduce() - a rank hands its gradient of a unit over
 * @op: unit; completes at once
 *
 * The buffer is the daemon's until zero_grad_acquire() completes. Context: shard thread.
 */
void zero_reduce(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	struct zero_unit *unit;
	int r;

	if (!op_begin(rank, op, ZI_OP_REDUCE)) {
		zero_drain(zero);
		return;
	}
	r = reduce_check(rank, op);
	if (r) {
		unused_forget(rank, op->unit);
	} else {
		unit = &job->units[op->unit];
		clear_padding(rank, op->unit);
		unit->handed_mask |= 1ull << rank->number;
		unit->held_mask |= 1ull << rank->number;
		unused_hand_over(rank, op->unit);
		if (!job->across && is_complete(job, op->unit))
			unused_settle(job, op->unit);
		if (unit->handed_mask == set_mask_here(job, op->unit) && job->step.is_pass1) {
			if (grads_span(job, op->unit))
				grads_hand_over(job, op->unit);
			else
				reduce_unit(job, op->unit);
		}
	}
	op_complete(op, r);
	if (!r)
		step_unit_advance(job, op->unit);
	zero_drain(zero);
}
