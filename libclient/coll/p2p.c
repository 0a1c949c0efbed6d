/* SPDX-License-Identifier: Apache-2.0 */
/* Sends, receives and batches of them; see collective.h. Floor 2. */
#include <errno.h>
#include <stdlib.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "libclient/coll/collective.h"

/* A batch that is too long, up to so many messages, is refused in its turn as one with any other
 * fault is, so that its peers hear of it: more is a wild count, and there may be no such array. */
#define P2P_TOLD_MAX (16u * ZINF_COLL_BATCH_MAX)
/* Messages that need no memory to be refused together. */
#define P2P_FEW 64u

static int make_room(struct zi_client_call *call, uint32_t p2p_count)
{
	struct zi_node_p2p *p2ps;

	if (p2p_count <= call->p2p_capacity)
		return 0;
	p2ps = reallocarray(call->p2ps, p2p_count, sizeof(*p2ps));
	if (!p2ps)
		return err_origin(-ENOMEM);
	call->p2ps = p2ps;
	call->p2p_capacity = p2p_count;
	return 0;
}

/* The call's are @p2ps, (@op_count,), as @ops say. */
static void set_messages(struct zi_client_call *call, struct zi_node_p2p *p2ps,
                         const struct zinf_coll_p2p *ops, uint32_t op_count)
{
	for (uint32_t i = 0; i < op_count; i++)
		p2ps[i] = (struct zi_node_p2p){
			.is_send = ops[i].is_send,
			.dtype = (enum zi_dtype)ops[i].dtype,
			.peer = ops[i].peer,
			.element_count = ops[i].count,
			.buffer = ops[i].data,
		};
	call->op.p2ps = p2ps;
	call->op.p2p_count = op_count;
}

static int check_messages(struct zi_client_call *call, const struct zinf_coll_p2p *ops,
                          uint32_t op_count)
{
	for (uint32_t i = 0; i < op_count; i++)
		if (ops[i].reserved || ops[i].is_send > 1)
			return err_origin(zi_text_error(
				&call->reason, -EINVAL,
				"message %u of a batch: is_send is 0 or 1, reserved is 0", i));
	return 0;
}

/*
 * A batch for which there is no memory is refused, with @error and call->reason, in parts that
 * there is room for, so that its peers hear of it. It waits for that; but who asked for a ticket,
 * and gets none, does not wait: then peers hear of it only if nothing is under way that the parts
 * would wait for. Return: @error, or by what the group is over.
 */
static int refuse_in_parts(struct zinf *zinf, struct zi_client_call *call,
                           const struct zinf_coll_p2p *ops, uint32_t op_count, int error,
                           bool is_waiting)
{
	struct zi_node_call *node_call = &call->op.call;
	struct zi_node_p2p few[P2P_FEW], *p2ps = call->p2ps;
	uint32_t capacity = call->p2p_capacity;
	int r = -EINVAL;

	if (!is_waiting && zi_node_queue_is_busy(zinf->coll->queue))
		return err_trace(zi_client_call_drop(zinf, call, error));
	if (capacity < P2P_FEW) {
		p2ps = few;
		capacity = P2P_FEW;
	}
	node_call->refused = -EINVAL;
	node_call->reason = call->reason.chars;
	node_call->timeout_ns = call->timeout_ms * ZI_NS_PER_MS;
	node_call->deadline_ns = zi_clock_deadline_ns(node_call->timeout_ns);
	for (uint32_t done = 0; r == -EINVAL && done < op_count; done += capacity) {
		set_messages(call, p2ps, ops + done, ZI_MIN(op_count - done, capacity));
		r = zi_node_queue_run(zinf->coll->queue, &call->op);
	}
	if (r == -EINVAL || !zi_node_op_is_done(&call->op))
		return err_trace(zi_client_call_drop(zinf, call, error));
	return err_trace(zi_client_call_end(zinf, call));
}

/* Whether @call, which was interrupted, is of these messages. */
static bool is_same(const struct zi_client_call *call, const struct zinf_coll_p2p *ops,
                    uint32_t op_count)
{
	if (!op_count || call->op.p2p_count != op_count)
		return false;
	for (uint32_t i = 0; i < op_count; i++) {
		const struct zi_node_p2p *p2p = &call->op.p2ps[i];

		if (p2p->is_send != (bool)ops[i].is_send || p2p->peer != ops[i].peer ||
		    p2p->dtype != (enum zi_dtype)ops[i].dtype ||
		    p2p->element_count != ops[i].count || p2p->buffer != ops[i].data)
			return false;
	}
	return true;
}

static int check_count(struct zi_client_call *call, const struct zinf_coll_p2p *ops,
                       uint32_t op_count)
{
	if (!ops && op_count)
		return err_origin(zi_text_error(&call->reason, -EINVAL,
		                                "a batch of %u messages: ops is NULL", op_count));
	if (!op_count || op_count > ZINF_COLL_BATCH_MAX)
		return err_origin(zi_text_error(&call->reason, -EINVAL,
		                                "a batch of %u messages: 1 to %u are allowed",
		                                op_count, ZINF_COLL_BATCH_MAX));
	return 0;
}

int zinf_coll_batch(struct zinf *zinf, const struct zinf_coll_p2p *ops, uint32_t op_count,
                    const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ops, ops);
	bool is_waiting = !options || !options->ret_ticket;
	struct zi_client_call *call;
	int r = zi_client_coll_begin(zinf, options, &call);

	if (r)
		return err_trace(r);
	if (call->op.is_interrupted)
		return err_trace(
			zi_client_call_repeat(zinf, call, options, is_same(call, ops, op_count)));
	r = check_count(call, ops, op_count);
	if (r && (!ops || !op_count || op_count > P2P_TOLD_MAX))
		return err_trace(zi_client_call_drop(zinf, call, r));
	if (make_room(call, op_count)) {
		if (!r)
			r = zi_text_error(&call->reason, -ENOMEM, "no memory for %u messages",
			                  op_count);
		return err_trace(refuse_in_parts(zinf, call, ops, op_count, r, is_waiting));
	}
	set_messages(call, call->p2ps, ops, op_count);
	call->op.call.refused = r ? r : check_messages(call, ops, op_count);
	return err_trace(zi_client_coll_make(zinf, call, options));
}

int zinf_coll_send(struct zinf *zinf, const void *data, uint64_t count, enum zinf_dtype dtype,
                   uint32_t peer, const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	const struct zinf_coll_p2p op = {
		.is_send = 1,
		.peer = peer,
		.data = (void *)data, /* a send only reads it */
		.count = count,
		.dtype = dtype,
	};

	return err_trace(zinf_coll_batch(zinf, &op, 1, options));
}

int zinf_coll_recv(struct zinf *zinf, void *data, uint64_t count, enum zinf_dtype dtype,
                   uint32_t peer, const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	const struct zinf_coll_p2p op = {
		.peer = peer,
		.data = data,
		.count = count,
		.dtype = dtype,
	};

	return err_trace(zinf_coll_batch(zinf, &op, 1, options));
}
