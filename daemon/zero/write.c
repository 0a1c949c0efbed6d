/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters written by a rank: a charged copy of one unit to write into, handed over by all ranks
 * together, between steps. Floor 5, shard thread, but for the functions called ..._run().
 *
 * A process that has received a copy pays for it while it lives. So there is one per rank, as large
 * as the largest unit, and unit after unit is written into the same one.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "daemon/zero/internal.h"

static void *unit_param(const struct zero_job *job, uint32_t unit)
{
	return (char *)job->param->region.base + job->units[unit].param_offset;
}

static uint64_t unit_bytes(const struct zero_job *job, uint64_t element_count)
{
	return element_count * zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
}

/* Return: a rank that has a unit open for writing, or NULL. */
const struct zero_rank *write_pending(const struct zero_job *job)
{
	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (job->group.ranks[i] && job->group.ranks[i]->write)
			return job->group.ranks[i];
	return NULL;
}

static struct zero_write *write_free(struct zero_write *write)
{
	assert(!write->is_busy);
	assert(!write->op);
	write->segment = tier_segment_unref(write->segment);
	free(write);
	return NULL;
}

/* While the device fills it, it stays. */
static void write_drop(struct zero_rank *rank)
{
	struct zero_write *write = rank->write;

	if (!write)
		return;
	rank->write = NULL;
	write->rank = NULL;
	write->op = NULL;
	/* Nothing more of it is read, and what is being read is waited for. */
	if (write->is_loading && !fetch_drop(&write->load))
		write->job->residency->void_count++;
	else if (write->is_loading)
		write->is_busy = false;
	if (!write->is_busy)
		(void)write_free(write);
}

/* The rank leaves. */
void write_forget(struct zero_rank *rank)
{
	write_drop(rank);
	rank->spare = tier_segment_unref(rank->spare);
}

/* The unit is written; the copy serves the next one. */
static void write_over(struct zero_rank *rank)
{
	assert(!rank->spare);
	rank->spare = tier_segment_ref(rank->write->segment);
	write_drop(rank);
}

static void begin_run(struct dev_task *task)
{
	struct zero_write *write = container_of(task, struct zero_write, task);
	const struct zero_job *job = write->job;

	if (write->segment->region.fd < 0)
		write->error = tier_segment_build(write->segment, &write->text);
	if (!write->error && !job->residency)
		memcpy(write->segment->region.base, unit_param(job, write->unit),
		       unit_bytes(job, job->units[write->unit].padded_count));
}

/* The copy is filled, or cannot be. */
static void begin_end(struct zero_write *write)
{
	struct zero_rank *rank = write->rank;
	struct zero *zero = write->job->zero;

	write->is_busy = false;
	if (!rank) {
		(void)write_free(write);
	} else {
		struct zero_op *op = write->op;

		if (!write->error)
			write->error = tier_holders_add(zero->options.holders, rank->pid,
			                                rank->pidfd, write->segment);
		if (op && write->error)
			op->text = write->text;
		if (op)
			op_complete(op, write->error);
		/* Nobody waits any more (it timed out), or there is nothing to hand out. */
		if (!op || write->error)
			write_drop(rank);
	}
}

static void begin_loaded(struct zero_load *load)
{
	struct zero_write *write = container_of(load, struct zero_write, load);
	struct zero_job *job = write->job;
	bool is_void = !write->rank;

	write->is_loading = false;
	write->error = load->error;
	write->text = load->text;
	begin_end(write);
	if (is_void)
		residency_void_came(job);
}

/* With a pool the present values come from the store, past the pool. */
static void begin_done(struct dev_task *task)
{
	struct zero_write *write = container_of(task, struct zero_write, task);
	struct zero_job *job = write->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	if (job->residency && write->rank && !write->error) {
		write->load = (struct zero_load){ .job = job,
			                          .unit = write->unit,
			                          .target = write->segment->region.base,
			                          .done = begin_loaded };
		write->is_loading = true;
		zi_list_init(&write->load.link);
		fetch_load(&write->load, true);
	} else {
		begin_end(write);
	}
	job_settle(job);
	zero_drain(zero);
}

/* The copy that this rank had before, or a new one. */
static int take_segment(struct zero_rank *rank, struct zi_text *text,
                        struct tier_segment **ret_segment)
{
	const struct zero_job *job = rank->job;
	uint64_t padded_count = 0;

	if (rank->spare) {
		*ret_segment = zi_steal(rank->spare);
		return 0;
	}
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		padded_count = ZI_MAX(padded_count, job->units[i].padded_count);
	return err_trace(tier_segment_charge(
		job->cpu_tier, &job->account->account, "zinf-write",
		zi_align_up(unit_bytes(job, padded_count), job->slot_bytes),
		job->slot_bytes == ZI_HUGE_PAGE_BYTES ? TIER_PAGES_COLLAPSED : TIER_PAGES_SMALL,
		text, ret_segment));
}

