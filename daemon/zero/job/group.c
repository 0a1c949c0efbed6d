/* SPDX-License-Identifier: Apache-2.0 */
/* A group's end: ranks that leave or die, and what the others hear. Floor 5, shard thread. */
#include "daemon/zero/job/group.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/coll/coll.h"
#include "daemon/tier/holder.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/collectives/collectives.h"
#include "daemon/zero/collectives/far.h"
#include "daemon/zero/job/history.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/param/stream.h"
#include "daemon/zero/param/unit.h"
#include "daemon/zero/param/write.h"
#include "daemon/zero/snapshot/load.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/step_end.h"
#include "daemon/zero/tensor/tensor_table.h"

/* A group that a newer one replaces has nobody more who would say how long. */
#define ACROSS_REPLACED_NS (10 * ZI_NS_PER_S)

static void rank_break(struct zero_rank *rank, int error, uint32_t culprit,
                       const struct zi_text *text)
{
	struct zero_job *job = rank->job;

	assert(!rank->broken_error);
	zi_list_for_each_safe(link, &rank->ops) {
		struct zero_op *op = container_of(link, struct zero_op, link);

		op->text = *text;
		op_complete(op, error);
	}
	rank->broken_error = error;
	rank->broken_culprit = culprit;
	rank->broken_text = *text;
	zi_list_push_back(&job->zero->notices, &rank->notice_link);
}

/*
 * @error: what every call of its ranks returns from now on; @culprit: rank number, or UINT32_MAX.
 * Does not wait for a step that is being written: that one ends by itself, in a commit or not.
 */
void group_break(struct zero_job *job, int error, uint32_t culprit, const struct zi_text *text)
{
	struct zero_group *group = &job->group;

	assert(error < 0);
	job_group_set(job, ZERO_GROUP_BROKEN);
	group->error = error;
	group->culprit = culprit;
	group->text = *text;
	group->is_left = false;
	for (uint32_t i = 0; i < group->world_size; i++)
		if (group->ranks[i])
			rank_break(group->ranks[i], error, culprit, &group->text);
	memset(group->gather_masks, 0, sizeof(group->gather_masks));
	group->agreed = 0;
	group->held = 0;
	across_break(job, error, &group->text);
	if (job->step.phase == ZERO_STEP_STEPPING)
		step_abort(job);
}

/* It waits with all the others in one of @masks that is not 0. */
static bool op_is_gathered(const struct zero_op *op, const uint64_t masks[_ZERO_GATHER_COUNT])
{
	for (uint32_t i = 0; i < _ZERO_GATHER_COUNT; i++)
		if (masks[i] && op->rank->gathered[i] == op)
			return true;
	return false;
}

/* What waits for the step's end, or for ranks that will not come, waits for nothing but the news
 * that the group is no more: it may be seconds away. The step itself is told of at its end. */
static void waiting_fail(struct zero_job *job)
{
	struct zero_group *group = &job->group;
	uint64_t kept_masks[_ZERO_GATHER_COUNT] = { 0 };

	for (uint32_t i = 0; i < _ZERO_GATHER_COUNT; i++)
		if (gather_is_agreed(job, i))
			kept_masks[i] = group->gather_masks[i];
	for (uint32_t i = 0; i < group->world_size; i++) {
		struct zero_rank *rank = group->ranks[i];

		if (!rank)
			continue;
		zi_list_for_each_safe(link, &rank->ops) {
			struct zero_op *op = container_of(link, struct zero_op, link);

			if (op_is_gathered(op, kept_masks))
				continue;
			op->text = group->text;
			op_complete(op, group->error);
		}
	}
	memcpy(group->gather_masks, kept_masks, sizeof(kept_masks));
}

/* As group_break(), but a step that no longer needs its ranks ends first; meanwhile every other
 * call fails as it will afterwards (op_begin()). */
void group_break_after_step(struct zero_job *job, int error, uint32_t culprit,
                            const struct zi_text *text)
{
	struct zero_group *group = &job->group;

	/* The step may be a former group's: this one has no part in it. */
	if (!step_is_called(job) || job->step.generation != group->generation) {
		group_break(job, error, culprit, text);
		return;
	}
	if (group->error && !group->is_left)
		return; /* The first one is the one to tell. */
	group->error = error;
	group->culprit = culprit;
	group->text = *text;
	group->is_left = false;
	waiting_fail(job);
}

