/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of collectives from their beginning to their end, waited for at once or not; see
 * collective.h. Floor 2.
 *
 * A call is taken from a table that grows to what was ever in use at once, and goes back when it
 * was waited for. A call that was interrupted stays with its group until it is repeated. Its ticket
 * is its place there, a number that grows with each use, and a bit that no ticket of the rings has.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "libclient/coll/collective.h"
#include "libclient/gpu/gpu.h"

static_assert((ZI_NODE_QUEUE_MAX & (ZI_NODE_QUEUE_MAX - 1)) == 0,
              "a ticket's place is its low bits");

/* ---- the table ---- */

static int make_more(struct zinf *zinf)
{
	struct zi_client_coll *coll = zinf->coll;
	struct zi_client_call *call;

	if (coll->call_count == ZI_NODE_QUEUE_MAX)
		return zi_client_error(zinf, -ENOBUFS,
		                       "%u calls were never waited for: zinf_wait() their tickets",
		                       coll->call_count);
	call = calloc(1, sizeof(*call));
	if (!call)
		return zi_client_error(zinf, -ENOMEM, "no memory for %u calls",
		                       coll->call_count + 1);
	call->ticket = ZI_CLIENT_TICKET_COLL + coll->call_count;
	coll->free_indices[coll->free_count++] = coll->call_count;
	coll->calls[coll->call_count++] = call;
	return 0;
}

int zi_client_call_new(struct zinf *zinf, struct zi_client_group *group,
                       const struct zinf_coll_options *options, struct zi_client_call **ret_call)
{
	struct zi_client_coll *coll = zinf->coll;
	struct zi_client_call *call;
	int r = coll->free_count ? 0 : make_more(zinf);

	if (r)
		return err_trace(r);
	call = coll->calls[coll->free_indices[--coll->free_count]];
	assert(!call->is_used);
	call->is_used = true;
	call->group = group;
	call->timeout_ms = options && options->timeout_ms ? options->timeout_ms : group->timeout_ms;
	memset(&call->op, 0, offsetof(struct zi_node_op, text));
	call->op.text.chars[0] = '\0';
	call->op.group = &group->node;
	call->op.culprit = ZI_NODE_NOBODY;
	group->call_count++;
	*ret_call = call;
	return 0;
}

static void put_back(struct zi_client_coll *coll, struct zi_client_call *call)
{
	assert(call->is_used);
	call->is_used = false;
	call->group->call_count--;
	coll->free_indices[coll->free_count++] = (uint32_t)(call->ticket & (ZI_NODE_QUEUE_MAX - 1));
	call->ticket += ZI_NODE_QUEUE_MAX;
}

void zi_client_calls_deinit(struct zi_client_coll *coll)
{
	for (uint32_t i = 0; i < coll->call_count; i++) {
		free(coll->calls[i]->p2ps);
		free(coll->calls[i]);
	}
	coll->call_count = coll->free_count = 0;
}

/* ---- making a call ---- */

int zi_client_call_drop(struct zinf *zinf, struct zi_client_call *call, int error)
{
	zinf->text = call->reason;
	put_back(zinf->coll, call);
	return err_origin(error);
}

static void put_text(struct zinf *zinf, const struct zi_client_call *call)
{
	if (call->group->number == ZI_GROUP_WORLD)
		zinf->text = call->op.text;
	else
		zi_text_set(&zinf->text, "group %u: %s", call->group->number, call->op.text.chars);
}

int zi_client_call_end(struct zinf *zinf, struct zi_client_call *call)
{
	int r = call->op.result;

	if (call->group->interrupted == call)
		call->group->interrupted = NULL;
	/* With what is wrong with one call everybody's ends, and the group stands. */
	if (zi_verdict_is_spared(r))
		put_text(zinf, call);
	else if (r)
		r = zi_client_group_fail(zinf, call->group, r);
	put_back(zinf->coll, call);
	return err_trace(r);
}

/* It stays under way until it is repeated. */
static int leave_interrupted(struct zinf *zinf, struct zi_client_call *call)
{
	call->group->interrupted = call;
	(void)zi_client_take_interrupt(zinf); /* It was pending. */
	return err_trace(zi_client_interrupted(zinf));
}

static const char *name_of(const struct zi_client_call *call)
{
	return call->op.p2p_count ? "a call with messages"
	                          : zi_coll_operation_name(call->op.call.operation);
}

static int refuse_other(struct zinf *zinf, const struct zi_client_call *call)
{
	return zi_client_error(zinf, -EBUSY,
	                       "group %u: %s was interrupted: repeat that call with the same "
	                       "arguments first, or zinf_coll_abort() the group",
	                       call->group->number, name_of(call));
}

int zi_client_call_repeat(struct zinf *zinf, struct zi_client_call *call,
                          const struct zinf_coll_options *options, bool is_same)
{
	assert(call->op.is_interrupted);
	if (!is_same || (options && options->ret_ticket))
		return err_trace(refuse_other(zinf, call));
	(void)zi_node_queue_run(zinf->coll->queue, &call->op); /* Its result is kept. */
	if (call->op.is_interrupted)
		return err_trace(leave_interrupted(zinf, call));
	return err_trace(zi_client_call_end(zinf, call));
}

int zi_client_call_forget(struct zinf *zinf, struct zi_client_group *group)
{
	struct zi_client_call *call = group->interrupted;

	if (!call)
		return 0;
	if (!group->error && !zi_line_load(group->node.meet.verdict))
		return err_trace(refuse_other(zinf, call));
	/* The thread ends it, as the group is broken. */
	if (zi_node_op_is_queued(&call->op))
		(void)zi_node_queue_wait(zinf->coll->queue, &call->op, ZI_DEADLINE_NEVER);
	group->interrupted = NULL;
	put_back(zinf->coll, call);
	return 0;
}

int zi_client_call_run(struct zinf *zinf, struct zi_client_call *call,
                       const struct zinf_coll_options *options)
{
	bool is_waiting = !options || !options->ret_ticket;
	int r = 0;

	if (is_waiting && zinf->gpu)
		r = zi_client_gpu_settle_shared(zinf); /* This wait looks for no copies. */
	if (r) {
		call->reason = zinf->text;
		return err_trace(zi_client_call_drop(zinf, call, r));
	}
	call->op.call.timeout_ns = call->timeout_ms * ZI_NS_PER_MS;
	if (call->op.p2p_count)
		call->op.call.deadline_ns = zi_clock_deadline_ns(call->op.call.timeout_ns);
	if (is_waiting)
		call->op.call.interrupt = zinf->interrupt;
	r = is_waiting ? zi_node_queue_run(zinf->coll->queue, &call->op)
	               : zi_node_queue_submit(zinf->coll->queue, &call->op);
	if (is_waiting && call->op.is_interrupted)
		return err_trace(leave_interrupted(zinf, call));
	if (r && (!is_waiting || !zi_node_op_is_done(&call->op))) {
		call->reason = call->op.text;
		return err_trace(zi_client_call_drop(zinf, call, r));
	}
	if (is_waiting)
		return err_trace(zi_client_call_end(zinf, call));
	*options->ret_ticket = call->ticket;
	return 0;
}
