/* SPDX-License-Identifier: Apache-2.0 */
/* How what spans nodes ends; see across.h. Floor 5, shard thread. */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/across/agree/learn.h"
#include "daemon/zero/across/bytes/blobs.h"
#include "daemon/zero/across/bytes/params_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/collectives/far.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"

/* What a worker's last words need to be at the other nodes; and these to read in the store, which
 * node 0's serves, why it ended. */
#define ACROSS_LAST_NS ZI_NS_PER_S
/* What a daemon that stops waits for other nodes to end a step of ranks that have left. */
#define ACROSS_HURRY_NS (5 * ZI_NS_PER_S)

static void across_detach(struct zero_job *job);

/* Documented in across_private.h or across.h, as are all that are not static. */
struct across *across_destroy(struct across *across)
{
	keep_over(across);
	across->worker =
		net_worker_free(across->worker); /* Ends its request, which may arm `next`. */
	zi_loop_disarm(&across->next);
	zi_loop_disarm(&across->left_timer);
	if (across->is_detached)
		zi_list_remove(&across->link);
	if (across->rounds.votes)
		rounds_deinit(&across->rounds);
	assert(!across->task_count);
	across->written.source = tier_segment_unref(across->written.source);
	across->slab = tier_segment_unref(across->slab); /* Nobody writes there any more. */
	free(across->taken);
	free(across->serves);
	across->grads = grads_free(across->grads);
	across->params = params_free(across->params);
	across->blobs = blobs_free(across->blobs);
	across->heal = heal_free(across->heal);
	free(across->peers);
	if (across->fd_account)
		tier_account_give_fds(across->fd_account, ZERO_WORKER_FDS);
	free(across);
	return NULL;
}

void across_forget_start(struct zero_job *job)
{
	struct across *across = job->across;

	if (!across || across->error)
		return; /* What is left ends with it, and hears nothing more. */
	assert(!job->busy_count);
	for (uint32_t i = 0; i < across->node_count && across->peers; i++)
		across->peers[i].pull_count = 0;
	across->grads = grads_free(across->grads);
	across->params = params_free(across->params);
	across->blobs = blobs_free(across->blobs);
	for (uint32_t i = 0; i < LENT_BUFFERS; i++)
		across->lent[i] = (struct lent_buffer){ .state = LENT_FREE };
}

/* The last of them may end the job: it is not touched any more. */
static void fail_rounds(struct across *across)
{
	bool has_pulls = !zi_list_is_empty(&across->waiting) || !zi_list_is_empty(&across->pulls);
	bool has_rounds = across->rounds.cast != across->rounds.ended;
	struct zero_job *job = across->job;
	struct zi_text text = across->text;
	int error = across->error ? across->error : -ECANCELED;

	if (!across->error)
		zi_text_set(&text, "the ranks of job '%s' have left", across->name);
	across->is_failing = true; /* What ends by this may look for whom it need not keep. */
	pull_fail(across, error, &text);
	params_over(across);
	rounds_fail(&across->rounds, error, &text);
	if (has_pulls && !has_rounds)
		job_settle(job); /* Nobody else does. */
	else if (!has_rounds)
		learn_over(across, error, &text);
	across->is_failing = false;
	if (across->is_detached)
		across->job = NULL;
}

/* This node comes to the meeting no more: the others, which may wait for it there, hear why, by a
 * worker of its own, for this one waits for ranks. Its store, where others may have met, goes with
 * it, and the next one says that it failed. */
static void tell_meeting(struct across *across)
{
	if (!across->has_called || across->has_told || across->is_detached ||
	    across->phase != ACROSS_MEETING)
		return;
	across->has_told = true;
	net_worker_kill(across->worker, &across->text);
	far_tell_meeting(across->job, across->ranks, across->error, &across->text);
}

void across_unmeet(const struct across *across)
{
	if (!across->has_called || across->is_detached)
		return;
	meeting_failed(across->job, across->error, &across->text);
	meeting_over(across->job);
}

/* A step that all ranks have called ends by itself, but not while its sums come from other nodes:
 * then nothing of it is left here. */
