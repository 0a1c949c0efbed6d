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

/* See acquire.h. */
void grad_try_acquire(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	uint32_t rank = op->rank->number;

	if (job->units[op->unit].held_mask >> rank & 1)
		return;
	if (job->grad_pool && !grad_pool_take(job, rank, op->unit, &op->offset_bytes)) {
		op->has_waited = true;
		if (stall_is_certain(op))
			op_complete(op, stall_refuse(op));
		return;
	}
	op_complete(op, 0);
}

/**
 * zero_grad_acquire() - wait until the unit's gradient buffer is the rank's again
 * @op: unit; completes when it is; with buckets offset_bytes says where
 *
 * -EPERM the rank does not train it. -EDEADLK with buckets: there is no room, and there will be
 * none, since all ranks wait. Context: shard thread.
 */
void zero_grad_acquire(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZI_OP_GRAD_ACQUIRE)) {
		if (set_has(rank->job, op->unit, rank->number)) {
			op_wait(op);
			grad_try_acquire(op);
		} else {
			op_complete(op, unit_refuse_foreign(op));
		}
	}
	zero_drain(zero);
}
