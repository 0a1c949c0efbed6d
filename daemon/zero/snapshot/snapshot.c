/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: a job's rows in the catalog kept under a second name, and its extents held a second
 * time (share.c). Nothing is copied: a commit writes new extents anyway, and those it replaces stay
 * as long as a snapshot holds them. How one is made is in snapshot_make.c, how it goes in
 * snapshot_remove.c. Floor 5, shard thread.
 *
 * A snapshot belongs to the uid of its job, pays for all its extents (they may be shared today, and
 * its own after the next commit), and outlives the job.
 */
#include "daemon/zero/snapshot/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/import_write.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/flush.h"

/* ---- the object ---- */

/* Its space is given back, where nobody else holds it. Return: NULL. */
struct zero_snapshot *snapshot_free(struct zero_snapshot *snapshot)
{
	struct zero *zero;

	if (!snapshot)
		return NULL;
	zero = snapshot->zero;
	assert(!snapshot->use_count);
	assert(!snapshot->op);
	assert(!snapshot->moving);
	evacuate_forget(snapshot);
	/* When the catalog broke, it may be in force after a restart. */
	for (uint32_t i = 0;
	     snapshot->extents && !zero->frozen && i < snapshot->record->extent_count; i++)
		share_release(&zero->shares, &snapshot->extents[i]);
	tier_charge_return(&snapshot->charge);
	zi_list_remove(&snapshot->snapshots_link);
	snapshot->record = catalog_job_free(snapshot->record);
	free(snapshot->extents);
	free(snapshot);
	return NULL;
}

struct zero_snapshot *snapshot_new(struct zero *zero, const char *job, const char *name,
                                   uint32_t uid)
{
	struct zero_snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return NULL;
	snapshot->zero = zero;
	snapshot->uid = uid;
	snapshot->created_s = (uint64_t)time(NULL);
	(void)zi_copy_name(snapshot->job_name, sizeof(snapshot->job_name), job); /* Checked. */
	(void)zi_copy_name(snapshot->name, sizeof(snapshot->name), name);
	zi_list_push_back(&zero->snapshots, &snapshot->snapshots_link);
	return snapshot;
}

/* Return: the snapshot of that name, in whatever phase, or NULL. */
struct zero_snapshot *snapshot_find(struct zero *zero, const char *job, const char *name)
{
	zi_list_for_each(link, &zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (snapshot->name[0] && strcmp(snapshot->job_name, job) == 0 &&
		    strcmp(snapshot->name, name) == 0)
			return snapshot;
	}
	return NULL;
}

/* Return: what snapshots hold of @tier, with those that are read and not charged. */
uint64_t snapshot_held_bytes(const struct zero *zero, const struct tier *tier)
{
	uint64_t bytes = 0;

	zi_list_for_each(link, &zero->snapshots) {
		const struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		for (uint32_t i = 0; snapshot->extents && i < snapshot->record->extent_count; i++)
			if (snapshot->extents[i].bytes && snapshot->extents[i].member->tier == tier)
				bytes += snapshot->extents[i].bytes;
	}
	return bytes;
}

/* ---- what it holds ---- */

void snapshot_op_end(struct zero *zero, struct zero_snapshot_op *op, int result)
{
	op->result = result;
	zi_list_push_back(&zero->snapshots_done, &op->link);
}

/* Nobody waits for it. What fails at every interval is logged once. */
static void tell_periodic(const struct zero_snapshot *snapshot, int result,
                          const struct zi_text *text)
{
	struct zero_job *job = job_find(snapshot->zero, snapshot->job_name);

	if (!job)
		return;
	if (!result) {
		job->unkept_count = 0;
		return;
	}
	job->unkept_text = *text;
	if (!job->unkept_count++)
		log_warning("Job '%s' continues, but its automatic snapshot failed: %s (zctl "
		            "jobs counts further failures)",
		            job->name, text->chars);
}

/* Tells who waits, if anybody does. */
void snapshot_tell(struct zero_snapshot *snapshot, int result, const struct zi_text *text)
{
	struct zero_snapshot_op *op = zi_steal(snapshot->op);

	if (snapshot->keep_id) {
		keep_told(snapshot, result, text);
		return;
	}
	if (!op) {
		tell_periodic(snapshot, result, text);
		return;
	}
	op->text = *text;
	if (!result) {
		op->step = snapshot->record->step;
		op->held_bytes = snapshot->held_bytes;
		op->node_count = ZI_MAX(snapshot->record->placement.node_count, 1u);
		op->kept_count = 1;
		(void)zi_copy_name(op->name, sizeof(op->name), snapshot->name); /* As long. */
	}
	snapshot_op_end(snapshot->zero, op, result);
}

/* See snapshot.h. */
struct tier *snapshot_tier(const struct zero_snapshot *snapshot)
{
	for (uint32_t i = 0; i < snapshot->record->extent_count; i++)
		if (snapshot->extents[i].bytes)
			return snapshot->extents[i].member->tier;
	return NULL;
}