static int begin(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero_write *write;
	int r;

	if (job->step.phase != ZERO_STEP_NONE)
		return zi_text_error(&op->text, -EBUSY, "a step is under way");
	if (job_is_ahead(job))
		return zi_text_error(&op->text, -EBUSY,
		                     "steps %lld to %lld are not committed (commit_interval %u): "
		                     "zinf_commit() comes first",
		                     (long long)job->committed_step + 1,
		                     (long long)job->current_step, job_interval(job));
	if (rank->write)
		return zi_text_error(&op->text, -EBUSY, "unit '%s' is open for writing already",
		                     job->layout.units[rank->write->unit].name);
	if (job->units[op->unit].is_copying)
		return zi_text_error(&op->text, -EBUSY, "unit '%s' is being written",
		                     job->layout.units[op->unit].name);
	write = calloc(1, sizeof(*write));
	if (!write)
		return err_origin(-ENOMEM);
	r = take_segment(rank, &op->text, &write->segment);
	if (r) {
		free(write);
		return err_trace(r);
	}
	write->job = job;
	write->rank = rank;
	write->op = op;
	write->unit = op->unit;
	write->is_busy = true;
	write->task = (struct dev_task){ .run = begin_run,
		                         .done = begin_done,
		                         .loop = job->zero->options.loop };
	rank->write = write;
	op_wait(op);
	job_busy(job);
	dev_submit(job->device, &write->task);
	return 0;
}

/**
 * zero_param_write_begin() - a writable copy of a unit for this rank
 * @op: unit; completes when it holds the present values
 *
 * -EBUSY a step is under way, or this rank writes another unit; -ENOSPC, -EDQUOT with figures.
 * Context: shard thread.
 */
void zero_param_write_begin(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZERO_OP_WRITE_BEGIN)) {
		int r = begin(rank, op);

		if (r)
			op_complete(op, r);
	}
	zero_drain(zero);
}

/* The copy, once its op has completed; NULL: none. */
struct tier_segment *zero_param_staging(struct zero_rank *rank)
{
	return rank->write && !rank->write->is_busy ? rank->write->segment : NULL;
}

/* ---- write_end ---- */

/* The unit's optimizer state begins anew: remainder and moments zero. */
static void end_run(struct dev_task *task)
{
	struct zero_job *job = container_of(task, struct zero_job, write_task);
	const struct zero_unit *unit = &job->units[job->write_unit];
	uint64_t bytes = unit_bytes(job, unit->element_count);
	char *param = unit_param(job, job->write_unit);

	memcpy(param, job->write_source->region.base, bytes);
	memset(param + bytes, 0, unit_bytes(job, unit->padded_count) - bytes);
	for (uint32_t i = 0; i < unit->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + i];

		if (subgroup->memory)
			memset(subgroup->memory, 0, job_subgroup_state_bytes(job, subgroup));
	}
}

/* A copy of the replaced unit that is still being filled (its rank did not wait for it) is the
 * device's, and serves nobody. */
static void writes_drop_busy(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		struct zero_rank *rank = job->group.ranks[i];

		if (!rank || !rank->write || rank->write->unit != job->write_unit ||
		    !rank->write->is_busy)
			continue;
		if (rank->write->op)
			op_fail(rank->write->op, -EBUSY,
			        "unit '%s' was written meanwhile: begin again",
			        job->layout.units[job->write_unit].name);
		write_drop(rank);
	}
}

/* Copies of the unit that has just been replaced are of no use any more. */
static void writes_over(struct zero_job *job)
{
	writes_drop_busy(job);
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		struct zero_rank *rank = job->group.ranks[i];

		if (rank && rank->write && rank->write->unit == job->write_unit)
			write_over(rank);
	}
}

/* The group that called write_end is still there, and hears of it. */
static bool is_end_wanted(const struct zero_job *job)
{
	return job->group.phase == ZERO_GROUP_LIVE && job->group.generation == job->step.generation;
}

/* The unit is the root's copy now. */
static void end_take(struct zero_job *job)
{
	struct zero_unit *unit = &job->units[job->write_unit];

	unit->is_written = true;
	for (uint32_t i = 0; i < unit->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + i];

		warm_drop(subgroup);
		subgroup->is_reset = true;
	}
	writes_over(job);
	gather_complete(job, ZERO_GATHER_WRITE_END, 0, NULL);
	ops_retry(job);
}

static void end_done(struct dev_task *task)
{
	struct zero_job *job = container_of(task, struct zero_job, write_task);
	struct zero *zero = job->zero;

	job_unbusy(job);
	job->units[job->write_unit].is_copying = false;
	job->write_source = tier_segment_unref(job->write_source);
	if (is_end_wanted(job))
		end_take(job);
	job_settle(job);
	zero_drain(zero);
}

/* The STORE pipeline's end. What it wrote over (state in memory, what was written before) cannot be
 * had back: a failure ends the group, and the committed values count. */