/* See group.h. */
void group_cause(const struct zero_job *job, uint32_t *culprit, struct zi_text *text)
{
	const struct coll *coll = job->collectives.coll;
	const struct coll_group *world = coll ? &coll->groups[ZI_GROUP_WORLD] : NULL;

	static_assert(COLL_NOBODY == UINT32_MAX, "nobody is nobody");
	if (!world || world->error != -EPIPE ||
	    job->collectives.generation != job->group.generation)
		return;
	*culprit = world->culprit;
	*text = world->text;
}

/* A rank that left cleanly is needed now. Return: true when that broke the group. */
bool group_needs_all(struct zero_job *job)
{
	struct zi_text text = job->group.text;

	if (!job->group.error)
		return false;
	if (step_is_called(job) && job->step.generation == job->group.generation) {
		job->group.is_left = false; /* As soon as the step is written. */
		return false;
	}
	group_break(job, job->group.error, job->group.culprit, &text);
	return true;
}

/* Nobody is left: what it was called stays, so that the same name may form anew. */
static void group_over(struct zero_job *job, bool is_clean, uint64_t timeout_ns)
{
	struct zero_group *group = &job->group;

	assert(group->rank_count == 0);
	across_over(job, is_clean, timeout_ns);
	collectives_drop(job);
	meeting_over(job);
	if (!group->name[0])
		far_hurry(job);
	job_group_set(job, ZERO_GROUP_NONE);
	group->error = 0;
	group->is_left = false;
	group->world_size = group->local_size = 0;
	job->step.failed_mask = 0;
	gather_forget(job);
}

/* See group.h. @attach: its strategy is the group's. */
int group_process_check(const struct zero_group *group, const struct zero_attach *attach,
                        struct zi_text *text)
{
	for (uint32_t i = 0; i < group->world_size; i++) {
		const struct zero_rank *rank = group->ranks[i];

		if (group->training.strategy != ZI_STRATEGY_DP || !rank || rank->pid == attach->pid)
			continue;
		return err_origin(zi_text_error(
			text, -EINVAL,
			"rank %u is in process %d, rank %u in process %d: strategy dp needs "
			"all ranks in one process (zinf_replicas_attach()); for several "
			"processes use ddp",
			attach->rank, attach->pid, rank->number, rank->pid));
	}
	return 0;
}

/* A newer incarnation takes the place of whatever group is there. Precondition: history_reserve().
 */
void group_replace(struct zero_job *job, const char *name)
{
	struct zero_group *group = &job->group;
	struct zi_text text;

	zi_text_set(&text,
	            "a newer incarnation%s%s%s of job '%s' has taken over: two runs at the "
	            "same time need two names (ZINF_JOB)",
	            name[0] ? " '" : "", name, name[0] ? "'" : "", job->name);
	collectives_break(job, -ESTALE, &text);
	if (group->phase == ZERO_GROUP_FORMING || group->phase == ZERO_GROUP_LIVE)
		group_break(job, -ESTALE, UINT32_MAX, &text);
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++) {
		if (!group->ranks[i])
			continue;
		group->ranks[i]->is_member = false;
		group->ranks[i] = NULL;
	}
	group->rank_count = 0;
	if (group->phase != ZERO_GROUP_NONE)
		group_over(job, false, ACROSS_REPLACED_NS);
	(void)zi_copy_name(group->name, sizeof(group->name), name); /* Checked before. */
	group->number++;
	job->meeting.failed_count = 0;
	job->meeting.failed_error = 0;
	if (name[0])
		history_add(&job->history, group->number, name);
}

static void say_left(const struct zero_rank *rank, bool is_clean, const char *reason,
                     struct zi_text *text)
{
	if (is_clean)
		zi_text_set(text, "rank %u (pid %d) left", rank->number, rank->pid);
	else
		zi_text_set(text, "rank %u (pid %d) died%s%s", rank->number, rank->pid,
		            reason ? ": " : "", reason ? reason : "");
}

/* It may leave, and another come for it: nobody has seen anything of it yet. */
static bool is_place_free(const struct zero_job *job)
{
	return job->group.phase == ZERO_GROUP_FORMING && !materialize_is_on(job) &&
	       !collectives_is_on(job);
}

