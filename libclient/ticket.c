/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tickets: what the caller waits for when it likes. Steps and operations on tensors, which are
 * operations on the rings, are waited for here; collectives in coll/ticket.c. Floor 2.
 */
#include "common/base/clock.h"
#include "common/base/err.h"
#include "libclient/client.h"

/* Statistics of zinf 0.1's first header. */
#define STEP_STATS_BYTES_MIN offsetof(struct zinf_step_stats, committed_step)

static struct zi_client_op *find_ticket(struct zinf *zinf, zinf_ticket ticket)
{
	struct zi_client_op *op = zinf->entries ? zi_client_find(zinf, ticket) : NULL;

	if (!op || op->is_kept || op->state == ZI_CLIENT_OP_ABANDONED)
		return NULL;
	return op->opcode == ZI_OP_STEP || zi_client_is_tensor_op(op->opcode) ? op : NULL;
}

static int no_ticket(struct zinf *zinf, zinf_ticket ticket)
{
	return zi_client_error(zinf, -EINVAL,
	                       "ticket %llu does not exist, or was waited for before",
	                       (unsigned long long)ticket);
}

/* Not waiting for the session's sake: a step that was committed before the session ended is done.
 * @timeout_ns 0: the session's. */
static int wait_ticket(struct zinf *zinf, zinf_ticket ticket, uint64_t timeout_ns,
                       struct zinf_step_stats *ret_stats)
{
	struct zi_client_op *op = find_ticket(zinf, ticket);
	bool is_done = false;
	int r;

	if (!op)
		return no_ticket(zinf, ticket);
	if (ret_stats && ret_stats->bytes < STEP_STATS_BYTES_MIN)
		return zi_client_error(zinf, -EINVAL, "statistics of %u bytes: set `bytes`",
		                       ret_stats->bytes);
	r = timeout_ns ? zi_client_wait_op_for(zinf, op, timeout_ns, &is_done)
	               : zi_client_wait_op(zinf, op, false, &is_done);
	if (!is_done)
		return err_trace(r);
	if (op->opcode == ZI_OP_STEP)
		zi_client_step_over(zinf, op, r, ret_stats);
	else if (!r)
		r = zi_client_tensor_over(zinf, op);
	zi_client_op_free(zinf, op);
	return err_trace(r);
}

int zinf_wait(struct zinf *zinf, zinf_ticket ticket, struct zinf_step_stats *ret_stats)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	if (zi_client_coll_is_ticket(ticket))
		return err_trace(zi_client_coll_wait(zinf, ticket, 0));
	return err_trace(wait_ticket(zinf, ticket, 0, ret_stats));
}

int zinf_wait_for(struct zinf *zinf, zinf_ticket ticket, uint32_t timeout_ms,
                  struct zinf_step_stats *ret_stats)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	if (!timeout_ms)
		return zi_client_error(zinf, -EINVAL,
		                       "a deadline of 0 ms: zinf_test() looks "
		                       "without waiting");
	if (zi_client_coll_is_ticket(ticket))
		return err_trace(zi_client_coll_wait(zinf, ticket, timeout_ms * ZI_NS_PER_MS));
	return err_trace(wait_ticket(zinf, ticket, timeout_ms * ZI_NS_PER_MS, ret_stats));
}

int zinf_test(struct zinf *zinf, zinf_ticket ticket, bool *ret_is_done)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_is_done, ret_is_done);
	struct zi_client_op *op = find_ticket(zinf, ticket);
	int r;

	if (zi_client_coll_is_ticket(ticket))
		return err_trace(zi_client_coll_test(zinf, ticket, ret_is_done));
	if (!op)
		return no_ticket(zinf, ticket);
	r = zi_client_reap(zinf);
	if (r)
		return err_trace(r);
	if (op->state != ZI_CLIENT_OP_DONE) {
		r = zi_client_enter(zinf);
		if (!r)
			r = zi_client_read_notices(zinf);
		if (r)
			return err_trace(r);
	}
	*ret_is_done = op->state == ZI_CLIENT_OP_DONE;
	return 0;
}

int zinf_cancel(struct zinf *zinf, zinf_ticket ticket)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	const struct zi_client_op *op = find_ticket(zinf, ticket);
	int r;

	if (zi_client_coll_is_ticket(ticket))
		return err_trace(zi_client_coll_cancel(zinf, ticket));
	if (!op)
		return no_ticket(zinf, ticket);
	r = zi_client_enter(zinf);
	if (r)
		return err_trace(r);
	if (op->opcode == ZI_OP_STEP)
		return zi_client_error(zinf, -EBUSY,
		                       "a step is every rank's: it cannot be cancelled");
	if (op->state == ZI_CLIENT_OP_DONE)
		return zi_client_error(zinf, -EALREADY, "it has completed: zinf_wait() tells how");
	return err_trace(zi_client_call(zinf, ZI_OP_CANCEL, 0, ticket, NULL));
}
