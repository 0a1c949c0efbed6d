/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new job, under a name that is free, stands where a snapshot does: its rows in the catalog name
 * the snapshot's extents as well, and it is at rest like one that the catalog knew when the daemon
 * started. Nothing is copied; it pays like any job. Floor 5, shard thread.
 *
 * Until the catalog knows it, it is refused to whoever wants to attach: nothing may happen to it
 * but its own end.
 */
#include "daemon/zero/snapshot/restore_as.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/attach.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/recover_take.h"
#include "daemon/zero/snapshot/part.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/commit.h"

static int as_check(struct zero *zero, const struct zero_snapshot *snapshot,
                    struct zero_snapshot_op *op)
{
	struct zi_text *text = &op->text;
	char what[2 * ZI_NAME_BYTES + 16];
	int r = change_check(zero, text);

	if (r)
		return err_trace(r);
	r = snapshot_read_check(snapshot, op);
	if (r)
		return err_trace(r);
	(void)snprintf(what, sizeof(what), "snapshot '%s/%s'", op->job, op->name); /* Fits. */
	r = part_check(snapshot->record, what, text);
	if (r)
		return err_trace(r);
	if (job_find(zero, op->as))
		return err_origin(zi_text_error(text, -EEXIST,
		                                "job '%s' exists: choose another name (nothing "
		                                "was changed)",
		                                op->as));
	if (snapshot->record->config.offload_optimizer != ZI_OFFLOAD_NVME)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"'%s/%s' is of a job with state only in memory, which cannot be "
			"restored: start job '%s' with the snapshot (zinf_load)",
			op->job, op->name, op->as));
	return err_trace(attach_limits_check(zero, snapshot->uid, text));
}

static void founded(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero_snapshot_op *op = zi_steal(job->found_op);
	struct zero *zero = job->zero;

	request_end(job);
	op->text = request->text;
	job->refusal = 0;
	if (request->result) {
		extents_release_all(job);
		(void)job_free(job);
	} else {
		job->is_stored = true;
		op->step = job->committed_step;
		op->held_bytes = job->nvme_charge.bytes / 2;
		job_settle(job);
	}
	snapshot_op_end(zero, op, request->result);
	zero_drain(zero);
}

/* Takes over what the snapshot says, as after a start. */
static int found(struct zero_job *job, const struct zero_snapshot *snapshot, struct zi_text *text)
{
	_cleanup_(catalog_job_freep) struct catalog_job *stored = NULL;
	int r;

	r = catalog_job_copy(snapshot->record, &stored);
	if (r)
		return err_origin(zi_text_error(text, r, "no memory for a job"));
	stored->incarnation_number = 0;
	stored->incarnation[0] = '\0';
	stored->number = 1;
	r = recover_take(job, stored, true);
	if (!r)
		return 0;
	zi_text_set(text, "%s", job->refusal ? job->refusal_text.chars : "no memory for a job");
	return err_trace(r);
}

/**
 * snapshot_restore_as() - a new job stands at a snapshot
 * @op: names, `as` and who asks; completed when the catalog says so
 *
 * Context: shard thread.
 */
void snapshot_restore_as(struct zero *zero, struct zero_snapshot_op *op)
{
	struct zero_snapshot *snapshot = snapshot_find(zero, op->job, op->name);
	struct zero_job *job = NULL;
	int r;

	zi_list_init(&op->link);
	r = as_check(zero, snapshot, op);
	if (!r && job_new(zero, op->as, snapshot->uid, &job))
		r = zi_text_error(&op->text, err_origin(-ENOMEM), "no memory for a job");
	if (!r)
		r = found(job, snapshot, &op->text);
	if (r) {
		if (job)
			extents_release_all(job);
		(void)job_free(job);
		snapshot_op_end(zero, op, r);
	} else {
		job->refusal = -EBUSY;
		zi_text_set(&job->refusal_text, "job '%s' is being made of a snapshot: try again",
		            job->name);
		job->found_op = op;
		request_submit(job, CATALOG_JOB_CREATE, founded);
	}
	zero_drain(zero);
}
