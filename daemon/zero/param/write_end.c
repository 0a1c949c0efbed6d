/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's copy of a unit (write.c) becomes the unit's parameters: asked by all ranks together,
 * between steps. Floor 5, shard thread, but for end_run().
 *
 * Without a pool it is copied into place, and written by the next commit; so it is into a shard.
 * With parameters on NVMe it goes to the store at once, when nothing reads the former values any
 * more. Over nodes the others have their parts of it by write_far.h.
 */
#include "daemon/zero/param/write_end.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/across/bytes/written.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/quiet.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/param/write.h"
#include "daemon/zero/param/write_far.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/warm.h"

/* A subgroup of what the root has written; its padding is zero. A copy, as ranks may write to the
 * source yet. Device threads. */
void write_copy(const struct zero_job *job, const struct zero_subgroup *subgroup, void *target)
{
	uint64_t begin = job_subgroup_param_begin(job, subgroup);
	uint64_t end = job_param_bytes(job, job->units[subgroup->unit].element_count);
	uint64_t bytes = job_subgroup_param_bytes(job, subgroup);
	uint64_t given_bytes = end > begin ? ZI_MIN(bytes, end - begin) : 0;

	memcpy(target, (char *)job->write_source->region.base + begin, given_bytes);
	memset((char *)target + given_bytes, 0, bytes - given_bytes);
}

/* The unit's optimizer state begins anew, unless it is kept: remainder and moments zero. */
static void end_run(struct dev_task *task)
{
	struct zero_job *job = container_of(task, struct zero_job, write_task);
	const struct zero_unit *unit = &job->units[job->write_unit];

	for (uint32_t i = 0; i < unit->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + i];

		/* Else they have come from the root's node. All of a plane is here, whatever is
		 * divided; of a shard its own part. */
		if (job->write_source && (!job->residency || subgroup->is_here))
			write_copy(job, subgroup, job_subgroup_param(job, subgroup));
		if (subgroup->memory && !job->write_keeps)
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

/* All ranks hear that it is over; over nodes with pools when all of these have come so far. */
static void end_tell(struct zero_job *job, int error, const struct zi_text *text)
{
	if (job->across && job->residency)
		written_vote(job, error, text);
	else
		gather_complete(job, ZERO_GATHER_WRITE_END, error, text);
}

/* What a rank wrote of the state before counts no more, either. */
static void state_reset(struct zero_job *job, struct zero_unit *unit)
{
	for (uint32_t i = 0; i < unit->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + i];

		warm_drop(subgroup);
		state_void(subgroup);
		subgroup->is_reset = true;
	}
	unit->is_state_written = false;
}

/* With state that is kept: the master has followed the parameters, or cannot. */
static void end_followed(struct zero_job *job, int error, const struct zi_text *text)
{
	if (error) {
		group_break(job, error, UINT32_MAX, text);
		return;
	}
	end_tell(job, 0, NULL);
	ops_retry(job);
}

/* Return: true when the rest comes in end_followed(), or the group has broken. */
static bool state_goes_on(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r;

	if (!job->write_keeps)
		return false;
	r = state_follow(job, job->write_unit, end_followed, &text);
	if (r < 0)
		group_break(job, r, UINT32_MAX, &text); /* The parameters are new already. */
	return r != 0;
}

