/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank is given room for its gradient of a unit: its own, once what it handed over is summed, or
 * with buckets any. Floor 5, shard thread.
 */
#include "daemon/zero/grad/acquire.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/grad/pool.h"
#include "daemon/zero/grad/stall.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/unit.h"
#include "daemon/zero/step/discard.h"

/* See acquire.h. */
void grad_try_acquire(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	uint32_t rank = op->rank->number;

	if (discard_is_wanted(job)) {
		op_complete(op, discard_refuse(op));
		return;
	}
	if (job->units[op->unit].held_mask >> rank & 1)
		return;
	if (job->grad_pool && !grad_pool_take(job, rank, op->unit, &op->offset_bytes))
		op->has_waited = true;
	else
		op_complete(op, 0);
}

/* Whether a bucket will ever come is looked for among all that waits: each call waits once. */
static bool waits_already(const struct zero_op *op)
{
	zi_list_for_each(link, &op->rank->ops) {
		const struct zero_op *other = container_of(link, struct zero_op, link);

		if (other->opcode == op->opcode && other->unit == op->unit)
			return op->rank->job->grad_pool;
	}
	return false;
}

static void acquire(struct zero_op *op)
{
	const struct zero_job *job = op->rank->job;

	if (!set_trains(job, op->unit, op->rank->number)) {
		op_complete(op, unit_refuse_foreign(op));
		return;
	}
	if (waits_already(op)) {
		op_fail(op, -EALREADY, "the gradient of unit '%.60s' is waited for already",
		        job->layout.units[op->unit].name);
		return;
	}
	op_wait(op);
	grad_try_acquire(op);
	if (op->has_waited && stall_is_certain(op))
		op_complete(op, stall_refuse(op));
}

/**
 * zero_grad_acquire() - wait until the unit's gradient buffer is the rank's again
 * @op: unit; completes when it is; with buckets offset_bytes says where
 *
 * -EPERM the rank does not train it. With buckets -EDEADLK: there is no room, and there will be
 * none, since all ranks wait; -EALREADY: the rank waits for it already. Context: shard thread.
 */
void zero_grad_acquire(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZI_OP_GRAD_ACQUIRE))
		acquire(op);
	zero_drain(zero);
}
