/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody asks for a snapshot: of a job whose nodes talk all of them keep it
 * (across/agree/keep.h), else this one alone. Floor 5, shard thread.
 */
#include "common/base/err.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/snapshot/snapshot_make.h"

static int create_check(struct zero *zero, const struct zero_job *job, struct zero_snapshot_op *op)
{
	struct zi_text *text = &op->text;
	int r = snapshot_job_check(zero, job, op, text);

	if (r)
		return err_trace(r);
	if (job->refusal)
		return err_origin(zi_text_error(text, job->refusal, "%s", job->refusal_text.chars));
	if (job->is_deleting)
		return err_origin(
			zi_text_error(text, -EBUSY, "job '%s' is being deleted", op->job));
	if (job->committed_step < 0)
		return err_origin(zi_text_error(
			text, -ENODATA, "job '%s' has not committed anything yet", op->job));
	if (!job->nvme_tier)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"state of job '%s' is only in memory and the daemon has no nvme tier to "
			"keep a snapshot on: configure one",
			op->job));
	/* What some nodes have of it is made whole. */
	if (op->name[0] && !keep_way(job) && snapshot_find(zero, op->job, op->name))
		return err_origin(
			zi_text_error(text, -EEXIST, "snapshot '%s/%s' exists", op->job, op->name));
	return 0;
}

/**
 * zero_snapshot_create() - keep a job's committed step
 * @op: names, who asks, retention; completed with the name, the step and what it holds
 *
 * Context: shard thread.
 */
void zero_snapshot_create(struct zero *zero, struct zero_snapshot_op *op)
{
	struct zero_job *job = job_find(zero, op->job);
	struct zero_snapshot *snapshot;
	struct across *across;
	int r;

	zi_list_init(&op->link);
	r = create_check(zero, job, op);
	if (r) {
		snapshot_op_end(zero, op, r);
		zero_drain(zero);
		return;
	}
	across = op->is_hold ? NULL : keep_way(job);
	if (across) {
		keep_ask(across, op);
		zero_drain(zero);
		return;
	}
	snapshot = snapshot_new(zero, op->job, op->name, job->uid);
	if (!snapshot) {
		zi_text_set(&op->text, "no memory for a snapshot");
		snapshot_op_end(zero, op, err_origin(-ENOMEM));
		zero_drain(zero);
		return;
	}
	snapshot->op = op;
	snapshot->job = job;
	snapshot->is_automatic = op->is_automatic;
	snapshot->keep_count = op->keep_count;
	snapshot->is_hold = op->is_hold;
	snapshot_retry(job);
	zero_drain(zero);
}
