/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pending requests of ranks: begin, wait, complete; op_expire.c has what ends them when their time
 * is over. Floor 5, shard thread.
 *
 * An op that must wait lies in its rank's list. What the daemon does (an update, a reduction) makes
 * ops_retry() look again at those that wait for it: level-triggered, so no event can be missed;
 * lists are as short as a ring. What needs every rank waits in a *gather* (gather.h).
 */
#include "daemon/zero/job/op.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/grad/acquire.h"
#include "daemon/zero/grad/stall.h"
#include "daemon/zero/job/forward.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op_expire.h"
#include "daemon/zero/param/unit.h"
#include "daemon/zero/step/grad_norm.h"
#include "daemon/zero/step/step.h"

/* Return: what people call it. */
const char *op_name(uint16_t opcode)
{
	switch (opcode) {
	case ZERO_OP_MATERIALIZE:
		return "materialize";
	case ZERO_OP_WRITE_BEGIN:
		return "param_write_begin";
	case ZERO_OP_WRITE_END:
		return "param_write_end";
	case ZERO_OP_DESTROY:
		return "destroy";
	case ZERO_OP_TENSOR_OPEN:
		return "tensor_open";
	case ZERO_OP_COLL_OPEN:
		return "coll_open";
	case ZERO_OP_COLL_GROUP:
		return "coll_group";
	case ZERO_OP_STATE_OPEN:
		return "state_open";
	case ZERO_OP_STATE_READ:
		return "state_read";
	case ZERO_OP_STATE_WRITE:
		return "state_write";
	case ZERO_OP_STATE_COUNT:
		return "update_count_set";
	default:
		return zi_opcode_name(opcode);
	}
}

/* Return: the op's unit means something. */
bool op_has_unit(uint16_t opcode)
{
	return opcode == ZI_OP_UNSHARD || opcode == ZI_OP_RESHARD || opcode == ZI_OP_PREFETCH ||
	       opcode == ZI_OP_GRAD_ACQUIRE || opcode == ZI_OP_REDUCE ||
	       opcode == ZI_OP_GRAD_UNUSED || opcode == ZERO_OP_WRITE_BEGIN ||
	       opcode == ZERO_OP_WRITE_END || opcode == ZERO_OP_STATE_READ ||
	       opcode == ZERO_OP_STATE_WRITE;
}

/* Calls that need no model: the group may still be FORMING. */
static bool is_before_model(uint16_t opcode)
{
	return opcode == ZERO_OP_MATERIALIZE || opcode == ZERO_OP_DESTROY ||
	       opcode == ZERO_OP_COLL_OPEN || opcode == ZERO_OP_COLL_GROUP;
}

/* Fills the private part. Return: false when the op was completed, as it cannot be served now. */
bool op_begin(struct zero_rank *rank, struct zero_op *op, uint16_t opcode)
{
	const struct zero_job *job = rank->job;
	int r;

	assert(op->done);
	op->opcode = opcode;
	op->rank = rank;
	op->result = 0;
	op->has_waited = false;
	op->is_preferred = false;
	op->offset_bytes = 0;
	op->micro_batches = 0;
	op->text.chars[0] = '\0';
	op->queued_ns = zi_clock_now_ns();
	zi_list_init(&op->link);
	rank->doing = opcode;
	rank->doing_unit = op->unit;
	rank->doing_ns = op->queued_ns;
	if (rank->broken_error) {
		op->text = rank->broken_text;
		op_complete(op, rank->broken_error);
		return false;
	}
	/* The group breaks when its step has been written. */
	if (job->group.phase == ZERO_GROUP_LIVE && job->group.error && !job->group.is_left) {
		op->text = job->group.text;
		op_complete(op, job->group.error);
		return false;
	}
	/* Its extents are about to be free, and its request to the catalog is in use. */
	if (job->is_deleting) {
		op_fail(op, -EBUSY, "job '%s' is being deleted", job->name);
		return false;
	}
	if (is_before_model(opcode))
		return true;
	if (job->group.phase != ZERO_GROUP_LIVE) {
		op_fail(op, -EINVAL, "%s before materialize", op_name(opcode));
		return false;
	}
	r = forward_call_check(job, opcode, &op->text);
	if (r) {
		op_complete(op, r);
		return false;
	}
	if (op_has_unit(opcode) && op->unit >= job->layout.unit_count) {
		op_fail(op, -EINVAL, "unit %u: the job has %u", op->unit, job->layout.unit_count);
		return false;
	}
	return true;
}