/* What the others of the group hear of a member that is no longer there. */
static void member_left(struct zero_job *job, uint32_t number, bool is_clean,
                        const struct zi_text *text)
{
	struct zero_group *group = &job->group;
	struct zi_text cause = *text;
	uint32_t culprit = number;
	bool is_waited_for = materialize_is_on(job) || collectives_is_building(job) ||
	                     (job->step.phase == ZERO_STEP_STEPPING && !step_is_called(job));

	if (group->phase == ZERO_GROUP_BROKEN)
		return;
	if (!is_clean) {
		/* Other nodes hear of it now: before they hear that others left because of it. */
		across_left(job, number, -EPIPE, text);
		group_break_after_step(job, -EPIPE, number, text);
		return;
	}
	if (is_place_free(job))
		return;
	across_left(job, number, 0, text);
	group_cause(job, &culprit, &cause);
	for (uint32_t i = 0; i < _ZERO_GATHER_COUNT; i++)
		is_waited_for |= group->gather_masks[i] && !gather_is_full(job, i);
	/* All have called it, and it has not begun: it waits for space, and now for this member. */
	is_waited_for |=
		group->phase == ZERO_GROUP_FORMING && gather_is_full(job, ZERO_GATHER_MATERIALIZE);
	if (is_waited_for) {
		group_break_after_step(job, -EPIPE, culprit, &cause);
		return;
	}
	if (!group->error) {
		group->error = -EPIPE;
		group->culprit = culprit;
		group->text = cause;
		group->is_left = true;
	}
	/* What it had unsharded is no longer in the way of others. */
	if (job->residency)
		residency_changed(job);
}

/* For a reason that is better told than that its ranks, who heard of it, left then. */
static bool has_failed(const struct zero_group *group)
{
	return group->error && !group->is_left;
}

/* A step that ends with its last rank, before steps that are to be committed: other nodes may have
 * agreed on it, and wait for sums that will not come. They have to hear of it at once, for this
 * node would wait for their vote on what is ahead.
 */
static bool leaves_step_behind(const struct zero_job *job)
{
	return job->step.phase == ZERO_STEP_STEPPING && job_is_ahead(job);
}

/**
 * zero_rank_leave() - the end of a rank
 * @rank: freed
 * @is_clean: it said so (DETACH)
 * @reason: of a death, for people; may be NULL
 *
 * Its pending ops end with -ECANCELED before this returns. Context: shard thread.
 */
void zero_rank_leave(struct zero_rank *rank, bool is_clean, const char *reason)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	struct zero_group *group = &job->group;

	ops_cancel(rank);
	zi_list_remove(&rank->notice_link);
	write_forget(rank);
	state_forget(rank);
	tensors_forget(rank);
	if (is_clean && rank->is_member)
		residency_forget(rank);
	if (job->destroy_rank == rank)
		job->destroy_rank = NULL;
	if (rank->is_member) {
		uint64_t bit = 1ull << rank->number;
		struct zi_text text;

		say_left(rank, is_clean, reason, &text);
		/* At once, whatever a step still writes. */
		collectives_rank_gone(rank, &text);
		assert(group->ranks[rank->number] == rank);
		unit_forget(rank);
		group->ranks[rank->number] = NULL;
		group->rank_count--;
		if (is_place_free(job)) {
			group->gather_masks[ZERO_GATHER_MATERIALIZE] &= ~bit;
			group->gather_masks[ZERO_GATHER_COLL_OPEN] &= ~bit;
			gather_forget_rank(job, rank->number);
		}
		if (group->rank_count == 0) {
			bool is_whole = is_clean && !leaves_step_behind(job);

			/* Those of other nodes go on, or do not. */
			if (is_whole)
				across_left(job, rank->number, 0, &text);
			else
				across_break(job, -EPIPE, has_failed(group) ? &group->text : &text);
			if (job->step.phase == ZERO_STEP_STEPPING)
				step_abort(job);
			group_over(job, is_whole, rank->timeout_ns);
		} else {
			member_left(job, rank->number, is_clean, &text);
		}
	}
	assert(job->attached_count > 0);
	job->attached_count--;
	rank->holder = tier_holder_free(rank->holder);
	stream_drop(rank);
	load_forget(rank);
	free(rank->pin_counts);
	free(rank);
	job_settle(job); /* May free the job. */
	zero_drain(zero);
}