int snapshot_charge(struct zero_snapshot *snapshot, struct tier *tier, struct zi_text *text)
{
	struct zero_account *account = zero_account_of(snapshot->zero, snapshot->uid);
	struct zi_text why = { "" };
	int r;

	if (!account)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for an account"));
	if (!tier)
		return 0;
	r = tier_charge_take(&snapshot->charge, tier, &account->account, snapshot->held_bytes,
	                     &why);
	if (!r)
		return 0;
	return err_origin(
		zi_text_error(text, r == TIER_E_QUOTA ? -EDQUOT : -ENOSPC,
	                      "a snapshot of job '%.63s' keeps %s on %s: %s", snapshot->job_name,
	                      zi_format_bytes(snapshot->held_bytes).chars, tier->name, why.chars));
}

/* See snapshot.h. */
int snapshot_pay(struct zero_job *job, struct zi_text *text)
{
	struct zi_text why = { "" };

	zi_list_for_each(link, &job->zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (!snapshot->is_unpaid || strcmp(snapshot->job_name, job->name) != 0)
			continue;
		if (snapshot_charge(snapshot, snapshot_tier(snapshot), &why))
			return err_origin(zi_text_error(
				text, -EBUSY,
				"job '%.63s' is being exported, and its steps have no room "
				"beside the exported one: wait for the end of the export (%s)",
				job->name, why.chars));
		snapshot->is_unpaid = false;
	}
	return 0;
}

/* ---- the catalog ---- */

/* See snapshot.h. */
void snapshot_submit(struct zero_snapshot *snapshot, enum zero_snapshot_phase phase,
                     catalog_request_fn done)
{
	struct zero *zero = snapshot->zero;
	struct tier *tier = NULL;
	uint32_t members = 0;

	/* What was imported goes down to the media before the catalog names it. */
	if (snapshot->is_import && phase == ZERO_SNAPSHOT_STORING)
		members = snapshot_members(snapshot, &tier);
	snapshot->phase = phase;
	snapshot->request = (struct catalog_request){
		.kind = phase == ZERO_SNAPSHOT_STORING ? CATALOG_JOB_CREATE : CATALOG_JOB_DELETE,
		.job = snapshot->record,
		.is_durable = snapshot->is_import ||
		              snapshot->record->config.durability == ZI_DURABILITY_POWER,
		.done = done,
		.loop = zero->options.loop,
	};
	zero->snapshot_busy_count++;
	flush_then_submit(zero, &snapshot->flush, tier, members, &snapshot->request);
}

/* ---- who may ---- */

/* See snapshot.h. */
bool snapshot_may_use(uint32_t owner_uid, const struct zero_snapshot_op *op)
{
	return op->is_admin || op->uid == owner_uid;
}

/* See snapshot.h. */
int snapshot_job_check(const struct zero *zero, const struct zero_job *job,
                       const struct zero_snapshot_op *op, struct zi_text *text)
{
	int r = change_check(zero, text);

	if (r)
		return err_trace(r);
	if (!job || !snapshot_may_use(job->uid, op))
		return err_origin(zi_text_error(text, -ENOENT,
		                                "no job '%s': zctl jobs lists your jobs", op->job));
	return 0;
}

/* See snapshot.h. */
int snapshot_read_check(const struct zero_snapshot *snapshot, struct zero_snapshot_op *op)
{
	if (!snapshot || !snapshot_may_use(snapshot->uid, op) ||
	    snapshot->phase != ZERO_SNAPSHOT_KEPT)
		return err_origin(zi_text_error(&op->text, -ENOENT, "no snapshot '%s/%s'", op->job,
		                                op->name));
	if (snapshot->refusal)
		return err_origin(zi_text_error(&op->text, snapshot->refusal,
		                                "snapshot '%s/%s' cannot be read: %s", op->job,
		                                op->name, snapshot->refusal_text.chars));
	return 0;
}

/* ---- looking in ---- */

/**
 * zero_snapshot_each() - look at snapshots
 * @job: of this one; NULL all
 *
 * Context: shard thread; @each must not call into zero.
 */
void zero_snapshot_each(struct zero *zero, const char *job,
                        void (*each)(void *arg, const struct zero_snapshot_report *report),
                        void *arg)
{
	zi_list_for_each(link, &zero->snapshots) {
		const struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		/* Nor those that give way: whoever was told of a newer one finds so many as it
		 * asked for, though the catalog may need a moment to forget the others. */
		if (snapshot->phase != ZERO_SNAPSHOT_KEPT || !snapshot->name[0] ||
		    (job && strcmp(snapshot->job_name, job) != 0))
			continue;
		each(arg,
		     &(struct zero_snapshot_report){
			     .job = snapshot->job_name,
			     .name = snapshot->name,
			     .uid = snapshot->uid,
			     .step = snapshot->record->step,
			     .created_s = snapshot->created_s,
			     .held_bytes = snapshot->held_bytes,
			     .charged_bytes = snapshot->charge.bytes,
			     .is_automatic = snapshot->is_automatic,
			     .is_in_use = snapshot->use_count > 0,
			     .refusal = snapshot->refusal ? snapshot->refusal_text.chars : NULL,
		     });
	}
}
