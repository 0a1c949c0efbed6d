/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of collectives: those that are waited for at once, and those with a ticket; see
 * collective.h. Floor 2.
 *
 * A call is taken from a table that grows to what was ever in use at once, and goes back when it
 * was waited for. Its ticket has bit 63 set, which no ticket of the rings has.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "libclient/coll/collective.h"

#define TICKET_COLLECTIVE (1ull << 63)

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
	call->ticket = TICKET_COLLECTIVE + coll->call_count;
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

/* The engine speaks of members; in a group they are not the ranks that people know. */
static void put_text(struct zinf *zinf, const struct zi_client_call *call)
{
	const struct zi_client_group *group = call->group;
	uint32_t culprit = call->op.culprit;

	if (group->number == ZI_GROUP_WORLD || culprit >= zi_node_members(&group->node))
		zinf->text = call->op.text;
	else
		zi_text_set(&zinf->text, "group %u, whose member %u is rank %u: %s", group->number,
		            culprit, group->ranks[culprit], call->op.text.chars);
}

/* The call is over; whatever it was, it may be used again. Return: its result, with its text. */
static int end_call(struct zinf *zinf, struct zi_client_call *call)
{
	int r = call->op.result;

	/* With what is wrong with one call everybody's ends, and the group stands. */
	if (zi_verdict_is_spared(r))
		put_text(zinf, call);
	else if (r)
		r = zi_client_group_fail(zinf, call->group, call, r);
	put_back(zinf->coll, call);
	return err_trace(r);
}

int zi_client_call_run(struct zinf *zinf, struct zi_client_call *call,
                       const struct zinf_coll_options *options)
{
	bool is_waiting = !options || !options->ret_ticket;
	int r;

	call->op.call.timeout_ns = call->timeout_ms * ZI_NS_PER_MS;
	/* Other nodes are asked whose fault it is, once the time has passed. */
	if (call->group->node.far)
		call->op.call.timeout_ns += ZI_FAR_PATIENCE_NS;
	if (call->op.p2p_count)
		call->op.call.deadline_ns = zi_clock_deadline_ns(call->op.call.timeout_ns);
	r = is_waiting ? zi_node_queue_run(zinf->coll->queue, &call->op)
	               : zi_node_queue_submit(zinf->coll->queue, &call->op);
	if (r && (!is_waiting || !zi_node_op_is_done(&call->op))) {
		call->reason = call->op.text;
		return err_trace(zi_client_call_drop(zinf, call, r));
	}
	if (is_waiting)
		return err_trace(end_call(zinf, call));
	*options->ret_ticket = call->ticket;
	return 0;
}

/* ---- tickets: what libclient/ticket.c hands over ---- */

bool zi_client_coll_is_ticket(uint64_t ticket)
{
	return ticket & TICKET_COLLECTIVE;
}

static int find(struct zinf *zinf, uint64_t ticket, struct zi_client_call **ret_call)
{
	const struct zi_client_coll *coll = zinf->coll;
	uint64_t index = ticket & (ZI_NODE_QUEUE_MAX - 1);

	if (!coll || index >= coll->call_count || !coll->calls[index]->is_used ||
	    coll->calls[index]->ticket != ticket)
		return zi_client_error(zinf, -EINVAL,
		                       "ticket %#llx is none, or was waited for before",
		                       (unsigned long long)ticket);
	*ret_call = coll->calls[index];
	return 0;
}

int zi_client_coll_wait(struct zinf *zinf, uint64_t ticket, uint64_t timeout_ns)
{
	struct zi_client_call *call;
	int r = find(zinf, ticket, &call);

	if (r)
		return err_trace(r);
	/* Without a deadline of the waiting, the call's own ends it. */
	if (!zi_node_queue_wait(zinf->coll->queue, &call->op,
	                        timeout_ns ? zi_clock_deadline_ns(timeout_ns) : ZI_DEADLINE_NEVER))
		return zi_client_error(zinf, -ETIMEDOUT, "the call is not over within %llu ms",
		                       (unsigned long long)(timeout_ns / ZI_NS_PER_MS));
	return err_trace(end_call(zinf, call));
}

int zi_client_coll_test(struct zinf *zinf, uint64_t ticket, bool *ret_is_done)
{
	struct zi_client_call *call;
	int r = find(zinf, ticket, &call);

	if (r)
		return err_trace(r);
	*ret_is_done = zi_node_op_is_done(&call->op);
	return 0;
}

int zi_client_coll_cancel(struct zinf *zinf, uint64_t ticket)
{
	struct zi_client_call *call;
	int r = find(zinf, ticket, &call);

	if (r)
		return err_trace(r);
	if (zi_node_op_is_done(&call->op))
		return zi_client_error(zinf, -EALREADY, "it has completed: zinf_wait() tells how");
	if (!zi_node_queue_cancel(zinf->coll->queue, &call->op))
		return zi_client_error(zinf, -EBUSY,
		                       "the call is under way, others count on it: it ends with "
		                       "them, or at its deadline");
	return 0;
}
