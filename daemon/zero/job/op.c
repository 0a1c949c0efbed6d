/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pending requests of ranks: begin, wait, complete, expire. Floor 5, shard thread.
 *
 * An op that must wait lies in its rank's list. What the daemon does (an update, a reduction) makes
 * ops_retry() look again at those that wait for it: level-triggered, so no event can be missed;
 * lists are as short as a ring. What needs every rank waits in a *gather* (gather.h). One timer per
 * job expires both.
 */
#include "daemon/zero/job/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/across/agree/summed.h"
#include "daemon/zero/across/bytes/blobs.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/across/sums/grads.h"
#include "daemon/zero/across/talk/late.h"
#include "daemon/zero/collectives/collectives.h"
#include "daemon/zero/grad/acquire.h"
#include "daemon/zero/grad/stall.h"
#include "daemon/zero/job/forward.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/param/unit.h"
#include "daemon/zero/step/join.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/tensor/tensor_wait.h"

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
	default:
		return zi_opcode_name(opcode);
	}
}

static bool has_unit(uint16_t opcode)
{
	return opcode == ZI_OP_UNSHARD || opcode == ZI_OP_RESHARD || opcode == ZI_OP_PREFETCH ||
	       opcode == ZI_OP_GRAD_ACQUIRE || opcode == ZI_OP_REDUCE ||
	       opcode == ZI_OP_GRAD_UNUSED || opcode == ZERO_OP_WRITE_BEGIN ||
	       opcode == ZERO_OP_WRITE_END;
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
	if (has_unit(opcode) && op->unit >= job->layout.unit_count) {
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

static struct zero_op *first_due(struct zero_job *job)
{
	struct zero_op *first = NULL;

	for (uint32_t i = 0; i < job->group.world_size; i++) {
		if (!job->group.ranks[i])
			continue;
		zi_list_for_each(link, &job->group.ranks[i]->ops) {
			struct zero_op *op = container_of(link, struct zero_op, link);

			if (!first || op_deadline_ns(op) < op_deadline_ns(first))
				first = op;
		}
	}
	return first;
}

/* See op.h. "; rank 1 (pid 77) did not come, its last call was REDUCE 0.2 s ago; rank 2 …" */
uint32_t op_say_absent(const struct zero_job *job, enum zero_gather gather, struct zi_text *text)
{
	uint32_t first = UINT32_MAX;
	uint64_t now_ns = zi_clock_now_ns();
	size_t used = strlen(text->chars);

	for (uint32_t i = 0; i < job->group.world_size && used < sizeof(text->chars); i++) {
		const struct zero_rank *rank = job->group.ranks[i];
		size_t left = sizeof(text->chars) - used;
		int written;

		if (job->group.gather_masks[gather] >> i & 1)
			continue;
		if (!rank && job_spans_nodes(job))
			continue; /* It may be another node's. */
		first = ZI_MIN(first, i);
		if (!rank)
			written =
				snprintf(text->chars + used, left, "; rank %u is not attached", i);
		else if (!rank->doing)
			written = snprintf(text->chars + used, left,
			                   "; rank %u (pid %d) did not come, it only attached", i,
			                   rank->pid);
		else
			written = snprintf(
				text->chars + used, left,
				"; rank %u (pid %d) did not come, its last call was %s %.1f s ago",
				i, rank->pid, op_name(rank->doing),
				(double)(now_ns - rank->doing_ns) / (double)ZI_NS_PER_S);
		used += written > 0 ? (size_t)written : left;
	}
	if (job->group.rank_count < job->group.local_size && job_spans_nodes(job) &&
	    used < sizeof(text->chars))
		(void)snprintf(text->chars + used, sizeof(text->chars) - used,
		               "; %u of the %u ranks of this node are attached",
		               job->group.rank_count, job->group.local_size); /* Cut at worst. */
	return first;
}

static const char *waited_for(const struct zero_op *op)
{
	switch (op->opcode) {
	case ZI_OP_UNSHARD:
		if (op->has_waited)
			return "its parameters are still being read, or other ranks keep so many "
			       "units unsharded that param_budget_bytes has no room";
		return "the unit is not at the current step yet";
	case ZI_OP_GRAD_ACQUIRE:
		if (op->has_waited && !spill_is_idle(op->rank->job))
			return "buckets are full of units whose sums of gradients are still being "
			       "written to the store";
		if (op->has_waited)
			return "buckets are full of units that other ranks have not handed over, "
			       "or use";
		return "the daemon needs the gradient, or another rank has not handed its over";
	case ZI_OP_STEP_BEGIN:
		if (op->rank->job->is_paced)
			return "the day's write budget of its uid or store is used up, and slows "
			       "it down (raise timeout_ms, or the budget)";
		return "the former step is still being written";
	case ZI_OP_STEP:
	case ZI_OP_COMMIT:
		return "the former step is still being written";
	case ZERO_OP_DESTROY:
		return "what is being stored for the job has not ended";
	case ZI_OP_TENSOR_ALLOC:
		return "no room in the budget for tensors, what is put is still being stored";
	case ZI_OP_TENSOR_PUT:
		return "it is still being stored, and stays in memory";
	case ZI_OP_TENSOR_PREFETCH:
	case ZI_OP_TENSOR_GET:
		return "it is still being read, or the budget for tensors has no room for it";
	case ZERO_OP_MATERIALIZE:
		return materialize_obstacle(op->rank->job);
	default:
		return "memory is still being prepared";
	}
}

/* A gather that is full is the daemon's to end, and the other ranks' go on. But what nodes are
 * asked for, a group or collectives at all, is for all ranks or for none; so is what has not begun.
 */
static bool is_everyones(const struct zero_job *job, enum zero_gather gather)
{
	if (gather == ZERO_GATHER_MATERIALIZE && !materialize_is_on(job))
		return true; /* Nothing has begun: all may come anew. */
	if (job->group.held >> gather & 1)
		return true; /* Other nodes have no word of it. */
	return gather == ZERO_GATHER_COLL_GROUP || !gather_is_full(job, gather) ||
	       (gather == ZERO_GATHER_COLL_OPEN && job->collectives.is_joining);
}

/* Why a gather that is full has not ended. */
static const char *late_of(const struct zero_op *op)
{
	if (op->opcode == ZI_OP_BARRIER)
		return "what was called before it has not ended on all nodes";
	return op->opcode == ZERO_OP_MATERIALIZE ? waited_for(op)
	                                         : "zinf-net says nothing of other nodes";
}

/* What other nodes have yet to give. Return: false, nothing; @ret_text is untouched. */
static bool say_late(const struct zero_op *op, struct zi_text *ret_text)
{
	const struct zero_job *job = op->rank->job;

	switch (op->opcode) {
	case ZI_OP_GRAD_ACQUIRE:
		return grads_say_late(job, op->unit, ret_text);
	case ZI_OP_UNSHARD:
		return params_say_late(job, op->unit, ret_text);
	case ZI_OP_STEP:
	case ZI_OP_STEP_BEGIN:
	case ZERO_OP_MATERIALIZE:
		return summed_say_late(job, ret_text) || blobs_say_late(job, ret_text) ||
		       params_say_late(job, UINT32_MAX, ret_text);
	default:
		return false;
	}
}

static void op_expire(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	double seconds = (double)op_timeout_ns(op) / (double)ZI_NS_PER_S;
	struct zi_text text;
	bool is_told;

	for (uint32_t i = 0; i < _ZERO_GATHER_COUNT; i++) {
		if (op->rank->gathered[i] != op)
			continue;
		if (quiet_expired(op, i) || late_expired(op, i))
			return;
		if (!is_everyones(job, i))
			continue;
		zi_text_set(&text, "%s timed out after %.1f s%s%s", op_name(op->opcode), seconds,
		            gather_is_full(job, i) ? ": " : "",
		            gather_is_full(job, i) ? late_of(op) : "");
		(void)op_say_absent(job, i, &text); /* Who is first is nobody's business. */
		if (i == ZERO_GATHER_COLL_OPEN)
			collectives_open_expired(job, &text);
		gather_complete(job, i, -ETIMEDOUT, &text);
		if (i == ZERO_GATHER_COLL_GROUP)
			collectives_group_expired(job, &text);
		ops_retry(job); /* After a step() that is void an unshard may go on. */
		return;
	}
	tensor_op_abandon(op);
	if (op->opcode == ZI_OP_STEP_BEGIN && op->options.flags & ZI_STEP_JOINED &&
	    job->step.phase == ZERO_STEP_NONE) {
		op_fail(op, -ETIMEDOUT, "a join timed out after %.1f s: %.200s", seconds,
		        join_say_late(job).chars);
		return;
	}
	/* What another node has may be behind any of these. */
	if ((has_unit(op->opcode) || op->opcode == ZI_OP_STEP_BEGIN || op->opcode == ZI_OP_STEP) &&
	    late_bytes_expired(op))
		return;
	is_told = say_late(op, &text) || residency_say_late(op, &text);
	op_fail(op, -ETIMEDOUT, "%s timed out after %.1f s: %.220s", op_name(op->opcode), seconds,
	        is_told ? text.chars : waited_for(op));
}

static void timer_due(struct zi_timer *timer)
{
	struct zero_job *job = container_of(timer, struct zero_job, timer);
	struct zero *zero = job->zero;
	uint64_t now_ns = zi_clock_now_ns();
	struct zero_op *op;

	job->timer_ns = ZI_DEADLINE_NEVER;
	/* Each turn completes one op at least: bounded by what is pending. */
	while ((op = first_due(job)) && op_deadline_ns(op) <= now_ns)
		op_expire(op);
	if (op && op_deadline_ns(op) != ZI_DEADLINE_NEVER) {
		job->timer_ns = op_deadline_ns(op);
		zi_loop_arm(zero->options.loop, &job->timer, job->timer_ns, timer_due);
	}
	zero_drain(zero);
}

/* Pending from now on, with the rank's timeout. */
void op_wait(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	uint64_t deadline_ns = op_deadline_ns(op);

	assert(!zi_list_is_linked(&op->link));
	zi_list_push_back(&op->rank->ops, &op->link);
	if (deadline_ns >= job->timer_ns)
		return;
	job->timer_ns = deadline_ns;
	zi_loop_arm(job->zero->options.loop, &job->timer, deadline_ns, timer_due);
}

/* ---- many of them ---- */

/* Looks again at every op that waits for the daemon (unshard, grad_acquire, step_begin). */
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
