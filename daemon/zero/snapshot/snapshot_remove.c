/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots that go: asked for, out of turn, or as another node could not keep its part. Floor 5,
 * shard thread. */
#include "daemon/zero/snapshot/snapshot_remove.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/commit.h"

static void removed(struct catalog_request *request)
{
	struct zero_snapshot *snapshot = container_of(request, struct zero_snapshot, request);
	struct zero *zero = snapshot->zero;
	struct zi_text text = request->text;

	zero->snapshot_busy_count--;
	request_look(zero, request);
	snapshot->phase = ZERO_SNAPSHOT_KEPT;
	if (snapshot->op)
		snapshot_tell(snapshot, request->result, &text);
	else if (request->result)
		log_warning("Snapshot '%s/%s' is beyond snapshot_keep, but cannot be removed "
		            "yet: %s",
		            snapshot->job_name, snapshot->name, text.chars);
	if (!request->result)
		(void)snapshot_free(snapshot);
	zero_drain(zero);
}

/* See snapshot_remove.h, as is the next. */
void snapshot_forget(struct zero_snapshot *snapshot)
{
	assert(snapshot->phase == ZERO_SNAPSHOT_STORED);
	snapshot_submit(snapshot, ZERO_SNAPSHOT_DELETING, removed);
}

void snapshot_retain(struct zero *zero, const char *job, uint32_t keep_count)
{
	uint32_t count = 0;

	zi_list_for_each(link, &zero->snapshots) {
		const struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		count += snapshot->is_automatic && snapshot->phase == ZERO_SNAPSHOT_KEPT &&
		         strcmp(snapshot->job_name, job) == 0;
	}
	zi_list_for_each_safe(link, &zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (count <= keep_count)
			break;
		if (!snapshot->is_automatic || snapshot->phase != ZERO_SNAPSHOT_KEPT ||
		    snapshot->use_count || snapshot->moving || strcmp(snapshot->job_name, job) != 0)
			continue;
		snapshot_submit(snapshot, ZERO_SNAPSHOT_DELETING, removed);
		count--;
	}
}

/**
 * zero_snapshot_remove() - forget a snapshot
 * @op: names and who asks; completed when the catalog has forgotten it
 *
 * Context: shard thread.
 */
void zero_snapshot_remove(struct zero *zero, struct zero_snapshot_op *op)
{
	struct zero_snapshot *snapshot = snapshot_find(zero, op->job, op->name);
	int r = change_check(zero, &op->text);

	zi_list_init(&op->link);
	if (!r && (!snapshot || !snapshot_may_use(snapshot->uid, op)))
		r = zi_text_error(&op->text, err_origin(-ENOENT), "no snapshot '%s/%s'", op->job,
		                  op->name);
	if (!r && snapshot->use_count)
		r = zi_text_error(&op->text, err_origin(-EBUSY),
		                  "snapshot '%s/%s' is being exported or loaded", op->job,
		                  op->name);
	else if (!r && snapshot->moving)
		r = zi_text_error(&op->text, err_origin(-EBUSY),
		                  "snapshot '%s/%s' is being moved off a path: try again", op->job,
		                  op->name);
	else if (!r && snapshot->phase != ZERO_SNAPSHOT_KEPT)
		r = zi_text_error(&op->text, err_origin(-EBUSY),
		                  "snapshot '%s/%s' is being made or removed", op->job, op->name);
	if (r) {
		snapshot_op_end(zero, op, r);
	} else {
		snapshot->op = op;
		snapshot_submit(snapshot, ZERO_SNAPSHOT_DELETING, removed);
	}
	zero_drain(zero);
}