/* The unit is the root's copy now. */
static void end_take(struct zero_job *job)
{
	struct zero_unit *unit = &job->units[job->write_unit];

	unit->is_written = true;
	if (!job->write_keeps)
		state_reset(job, unit);
	writes_over(job);
	if (state_goes_on(job))
		return;
	if (job->across) {
		params_written(job, job->write_unit);
		if (!job->residency)
			written_serve(job);
	}
	end_tell(job, 0, NULL);
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
		end_tell(job, r, &text);
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
 * Return: that rank, with @text; UINT32_MAX. */
static uint32_t say_user(const struct zero_job *job, uint32_t unit, struct zi_text *text)
{
	uint32_t user;

	if (!job->residency || !job->units[unit].users_mask)
		return UINT32_MAX;
	user = (uint32_t)__builtin_ctzll(job->units[unit].users_mask);
	zi_text_set(text, "rank %u has unit '%.60s' unsharded: reshard it first", user,
	            job->layout.units[unit].name);
	return user;
}

/* Return: true when that ended the call. Over nodes the others have no word of it but the group's.
 */
static bool is_in_use(struct zero_job *job, uint32_t unit)
{
	struct zi_text text;
	uint32_t user = say_user(job, unit, &text);

	if (user == UINT32_MAX)
		return false;
	if (job->across)
		group_break(job, -EBUSY, user, &text);
	else
		gather_complete(job, ZERO_GATHER_WRITE_END, -EBUSY, &text);
	return true;
}

static void end_run_start(struct zero_job *job)
{
	job->write_task = (struct dev_task){ .run = end_run,
		                             .done = end_done,
		                             .loop = job->zero->options.loop };
	job_busy(job);
	dev_submit(job->device, &job->write_task);
}

/* The unit has come from the root's node, or the group has broken. */
static void end_pulled(struct zero_job *job)
{
	if (is_end_wanted(job)) {
		end_run_start(job);
		return;
	}
	job->units[job->write_unit].is_copying = false;
}

/* What was written is in job->write_source, or in place. */
static void end_go_on(struct zero_job *job)
{
	if (job_stores_param(job))
		end_store(job, job->write_unit);
	else
		end_run_start(job);
}

/* What this node is to have of it has come: in job->write_source, or in place; or it cannot. */
static void end_gathered(struct zero_job *job, int error, const struct zi_text *text)
{
	if (!error && is_end_wanted(job)) {
		end_go_on(job);
		return;
	}
	job->units[job->write_unit].is_copying = false;
	job->write_source = tier_segment_unref(job->write_source);
	if (is_end_wanted(job))
		end_tell(job, error, text);
}

/* All ranks have come: with what, any of them says that is here. */
static void end_start(struct zero_job *job)
{
	const struct zero_op *op =
		job->group.ranks[job_first_rank(job)]->gathered[ZERO_GATHER_WRITE_END];
	uint32_t unit = op->unit, root = op->root;
	bool is_root_here = job->here_mask >> root & 1;

	assert(!job->write_source);
	if (is_in_use(job, unit))
		return;
	job->write_unit = unit;
	job->write_keeps = op->keeps_state;
	job->units[unit].is_copying = true;
	job->step.generation = job->group.generation;
	if (job->across) { /* All nodes count. */
		(void)written_count(job);
		params_write(job, unit);
	}
	if (!is_root_here && !job->residency) {
		written_pull(job, unit, root, NULL, end_pulled);
		return;
	}
	/* They read what is about to be replaced. */
	if (job->residency)
		writes_drop_busy(job);
	if (!is_root_here) {
		(void)residency_void(job, unit); /* Nothing is on its way. */
		write_far_gather(job, unit, root, end_gathered);
		return;
	}
	job->write_source = tier_segment_ref(job->group.ranks[root]->write->segment);
	if (job->across && job->residency)
		written_serve_from(job, job->write_source);
	if (!job->residency || residency_void(job, unit))
		end_go_on(job);
}

/* All ranks of this node have come. What one of them still waits for may be there by the time that
 * all nodes have: it is looked at again then. */
static void end_agree(struct zero_job *job, const struct zero_op *op)
{
	if (!job->across || !is_in_use(job, op->unit))
		quiet_agree(job, ZERO_GATHER_WRITE_END, (uint32_t[]){ op->unit, op->root },
		            end_start);
}

static int end_check(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	const struct zero_write *write = rank->write;
	int r;

	if (job_stores_param(job) && job->zero->frozen)
		return err_trace(frozen_check(job->zero, &op->text));
	if (op->keeps_state && job->across)
		return zi_text_error(&op->text, -EOPNOTSUPP,
		                     "optimizer state is not kept in a job over several nodes: end "
		                     "the write without that");
	r = state_check_idle(rank, &op->text);
	if (r)
		return err_trace(r);
	if (gather_is_asked(job, ZERO_GATHER_COMMIT))
		return zi_text_error(&op->text, -EBUSY, "a commit is under way");
	if (op->root >= job->group.world_size)
		return zi_text_error(&op->text, -EINVAL, "root is %u of %u ranks", op->root,
		                     job->group.world_size);
	if (!set_has(job, op->unit, op->root))
		return zi_text_error(
			&op->text, -EINVAL,
			"root is rank %u, but unit '%.60s' belongs to data-parallel group '%.60s': "
			"name one of its ranks (%s)",
			op->root, job->layout.units[op->unit].name, set_name(job, op->unit),
			set_format(set_of(job, op->unit)->members).chars);
	if (op->root == rank->number && (!write || write->unit != op->unit || write->is_busy))
		return zi_text_error(&op->text, -EINVAL, "root %u has not begun to write unit '%s'",
		                     op->root, job->layout.units[op->unit].name);
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *other = job->group.ranks[i];
		const struct zero_op *model = other ? other->gathered[ZERO_GATHER_WRITE_END] : NULL;

		if (!model || other == rank)
			continue;
		if (model->unit == op->unit && model->root == op->root &&
		    model->keeps_state != op->keeps_state)
			return zi_text_error(
				&op->text, -EINVAL,
				"rank %u ends a write of unit %u %s optimizer state, but "
				"rank %u does not",
				rank->number, op->unit,
				op->keeps_state ? "and keeps" : "and zeroes", i);
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
 * @op: unit, root, keeps_state; collective; else the unit's state is zero afterwards. Kept state of
 *   16-bit parameters: the master becomes the written value
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
			is_full = gather_join(op, ZERO_GATHER_WRITE_END);
			if (!group_needs_all(job) && is_full)
				end_agree(job, op);
		}
	}
	zero_drain(zero);
}
