/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that wait longer than their time: who has not come, or what the daemon has not done, is
 * said as far as it is known. One timer per job, at the first of them, expires those of its ranks
 * and those in gathers. Floor 5, shard thread.
 */
#include "daemon/zero/job/op_expire.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/wire/layout.h"
#include "daemon/zero/across/agree/summed.h"
#include "daemon/zero/across/bytes/blobs.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/across/sums/grads.h"
#include "daemon/zero/across/sums/norm.h"
#include "daemon/zero/across/talk/late.h"
#include "daemon/zero/collectives/collectives.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/quiet.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/step/grad_norm.h"
#include "daemon/zero/step/join.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/step_late.h"
#include "daemon/zero/tensor/tensor_wait.h"

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

/* See op_expire.h. "; rank 1 (pid 77) did not come, its last call was reduce 0.2 s ago; rank …" */
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
		return "the step before is still being written";
	case ZI_OP_GRAD_NORM:
		return "gradients are still being summed";
	case ZI_OP_STEP_DISCARD:
		return "what was read or summed for the step has not ended";
	case ZI_OP_STEP:
	case ZI_OP_COMMIT:
		return "the step before is still being written";
	case ZERO_OP_DESTROY:
		return "what is being stored for the job has not ended";
	case ZI_OP_TENSOR_ALLOC:
		return "no room in the budget for tensors, what is put is still being stored";
	case ZI_OP_TENSOR_PUT:
		return "it is still being stored, and stays in memory";
	case ZI_OP_TENSOR_PREFETCH:
	case ZI_OP_TENSOR_GET:
		return "it is still being read, or the budget for tensors has no room for it";
	case ZERO_OP_STATE_READ:
	case ZERO_OP_STATE_WRITE:
		return "optimizer state is still being read or written";
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
	                                         : "zinf-net reports nothing about other nodes";
}

/* Where they were to be found: with a wrong address that is all there is to see. */
static void say_place(const struct zero_op *op, struct zi_text *text)
{
	const struct zi_coll_open *place = op->rank->job->meeting.place;

	if (op->opcode == ZERO_OP_COLL_OPEN && place)
		zi_text_append(text, "; the rendezvous is %.64s:%u (MASTER_ADDR, ZINF_PORT)",
		               place->rendezvous_host, place->rendezvous_port);
}

/* Of a step that all ranks have called: which sums it waits for. */
static bool sums_say_late(const struct zero_job *job, struct zi_text *ret_text)
{
	bool is_told = false;

	for (uint32_t i = 0; i < job->layout.unit_count && !is_told && step_is_called(job); i++)
		is_told = grads_say_late(job, i, ret_text);
	return is_told || norm_say_late(job, ret_text);
}

/* An unshard waits for a step that other ranks of this node have not called. */
static bool step_is_missed(const struct zero_op *op, struct zi_text *ret_text)
{
	const struct zero_job *job = op->rank->job;
	uint64_t come_mask = job->group.gather_masks[ZERO_GATHER_STEP];

	if (!(come_mask >> op->rank->number & 1) || gather_is_full(job, ZERO_GATHER_STEP))
		return false;
	zi_text_set(ret_text, "the unit is not at the current step yet");
	(void)op_say_absent(job, ZERO_GATHER_STEP, ret_text);
	return true;
}

/* What other nodes have yet to give, or this one to write. Return: false, nothing; @ret_text is
 * untouched. */
static bool say_late(const struct zero_op *op, struct zi_text *ret_text)
{
	const struct zero_job *job = op->rank->job;

	switch (op->opcode) {
	case ZI_OP_GRAD_ACQUIRE:
		return grads_say_late(job, op->unit, ret_text);
	case ZI_OP_UNSHARD:
		return params_say_late(job, op->unit, ret_text) || step_is_missed(op, ret_text);
	case ZI_OP_GRAD_NORM:
		return grad_norm_say_late(job, ret_text);
	case ZI_OP_STEP:
	case ZI_OP_STEP_BEGIN:
	case ZI_OP_COMMIT:
		if (summed_say_late(job, ret_text) || blobs_say_late(job, ret_text) ||
		    params_say_late(job, UINT32_MAX, ret_text) || sums_say_late(job, ret_text))
			return true;
		return !job->is_paced &&
		       (late_say_silent(job, ret_text) || step_say_late(job, ret_text));
	case ZERO_OP_MATERIALIZE:
		return summed_say_late(job, ret_text) || blobs_say_late(job, ret_text) ||
		       params_say_late(job, UINT32_MAX, ret_text);
	default:
		return false;
	}
}

static void expire(struct zero_op *op)
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
		if (gather_is_full(job, i))
			say_place(op, &text);
		(void)op_say_absent(job, i, &text); /* Who is first is nobody's business. */
		if (i == ZERO_GATHER_COLL_OPEN)
			collectives_open_expired(job, &text);
		gather_complete(job, i, -ETIMEDOUT, &text);
		if (i == ZERO_GATHER_COLL_GROUP)
			collectives_group_expired(job, &text);
		ops_retry(job); /* After a step() that is void an unshard may go on. */
		return;
	}
	if (op->opcode == ZERO_OP_COLL_GROUP && op->name) {
		named_expired(op);
		return;
	}
	tensor_op_abandon(op);
	if (op->opcode == ZI_OP_STEP_BEGIN && op->options.flags & ZI_STEP_JOINED &&
	    job->step.phase == ZERO_STEP_NONE) {
		op_fail(op, -ETIMEDOUT, "a join timed out after %.1f s: %s", seconds,
		        join_say_late(job).chars);
		return;
	}
	/* What another node has may be behind any of these. */
	if ((op_has_unit(op->opcode) || op->opcode == ZI_OP_STEP_BEGIN ||
	     op->opcode == ZI_OP_STEP) &&
	    late_bytes_expired(op))
		return;
	is_told = say_late(op, &text) || residency_say_late(op, &text);
	op_fail(op, -ETIMEDOUT, "%s timed out after %.1f s: %s", op_name(op->opcode), seconds,
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
		expire(op);
	if (op)
		op_expire_at(job, op_deadline_ns(op));
	zero_drain(zero);
}

/* See op_expire.h. */
void op_expire_at(struct zero_job *job, uint64_t deadline_ns)
{
	if (deadline_ns >= job->timer_ns)
		return;
	job->timer_ns = deadline_ns;
	zi_loop_arm(job->zero->options.loop, &job->timer, deadline_ns, timer_due);
}
