/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading what a snapshot holds, for whoever writes it elsewhere; the job trains on. Floor 5, shard
 * thread. Whoever reads compares with the checksums: they come with the record. Of a job over
 * several nodes it is what this node holds, and the record says which node of how many that is.
 */
#include "daemon/zero/zero.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot.h"

/**
 * zero_snapshot_hold() - hold a snapshot, or the committed step, for reading
 * @op: names and who asks; `held` is the caller's when it completes with 0
 *
 * Context: shard thread.
 */
void zero_snapshot_hold(struct zero *zero, struct zero_snapshot_op *op)
{
	struct zero_snapshot *snapshot;
	int r;

	if (!op->name[0]) {
		op->is_hold = true;
		zero_snapshot_create(zero, op);
		return;
	}
	zi_list_init(&op->link);
	snapshot = snapshot_find(zero, op->job, op->name);
	r = snapshot_read_check(snapshot, op);
	if (!r) {
		snapshot->use_count++;
		op->held = snapshot;
		op->step = snapshot->record->step;
		op->held_bytes = snapshot->held_bytes;
	}
	snapshot_op_end(zero, op, r);
	zero_drain(zero);
}

/* See zero_snapshot.h. Context: shard thread. */
void zero_snapshot_withdraw(struct zero *zero, struct zero_snapshot_op *op)
{
	zi_list_for_each(link, &zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (snapshot->op != op || !snapshot->is_hold ||
		    snapshot->phase != ZERO_SNAPSHOT_WAITING)
			continue;
		snapshot->op = NULL;
		(void)snapshot_free(snapshot);
		zi_text_set(&op->text, "the export of job '%s' was withdrawn", op->job);
		snapshot_op_end(zero, op, err_origin(-ECANCELED));
		zero_drain(zero);
		return;
	}
}

/* Nothing may be read any more. Context: shard thread. */
void zero_snapshot_release(struct zero_snapshot *held)
{
	assert(held->use_count > 0);
	struct zero *zero = held->zero;

	held->use_count--;
	if (!held->name[0])
		(void)snapshot_free(held);
	evacuate_kick(zero);
}

/* Return: what it is; valid while it is held. */
const struct catalog_job *zero_snapshot_record(const struct zero_snapshot *held)
{
	return held->record;
}

/* Return: the path of the store that an extent lies on. */
const char *zero_snapshot_path(const struct zero_snapshot *held, uint32_t index)
{
	return held->extents[index].member->path;
}

static void read_done(struct tier_move *move)
{
	struct zero_read *read = container_of(move, struct zero_read, move);
	struct zero *zero = read->held->zero;

	zero->snapshot_busy_count--;
	share_release(&zero->shares, &read->extent);
	read->result = move->result;
	read->done(read); /* Whoever asked may have gone, and let go of what was held. */
	zero_drain(zero);
}

/**
 * zero_snapshot_read() - read one extent; several may be out
 * @read: filled by the caller
 *
 * Return: 0: `done` will run; an errno of the engine; -ENOMEM. Context: shard thread.
 */
int zero_snapshot_read(struct zero_read *read)
{
	struct zero *zero = read->held->zero;
	const struct tier_extent *extent = &read->held->extents[read->index];
	int r = share_reserve(&zero->shares, 1);

	if (r)
		return err_trace(r);

	assert(read->index < read->held->record->extent_count);
	assert(extent->bytes);
	read->move = (struct tier_move){
		.member = extent->member,
		.offset_bytes = extent->offset_bytes,
		.buffer = read->buffer,
		.bytes = extent->bytes,
		.done = read_done,
	};
	r = tier_move_submit(zero->options.engine, &read->move);
	if (r)
		return err_trace(r);
	read->extent = *extent; /* Where it lies may change meanwhile. */
	share_hold(&zero->shares, &read->extent);
	zero->snapshot_busy_count++;
	tier_move_kick(zero->options.engine);
	return 0;
}
