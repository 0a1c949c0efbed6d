/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs that are not of one length: a rank whose data are at their end *joins*. It then shadows
 * the steps of the others, until all have joined: it begins a step when one of them does, hands
 * over gradients of zeros (which libclient writes), and calls step() like everybody; so whatever
 * the daemon does of a step, it does as ever. Floor 5, shard thread.
 *
 * What is its own here: such a rank's options are nobody's, its step begins after another's, the
 * average may leave it out, and its blob stays the last that it gave.
 */
#include "daemon/zero/step/join.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/agree/begin.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/job/set.h"

/* The rank's STEP_BEGIN that waits as joined; NULL: there is none. */
static struct zero_op *waiting_of(const struct zero_rank *rank)
{
	if (!rank)
		return NULL;
	zi_list_for_each(link, &rank->ops) {
		struct zero_op *op = container_of(link, struct zero_op, link);

		if (op->opcode == ZI_OP_STEP_BEGIN && op->options.flags & ZI_STEP_JOINED)
			return op;
	}
	return NULL;
}

/* Documented in the header, as are all that are not static. */
bool join_has(const struct zero_job *job, uint32_t rank)
{
	return job->step.joined_mask >> rank & 1;
}

/* Ranks here that do not wait as joined. */
static uint64_t missing_here(const struct zero_job *job)
{
	uint64_t mask = 0;

	for_each_rank_here(job, rank)
		if (!waiting_of(job->group.ranks[rank]))
			mask |= 1ull << rank;
	return mask;
}

/* A set in which nobody has data left has zeros to divide. */
float join_factor(const struct zero_job *job, const struct zero_set *set, uint64_t joined,
                  bool divides_by_live)
{
	uint64_t live = set->members & ~joined;

	if (job->step.options.flags & ZI_STEP_SUM)
		return 1.0f;
	if (divides_by_live && live)
		return (float)(1.0 / (double)__builtin_popcountll(live));
	return set->average;
}

/* Before a gradient of the set's units is complete; so no device thread reads it yet. Of one that
 * spans nodes whoever makes its sums knows it (across/sums/grads.c). */
static void factor_set(struct zero_job *job, struct zero_set *set)
{
	set->factor = join_factor(job, set, job->step.joined_mask, job->step.divides_by_live);
}

/* @op completes: its rank has begun the step under way. */
static void join_begin(struct zero_op *op)
{
	struct zero_rank *rank = op->rank;
	struct zero_job *job = rank->job;
	struct zero_step *step = &job->step;
	bool divides_by_live = op->options.flags & ZI_STEP_DIVIDES_BY_LIVE;

	assert(step->phase == ZERO_STEP_STEPPING);
	if (step->begun_mask >> rank->number & 1) {
		op_fail(op, -EALREADY, "rank %u began this step before", rank->number);
		return;
	}
	if (step->joined_mask && step->divides_by_live != divides_by_live) {
		op_fail(op, -EINVAL, "divides_by_live is %s in rank %u, but %s in rank %u",
		        divides_by_live ? "true" : "false", rank->number,
		        divides_by_live ? "false" : "true",
		        (uint32_t)__builtin_ctzll(step->joined_mask));
		return;
	}
	step->divides_by_live = divides_by_live;
	step->joined_mask |= 1ull << rank->number;
	step->begun_mask |= 1ull << rank->number;
	job->group.discarded_mask &= ~(1ull << rank->number);
	for (uint32_t i = 0; i < job->set_count; i++)
		if (job->sets[i].members >> rank->number & 1)
			factor_set(job, &job->sets[i]);
	op->micro_batches = step->options.micro_batches;
	op_complete(op, 0);
}

/* Only ops of other ranks than @first's are completed: its list may be walked (ops_retry()). */
void join_step(struct zero_job *job, const struct zero_rank *first)
{
	for (uint32_t i = 0; i < job->set_count; i++)
		factor_set(job, &job->sets[i]);
	for_each_rank_here(job, i) {
		struct zero_rank *rank = job->group.ranks[i];
		struct zero_op *op = rank == first ? NULL : waiting_of(rank);

		if (op)
			join_begin(op);
	}
}

/* Nobody has data left: all go on from here, with a step of their own or to their end. */
static void join_all(struct zero_op *last)
{
	struct zero_job *job = last->rank->job;

	for_each_rank_here(job, i) {
		struct zero_rank *rank = job->group.ranks[i];
		struct zero_op *op = rank == last->rank ? last : waiting_of(rank);

		op->micro_batches = 0;
		op_complete(op, 0);
	}
}

/* ---- over nodes ---- */

/* A former group's is forgotten. */
static struct zero_join *join_of(struct zero_job *job)
{
	struct zero_join *join = &job->join;

	if (join->generation != job->group.generation)
		*join = (struct zero_join){ .generation = job->group.generation };
	return join;
}

static bool is_of_now(const struct zero_job *job)
{
	return job->across && job->join.generation == job->group.generation;
}

bool join_is_asked(const struct zero_job *job)
{
	return is_of_now(job) && job->join.is_asked;
}

bool join_has_begun(const struct zero_job *job)
{
	return is_of_now(job) && job->join.has_begun;
}

void join_begun(struct zero_job *job, const struct zi_step_options *options,
                const struct zi_step_group *groups, uint32_t rank)
{
	struct zero_join *join = join_of(job);

	assert(join->is_asked);
	assert(job->step.phase == ZERO_STEP_NONE);
	join->is_asked = false;
	join->has_begun = true;
	join->rank = rank;
	join->options = *options;
	memcpy(join->groups, groups, options->group_count * sizeof(*groups));
	ops_retry(job);
}

void join_over(struct zero_job *job)
{
	struct zero_join *join = join_of(job);

	assert(join->is_asked);
	join->is_asked = false;
	join->over_mask = 0;
	for_each_rank_here(job, i) {
		struct zero_op *op = waiting_of(job->group.ranks[i]);

		if (!op) {
			join->over_mask |= 1ull << i;
			continue;
		}
		op->micro_batches = 0;
		op_complete(op, 0);
	}
	ops_retry(job);
}

void join_forget(struct zero_job *job, uint32_t rank)
{
	job->join.over_mask &= ~(1ull << rank);
}

/* No step is under way here. */
static void try_far(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	struct zero_join *join = join_of(job);

	if (join->over_mask >> op->rank->number & 1) {
		join_forget(job, op->rank->number);
		op->micro_batches = 0;
		op_complete(op, 0);
	} else if (!join->is_asked && !missing_here(job)) {
		join->is_asked = true;
		agree_begin_joined(job);
	}
}

struct zi_text join_say_late(const struct zero_job *job)
{
	uint64_t missing = missing_here(job) & ~(join_is_asked(job) ? job->here_mask : 0);
	struct zi_text text;

	if (join_is_asked(job) && agree_begin_say_late(job, &text))
		return text;
	if (missing)
		zi_text_set(&text, "ranks %s have not joined, and none of them has begun a step",
		            set_format(missing).chars);
	else
		zi_text_set(&text, "the step of the others cannot begin here yet");
	return text;
}

/* @op waits in its rank's list, and no step is being written. */
void join_try(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;

	if (job->zero->is_stopping)
		op_fail(op, -ESTALE, "the daemon is stopping");
	else if (job->step.phase == ZERO_STEP_STEPPING)
		join_begin(op);
	else if (job->across)
		try_far(op);
	else if (!missing_here(job))
		join_all(op);
}