void write_stored(struct zero_job *job, int error, const struct zi_text *text)
{
	struct zero_unit *unit = &job->units[job->write_unit];

	unit->is_copying = false;
	job->write_source = tier_segment_unref(job->write_source);
	if (!error && is_end_wanted(job)) {
		unit->is_param_next = true;
		end_take(job);
	} else {
		extents_release_next(job);
		if (is_end_wanted(job))
			group_break(job, error, UINT32_MAX, text);
	}
	job_settle(job);
}

/* With a pool the copy goes to the store at once: there may be no room for it until the commit. */
static void end_store(struct zero_job *job, uint32_t index)
{
	struct zero_unit *unit = &job->units[index];
	bool was_written = unit->is_written;
	struct zi_text text = { "" };
	int r;

	unit->is_written = false;
	r = extents_reserve_unit(job, index, &text);
	if (!r) {
		pipeline_start(job, ZERO_PIPELINE_STORE);
		return;
	}
	unit->is_copying = false;
	job->write_source = tier_segment_unref(job->write_source);
	if (was_written)
		group_break(job, r, UINT32_MAX, &text);
	else
		gather_complete(job, ZERO_GATHER_WRITE_END, r, &text);
}

/* What was read of the unit when param_write_end() came has come. */
void write_go_on(struct zero_job *job)
{
	if (is_end_wanted(job)) {
		end_store(job, job->write_unit);
		return;
	}
	job->units[job->write_unit].is_copying = false;
	job->write_source = tier_segment_unref(job->write_source);
}

/* A rank that still uses the unit sees the former values: with a pool they would go from under it.
 * Return: true when that ended the call. */
static bool is_in_use(struct zero_job *job, uint32_t unit)
{
	struct zi_text text;

	for (uint32_t i = 0; i < job->group.world_size && job->residency; i++) {
		const struct zero_rank *rank = job->group.ranks[i];

		if (!rank || !rank->pin_counts[unit])
			continue;
		zi_text_set(&text, "rank %u has unit '%.60s' unsharded: reshard it first", i,
		            job->layout.units[unit].name);
		gather_complete(job, ZERO_GATHER_WRITE_END, -EBUSY, &text);
		return true;
	}
	return false;
}

static void end_start(struct zero_job *job, uint32_t unit, uint32_t root)
{
	struct zero_write *write = job->group.ranks[root]->write;

	assert(!job->write_source);
	if (is_in_use(job, unit))
		return;
	job->write_unit = unit;
	job->write_source = tier_segment_ref(write->segment);
	job->units[unit].is_copying = true;
	job->step.generation = job->group.generation;
	if (job->residency) {
		/* They read what is about to be replaced. */
		writes_drop_busy(job);
		if (residency_void(job, unit))
			end_store(job, unit);
		return;
	}
	job->write_task = (struct dev_task){ .run = end_run,
		                             .done = end_done,
		                             .loop = job->zero->options.loop };
	job_busy(job);
	dev_submit(job->device, &job->write_task);
}

static int end_check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	const struct zero_write *write = rank->write;

	if (job->residency && job->zero->frozen)
		return err_trace(frozen_check(job->zero, &op->text));
	if (job->step.phase != ZERO_STEP_NONE)
		return zi_text_error(&op->text, -EBUSY, "a step is under way");
	if (op->root >= job->group.world_size)
		return zi_text_error(&op->text, -EINVAL, "root is %u of %u ranks", op->root,
		                     job->group.world_size);
	if (op->root == rank->number && (!write || write->unit != op->unit || write->is_busy))
		return zi_text_error(&op->text, -EINVAL, "root %u has not begun to write unit '%s'",
		                     op->root, job->layout.units[op->unit].name);
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *other = job->group.ranks[i];
		const struct zero_op *model = other ? other->gathered[ZERO_GATHER_WRITE_END] : NULL;

		if (!model || other == rank)
			continue;
		if (model->unit == op->unit && model->root == op->root)
			continue;
		return zi_text_error(&op->text, -EINVAL,
		                     "rank %u ends a write of unit %u from root %u, but rank %u of "
		                     "unit %u from root %u",
		                     rank->number, op->unit, op->root, i, model->unit, model->root);
	}
	return 0;
}

/**
 * zero_param_write_end() - the root's copy becomes the unit's parameters
 * @op: unit, root; collective; state of the unit is zero afterwards
 *
 * -EINVAL ranks differ, or the root has not begun. Context: shard thread.
 */
void zero_param_write_end(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;

	if (op_begin(rank, op, ZERO_OP_WRITE_END)) {
		int r = end_check(rank, op);
		bool is_full;

		if (r) {
			op_complete(op, r);
		} else {
			is_full = op_gather(op, ZERO_GATHER_WRITE_END);
			if (!group_needs_all(job) && is_full)
				end_start(job, op->unit, op->root);
		}
	}
	zero_drain(zero);
}
