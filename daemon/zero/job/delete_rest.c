/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that nobody uses is ended by whoever may (zctl delete): one that no rank can attach to any
 * more, to call zinf_destroy_job(), as well: its other nodes have lost theirs, or it is damaged.
 * Unlike a ghost (delete.c) it is there, and refuses ranks, until the catalog has forgotten it:
 * what that refuses can be asked for again. Floor 5, shard thread.
 */
#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/delete.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/lost.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/snapshot/snapshot.h"

/* Ranks that are named; who has more looks at zctl jobs. */
#define NAMED_MAX 4u

static int say_ranks(const struct zero_job *job, struct zi_text *text)
{
	uint32_t named = 0;

	zi_text_set(text, "job '%.60s' is in use by %u processes here (", job->name,
	            job->group.rank_count);
	for (uint32_t i = 0; i < ZI_WORLD_MAX && named < NAMED_MAX; i++)
		if (job->group.ranks[i])
			zi_text_append(text, "%srank %u: pid %d", named++ ? ", " : "", i,
			               job->group.ranks[i]->pid);
	zi_text_append(text, "%s): end them first", job->group.rank_count > named ? ", …" : "");
	return err_origin(-EBUSY);
}

static int delete_check(const struct zero *zero, const struct zero_job *job,
                        const struct zero_snapshot_op *op, struct zi_text *text)
{
	int r = snapshot_job_check(zero, job, op, text);

	if (r)
		return err_trace(r);
	if (job->group.rank_count)
		return err_trace(say_ranks(job, text));
	if (job->attached_count)
		return err_origin(zi_text_error(
			text, -EBUSY,
			"%u processes of an older start of job '%s' have not ended yet: try again",
			job->attached_count, job->name));
	if (job->busy_count || job->is_deleting || job->is_materializing ||
	    job->step.phase != ZERO_STEP_NONE)
		return err_origin(zi_text_error(text, -EBUSY,
		                                "job '%s' is still working (%s): try again",
		                                job->name, job_phase_name(job)));
	return 0;
}

/* Of those that wait for space. */
static void look_again(struct zero *zero)
{
	zi_list_for_each_safe(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (materialize_is_due(job))
			job_settle(job);
	}
}

static void end(struct zero_job *job, struct zero_snapshot_op *op)
{
	struct zero *zero = job->zero;

	/* Where it lies is known of what was recovered alone; the rest is nobody's until then. */
	op->is_space_kept = job->refusal;
	extents_release_all(job);
	job->is_stored = false;
	(void)job_free(job);
	look_again(zero);
}

static void deleted(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero_snapshot_op *op = zi_steal(job->delete_op);
	struct zero *zero = job->zero;
	int r = request->result;

	request_end(job);
	op->text = request->text;
	if (r) {
		job->is_deleting = false;
		if (job->lost_step >= 0)
			lost_keep(job, job->lost_step);
		else
			job_settle(job);
	} else {
		end(job, op);
	}
	snapshot_op_end(zero, op, r);
	zero_drain(zero);
}

/**
 * zero_job_delete() - end a job that nobody uses, with all its state
 * @op: its name and who asks; completed when the catalog has forgotten it
 *
 * Context: shard thread.
 */
void zero_job_delete(struct zero *zero, struct zero_snapshot_op *op)
{
	struct zero_job *job = job_find(zero, op->job);
	struct zero_job *lost = lost_find(zero, op->job);
	int r;

	/* The asker's own, where another uid has a job of that name by now. */
	if (!job || (lost && job->uid != op->uid && lost->uid == op->uid))
		job = lost;
	zi_list_init(&op->link);
	r = delete_check(zero, job, op, &op->text);
	if (r) {
		snapshot_op_end(zero, op, r);
		zero_drain(zero);
		return;
	}
	op->step = job->is_lost ? job->lost_step : job->committed_step;
	if (job->is_lost)
		lost_take_back(job);
	op->held_bytes = job->nvme_charge.bytes + job->account->account.used_bytes[TIER_CPU];
	job->is_deleting = true;
	job->delete_op = op;
	if (job->is_stored) {
		request_submit(job, CATALOG_JOB_DELETE, deleted);
	} else {
		end(job, op);
		snapshot_op_end(zero, op, 0);
	}
	zero_drain(zero);
}
