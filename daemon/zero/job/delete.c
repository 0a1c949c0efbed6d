/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a job. Its extents are given back only when the catalog no longer names them: a daemon
 * that died in between would otherwise find them taken twice. Floor 5, shard thread.
 */
#include "daemon/zero/job/delete.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/lost.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/step.h"

/* Return: a job of @uid is gone for everybody, but the space that it had is not free yet. */
bool delete_is_under_way(const struct zero *zero, uint32_t uid)
{
	zi_list_for_each(link, &zero->ghosts)
		if (container_of(link, struct zero_job, jobs_link)->uid == uid)
			return true;
	return false;
}

static void ghost_deleted(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;

	request_end(job);
	/* A refusal leaves the space taken until the daemon starts again, and finds it free or
	 * named: nothing that could be done here is better. */
	if (!request->result)
		extents_release_all(job);
	job->is_stored = false;
	(void)job_free(job);
	zi_list_for_each_safe(link, &zero->jobs) {
		job = container_of(link, struct zero_job, jobs_link);
		if (materialize_is_due(job)) /* It may have waited for that space. */
			job_settle(job);
	}
	zero_drain(zero);
}

/* Nobody finds it any more; its name is free. */
static void ghost_make(struct zero_job *job)
{
	assert(job->attached_count == 0);
	assert(job->busy_count == 0);
	assert(!job->is_deleting);
	job->is_deleting = true;
	job->is_ghost = true;
	job->zero->job_count--;
	zi_list_remove(&job->jobs_link);
	zi_list_push_back(&job->zero->ghosts, &job->jobs_link);
}

/* A job without ranks ends: at once, or as a ghost until the catalog has forgotten it. */
void job_delete(struct zero_job *job)
{
	if (!job->is_stored) {
		assert(job->attached_count == 0);
		(void)job_free(job);
		return;
	}
	ghost_make(job);
	request_submit(job, CATALOG_JOB_DELETE, ghost_deleted);
}

static void delete_posted(struct zi_post *post)
{
	struct zero_job *job = container_of(post, struct zero_job, delete_post);

	job_unbusy(job);
	request_submit(job, CATALOG_JOB_DELETE, ghost_deleted);
}

/* As job_delete(), before the catalog serves requests: in the loop's first turn. */
void job_delete_later(struct zero_job *job)
{
	assert(job->is_stored);
	ghost_make(job);
	job_busy(job);
	zi_loop_post(job->zero->options.loop, &job->delete_post, delete_posted);
}

/* A rank that no longer waits, as its time was over, has a job that is no more, and must leave. */
static void destroyed_break(struct zero_job *job, const struct zero_rank *rank)
{
	struct zi_text text;

	zi_text_set(&text, "job '%s' was destroyed", job->name);
	if (job->group.phase == ZERO_GROUP_LIVE || job->group.phase == ZERO_GROUP_FORMING)
		group_break(job, -ESTALE, rank->number, &text);
}

/* The catalog has forgotten the job: the rank that asked is told, and leaves. */
static void destroyed_tell(struct zero_job *job, struct zero_op *op, struct zero_rank *rank)
{
	extents_release_all(job);
	job->is_stored = false;
	job->committed_step = -1;
	job->current_step = -1;
	if (!rank)
		return;
	if (op) {
		op_complete(op, 0);
		/* Its `done` is called in zero_rank_leave(), before the rank is gone. */
		zero_rank_leave(rank, true, NULL); /* Ends the job. */
		return;
	}
	destroyed_break(job, rank);
}

static void destroyed(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;
	struct zero_op *op = job->destroy_op;
	struct zero_rank *rank = job->destroy_rank;

	request_end(job);
	job->is_deleting = false;
	job->destroy_op = NULL;
	job->destroy_rank = NULL;
	if (!request->result) {
		bool is_ended = op && rank;

		destroyed_tell(job, op, rank);
		if (is_ended) {
			zero_drain(zero);
			return;
		}
	} else if (op && rank) {
		op->text = request->text;
		op_complete(op, request->result);
	}
	job_settle(job);
	zero_drain(zero);
}

/* Nothing is in flight: the catalog is asked, or there is nothing to ask it. */
void job_destroy_go(struct zero_job *job)
{
	struct zero_rank *rank = job->destroy_rank;
	struct zero_op *op = job->destroy_op;

	job->is_destroy_due = false;
	if (job->is_stored) {
		request_submit(job, CATALOG_JOB_DELETE, destroyed);
		return;
	}
	job->is_deleting = false;
	job->destroy_op = NULL;
	job->destroy_rank = NULL;
	if (op && rank) {
		op_complete(op, 0);
		zero_rank_leave(rank, true, NULL);
		return;
	}
	if (rank)
		destroyed_break(job, rank);
	job_settle(job);
}

/* Something that @rank itself called for has not ended. What was begun for others (the commit of
 * steps whose ranks have left, a snapshot, parameters that are read ahead) is waited for. */
static bool is_at_work(const struct zero_rank *rank)
{
	const struct zero_job *job = rank->job;

	return !zi_list_is_empty(&rank->ops) || job->step.phase == ZERO_STEP_STEPPING ||
	       job->is_materializing;
}

/**
 * zero_job_destroy() - delete the job with all its state, and what is told of a lost one
 * @rank: its only one; freed when @op completes with 0
 * @op: -EBUSY names another rank, or says what this one has under way
 *
 * Context: shard thread.
 */
void zero_job_destroy(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	int other_pid = 0;

	if (!op_begin(rank, op, ZERO_OP_DESTROY)) {
		zero_drain(zero);
		return;
	}
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		if (job->group.ranks[i] && job->group.ranks[i] != rank)
			other_pid = job->group.ranks[i]->pid;
	if (other_pid)
		op_fail(op, -EBUSY, "job '%s' has other ranks, such as pid %d: end them first",
		        job->name, other_pid);
	else if (job->attached_count > 1)
		op_fail(op, -EBUSY,
		        "ranks of an older incarnation of job '%s' have not left "
		        "yet: try again",
		        job->name);
	else if (is_at_work(rank))
		op_fail(op, -EBUSY, "job '%s' is working: %s", job->name, job_phase_name(job));
	if (op->result) {
		zero_drain(zero);
		return;
	}
	op_wait(op);
	/* Whoever destroys a job that was lost has no use for the record of the loss. */
	if (zero_lost_step(rank) >= 0)
		lost_end(zero, job->name, job->uid);
	job->is_deleting = true;
	job->destroy_op = op;
	job->destroy_rank = rank;
	job->is_destroy_due = true;
	(void)residency_stop(job); /* What is on its way is waited for in job_settle(). */
	job_settle(job);
	zero_drain(zero);
}