static void break_group(struct across *across)
{
	struct zero_job *job = across->job;
	const struct zero_group *group = &job->group;
	bool is_first = !group->error || group->is_left;
	struct zi_text text = is_first ? across->text : group->text;

	if (job->step.phase == ZERO_STEP_STEPPING)
		group_break(job, is_first ? across->error : group->error,
		            is_first ? UINT32_MAX : group->culprit, &text);
	else
		group_break_after_step(job, across->error, UINT32_MAX, &text);
}

void across_end(struct across *across)
{
	struct zero_job *job = across->job;
	across_joined_fn joined = across->phase < ACROSS_TALKING ? across->joined : NULL;

	if (across->phase == ACROSS_OVER) {
		fail_rounds(across); /* What was cast since. */
		return;
	}
	/* A worker that lives has told the others, but in a store that may go with it. */
	if (across->ranks & 1 || net_worker_state(across->worker) == NET_WORKER_DOWN)
		tell_meeting(across);
	across->phase_failed = across->phase;
	across->phase = ACROSS_OVER;
	if (joined) {
		struct zi_text text = across->text;
		int error = across->error;

		if (across->phase_failed == ACROSS_MAPPING) {
			/* The others talk already, or are about to. */
			struct zi_text told = across_where(across, &text);

			net_worker_abort(across->worker, error, &told);
			if (!across->is_detached && job->group.phase == ZERO_GROUP_FORMING)
				group_break(job, error, UINT32_MAX, &text); /* As theirs do. */
		}
		across_unmeet(across);
		if (!across->is_detached)
			job->across = across_destroy(across);
		else
			(void)across_destroy(across);
		job_unbusy(job);
		joined(job, error, &text);
		return;
	}
	if (!across->is_detached && !across->is_left &&
	    (job->group.phase == ZERO_GROUP_LIVE || job->group.phase == ZERO_GROUP_FORMING))
		break_group(across);
	keep_over(across);
	fail_rounds(across);
}

static void linger(struct across *across, uint64_t time_ns);

static void last_due(struct zi_timer *timer)
{
	struct across *across = container_of(timer, struct across, next);

	if (across->task_count)
		linger(across, ACROSS_LAST_NS);
	else
		(void)across_destroy(across);
}

static void linger(struct across *across, uint64_t time_ns)
{
	zi_loop_arm(across->zero->options.loop, &across->next, zi_clock_deadline_ns(time_ns),
	            last_due);
}

bool across_end_detached(struct across *across)
{
	uint64_t others = job_mask_of(across->node_count) & ~(1ull << across->node);
	bool is_read = across->is_answered && (!across->has_words || across->node);

	if (!across->is_detached || across->phase < ACROSS_TALKING)
		return false;
	fail_rounds(across);
	if (across->error || across->is_answered)
		keep_over(across);
	if (across->task_count)
		return true; /* Which come back to this. */
	if (is_read || (across->gone & others) == others)
		(void)across_destroy(across);
	else if (across->error)
		linger(across, ACROSS_LAST_NS);
	return true;
}

/* Somebody is in the middle of it: next_due() comes to its end, and so on. */
static bool is_busy(const struct across *across)
{
	return across->job || across->task_count || across->is_failing || across->rounds.is_ending;
}

bool across_is_busy(const struct zero *zero, const char *name)
{
	zi_list_for_each(link, &zero->acrosses) {
		const struct across *across = container_of(link, struct across, link);

		if (strcmp(across->name, name) == 0 && is_busy(across))
			return true;
	}
	return false;
}

/* ---- its group's end ---- */

static void end_for(struct across *across, int error, const struct zi_text *text)
{
	struct zi_text told;

	if (across->error || across->phase == ACROSS_OVER)
		return;
	across->error = error;
	across->text = *text;
	across->rounds.is_over = true;
	if (across->phase == ACROSS_TALKING) {
		told = across_where(across, text);
		net_worker_abort(across->worker, error, &told);
	}
	tell_meeting(across);
	across_go_on(across);
}

void across_break(struct zero_job *job, int error, const struct zi_text *text)
{
	/* One whose ranks have left is not that of the group which breaks. */
	if (job->across && !job->across->is_left)
		end_for(job->across, error, text);
}