/* Not yet seen by its owner: zero_drain() calls `done`. */
void op_complete(struct zero_op *op, int result)
{
	struct zero_rank *rank = op->rank;

	assert(result <= 0);
	if (result && !op->text.chars[0])
		zi_text_set(&op->text, "%s: %s", op_name(op->opcode), zi_err_name(result));
	op->result = result;
	for (uint32_t i = 0; i < _ZERO_GATHER_COUNT; i++)
		if (rank->gathered[i] == op)
			rank->gathered[i] = NULL;
	if (rank->write && rank->write->op == op)
		rank->write->op = NULL;
	if (rank->state && rank->state->op == op)
		rank->state->op = NULL;
	if (rank->job->destroy_op == op)
		rank->job->destroy_op = NULL;
	zi_list_remove(&op->link);
	zi_list_push_back(&rank->job->zero->completed, &op->link);
}

/* Completes @op with @error and a sentence. */
void op_fail(struct zero_op *op, int error, const char *format, ...)
{
	va_list args;

	assert(error < 0);
	va_start(args, format);
	(void)vsnprintf(op->text.chars, sizeof(op->text.chars), format, args); /* Cut: a text. */
	va_end(args);
	op_complete(op, error);
}

/* ---- time ---- */

/* See op.h. */
uint64_t op_timeout_ns(const struct zero_op *op)
{
	return op->timeout_ns ? op->timeout_ns : op->rank->timeout_ns;
}

/* See op.h. */
uint64_t op_deadline_ns(const struct zero_op *op)
{
	if (op_timeout_ns(op) > ZI_DEADLINE_NEVER - op->queued_ns)
		return ZI_DEADLINE_NEVER;
	return op->queued_ns + op_timeout_ns(op);
}

/* See op.h. */
void op_prolong(struct zero_op *op, uint64_t deadline_ns)
{
	assert(deadline_ns > op->queued_ns);
	op->timeout_ns = deadline_ns - op->queued_ns;
}

/* Pending from now on, with the rank's timeout. */
void op_wait(struct zero_op *op)
{
	assert(!zi_list_is_linked(&op->link));
	zi_list_push_back(&op->rank->ops, &op->link);
	op_expire_at(op->rank->job, op_deadline_ns(op));
}

/* ---- many of them ---- */

/* Looks again at every op that waits for the daemon (unshard, grad_acquire, step_begin, grad_norm).
 */
void ops_retry(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		if (!job->group.ranks[i])
			continue;
		zi_list_for_each_safe(link, &job->group.ranks[i]->ops) {
			struct zero_op *op = container_of(link, struct zero_op, link);

			if (op->opcode == ZI_OP_UNSHARD)
				unit_try_unshard(op);
			else if (op->opcode == ZI_OP_GRAD_ACQUIRE)
				grad_try_acquire(op);
			else if (op->opcode == ZI_OP_STEP_BEGIN)
				step_try_begin(op);
			else if (op->opcode == ZI_OP_GRAD_NORM)
				grad_norm_try(op);
			/* A failed step_begin may have broken the group: its lists are empty. */
			if (job->group.phase != ZERO_GROUP_LIVE)
				return;
		}
	}
	stall_look(job);
}

/* A rank leaves: what is pending or not yet told ends now, in this call. */
void ops_cancel(struct zero_rank *rank)
{
	struct zero *zero = rank->job->zero;
	struct zi_list *link;

	zi_list_for_each_safe(pending, &rank->ops) {
		struct zero_op *op = container_of(pending, struct zero_op, link);

		op_fail(op, -ECANCELED, "%s was cancelled: this rank leaves", op_name(op->opcode));
	}
	for (;;) {
		struct zero_op *op = NULL;

		for (link = zero->completed.next; link != &zero->completed && !op;
		     link = link->next)
			if (container_of(link, struct zero_op, link)->rank == rank)
				op = container_of(link, struct zero_op, link);
		if (!op)
			return;
		zi_list_remove(&op->link);
		op->done(op);
	}
}
