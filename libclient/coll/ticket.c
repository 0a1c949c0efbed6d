/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets of collectives, which libclient/ticket.c hands over; see collective.h. Floor 2. */
#include "common/base/clock.h"
#include "common/base/err.h"
#include "libclient/coll/collective.h"

bool zi_client_coll_is_ticket(uint64_t ticket)
{
	return ticket & ZI_CLIENT_TICKET_COLL;
}

static int find(struct zinf *zinf, uint64_t ticket, struct zi_client_call **ret_call)
{
	const struct zi_client_coll *coll = zinf->coll;
	uint64_t index = ticket & (ZI_NODE_QUEUE_MAX - 1);

	if (!coll || index >= coll->call_count || !coll->calls[index]->is_used ||
	    coll->calls[index]->ticket != ticket)
		return zi_client_error(zinf, -EINVAL,
		                       "ticket %#llx does not exist, or was waited for before",
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
	return err_trace(zi_client_call_end(zinf, call));
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