void across_fail(struct across *across, int error, uint32_t culprit, const struct zi_text *text)
{
	struct zero_job *job = across->job;

	if (across->is_detached) {
		if (!across->error) {
			across->error = error;
			across->text = *text;
			across_go_on(across);
		}
		return;
	}
	if (!across->is_left &&
	    (job->group.phase == ZERO_GROUP_LIVE || job->group.phase == ZERO_GROUP_FORMING))
		group_break(job, error, culprit, text);
	end_for(across, error, text); /* Where it had broken before. */
}

/* Its ranks have left, or the daemon stops, and other nodes have not said in time what becomes of
 * what they made. */
static void left_due(struct zi_timer *timer)
{
	struct across *across = container_of(timer, struct across, left_timer);
	struct zero *zero = across->zero;
	struct zi_text text;

	zi_text_set(&text, "%s of job '%s', and other nodes do not end its steps",
	            across->is_left ? "nobody is left" : "the daemon is stopping in a step",
	            across->name);
	across_fail(across, -ETIMEDOUT, UINT32_MAX, &text);
	zero_drain(zero);
}

void across_over(struct zero_job *job, bool is_clean, uint64_t timeout_ns)
{
	struct across *across = job->across;

	if (!across || across->is_left)
		return; /* A former group's. */
	if (job->step.phase == ZERO_STEP_NONE &&
	    !(is_clean && job_is_ahead(job) && across_talks(job))) {
		across_detach(job);
		return;
	}
	across->is_left = true;
	across->late = (struct across_late){ .number = 0 }; /* Nobody's time is up any more. */
	if (job->zero->is_stopping)
		timeout_ns = ZI_MIN(timeout_ns, ACROSS_HURRY_NS);
	zi_loop_arm(across->zero->options.loop, &across->left_timer,
	            zi_clock_deadline_ns(timeout_ns), left_due);
}

void across_hurry(struct zero_job *job)
{
	if (job->across)
		zi_loop_arm(job->zero->options.loop, &job->across->left_timer,
		            zi_clock_deadline_ns(ACROSS_HURRY_NS), left_due);
}

void across_settle(struct zero_job *job)
{
	assert(!job->busy_count);
	if (job->across && job->across->is_left)
		across_detach(job);
}

static void across_detach(struct zero_job *job)
{
	struct across *across = job->across;

	zi_loop_disarm(&across->left_timer);
	params_over(across);
	across->has_words = across->error;
	if (across->phase < ACROSS_TALKING && !across->error) {
		across->error = -ECANCELED;
		zi_text_set(&across->text, "the ranks of job '%s' have left", across->name);
	}
	tell_meeting(across);
	job->across = NULL;
	across->is_detached = true;
	zi_list_push_back(&across->zero->acrosses, &across->link);
	if (across->phase == ACROSS_TALKING && !across->error) {
		across_say_all(across,
		               &(struct talk_entry){ .kind = TALK_BYE, .unit = UINT32_MAX });
		serve_over(across);
		across->rounds.is_over = true; /* Whoever waited for one is gone. */
	}
	if (across->rounds.cast == across->rounds.ended && zi_list_is_empty(&across->pulls) &&
	    zi_list_is_empty(&across->waiting) && across->phase >= ACROSS_TALKING)
		across->job = NULL;
	across_go_on(across);
}

void across_forget(struct zero *zero, const char *name)
{
	zi_list_for_each_safe(link, &zero->acrosses) {
		struct across *across = container_of(link, struct across, link);

		if (name && strcmp(across->name, name) != 0)
			continue;
		if (!is_busy(across))
			(void)across_destroy(across);
	}
}

bool across_stays(const struct zero *zero, const char *name)
{
	const struct zero_job *job = job_find((struct zero *)zero, name); /* Only looked at. */

	if (job && job->across && job->across->is_left && across_talks(job))
		return true;
	zi_list_for_each(link, &zero->acrosses) {
		const struct across *across = container_of(link, struct across, link);

		if (across->phase == ACROSS_TALKING && !across->error && !across->is_answered &&
		    strcmp(across->name, name) == 0)
			return true;
	}
	return false;
}
