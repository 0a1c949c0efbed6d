/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's copy of a unit, charged, to write into between steps; all ranks together make it the
 * unit's parameters (write_end.c). Floor 5, shard thread, but for begin_run().
 *
 * A rank that has received a copy pays for it until it leaves. So there is one per rank, as large
 * as the largest unit, and unit after unit is written into the same one.
 */
#include "daemon/zero/param/write.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "daemon/tier/holder.h"
#include "daemon/zero/job/advice.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/fetch.h"
#include "daemon/zero/param/quiet.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/step.h"

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
void write_drop(struct zero_rank *rank)
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
void write_over(struct zero_rank *rank)
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
		memcpy(write->segment->region.base, job_unit_param(job, write->unit),
		       job_param_bytes(job, job->units[write->unit].padded_count));
}

/* The copy is filled, or cannot be. */
static void begin_end(struct zero_write *write)
{
	struct zero_rank *rank = write->rank;

	write->is_busy = false;
	if (!rank) {
		(void)write_free(write);
	} else {
		struct zero_op *op = write->op;

		if (!write->error)
			write->error = tier_holder_add(rank->holder, write->segment);
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
	quiet_look(job);
}

/* With a pool the present values come from where they are, past the pool. */
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
		quiet_look(job);
	}
	job_settle(job);
	zero_drain(zero);
}

/* The copy that this rank had before, or a new one. */
static int take_segment(struct zero_rank *rank, struct zi_text *text,
                        struct tier_segment **ret_segment)
{
	struct zero_job *job = rank->job;
	uint64_t padded_count = 0;
	int r;

	if (rank->spare) {
		*ret_segment = zi_steal(rank->spare);
		return 0;
	}
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		padded_count = ZI_MAX(padded_count, job->units[i].padded_count);
	r = tier_segment_charge(job->cpu_tier, &job->account->account, "zinf-write",
	                        zi_align_up(job_param_bytes(job, padded_count), job->slot_bytes),
	                        job->slot_bytes == ZI_HUGE_PAGE_BYTES ? TIER_PAGES_COLLAPSED
	                                                              : TIER_PAGES_SMALL,
	                        text, ret_segment);
	/* Once for each group: it looks at each unit several times, and this may be asked often. */
	if (r && job->advised_generation != job->group.generation) {
		job->advised_generation = job->group.generation;
		advice_append(job, text);
	}
	return err_trace(r);
}

static int begin(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero_write *write;
	int r;

	if (job->step.phase != ZERO_STEP_NONE)
		return zi_text_error(&op->text, -EBUSY, "a step is under way");
	if (gather_is_asked(job, ZERO_GATHER_COMMIT))
		return zi_text_error(&op->text, -EBUSY, "a commit is under way");
	if (quiet_is_on(job))
		return zi_text_error(&op->text, -EBUSY,
		                     "all ranks have called param_write_end: it ends first");
	r = ahead_check_none(job, &op->text);
	if (r)
		return err_trace(r);
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
