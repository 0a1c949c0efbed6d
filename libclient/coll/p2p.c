/* SPDX-License-Identifier: Apache-2.0 */
/* Sends, receives and batches of them; see collective.h. Floor 2. */
#include <stdlib.h>

#include "common/base/err.h"
#include "libclient/coll/collective.h"

static int make_room(struct zi_client_call *call, uint32_t p2p_count)
{
	struct zi_node_p2p *p2ps;

	if (p2p_count <= call->p2p_capacity)
		return 0;
	p2ps = reallocarray(call->p2ps, p2p_count, sizeof(*p2ps));
	if (!p2ps)
		return err_origin(zi_text_error(&call->reason, -ENOMEM, "no memory for %u messages",
		                                p2p_count));
	call->p2ps = p2ps;
	call->p2p_capacity = p2p_count;
	return 0;
}

static int set_messages(struct zi_client_call *call, const struct zinf_coll_p2p *ops,
                        uint32_t op_count)
{
	int r;

	if (!ops && op_count)
		return err_origin(zi_text_error(&call->reason, -EINVAL,
		                                "a batch of %u messages: ops is NULL", op_count));
	if (!op_count || op_count > ZINF_COLL_BATCH_MAX)
		return err_origin(zi_text_error(&call->reason, -EINVAL,
		                                "a batch of %u messages: 1 to %u are allowed",
		                                ops ? op_count : 0, ZINF_COLL_BATCH_MAX));
	r = make_room(call, op_count);
	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < op_count; i++) {
		if ((ops[i].reserved || ops[i].is_send > 1) && !call->op.call.refused)
			call->op.call.refused = err_origin(zi_text_error(
				&call->reason, -EINVAL,
				"message %u of a batch: is_send is 0 or 1, reserved is 0", i));
		call->p2ps[i] = (struct zi_node_p2p){
			.is_send = ops[i].is_send,
			.dtype = (enum zi_dtype)ops[i].dtype,
			.peer = ops[i].peer,
			.element_count = ops[i].count,
			.buffer = ops[i].data,
		};
	}
	call->op.p2ps = call->p2ps;
	call->op.p2p_count = op_count;
	return 0;
}

int zinf_coll_batch(struct zinf *zinf, const struct zinf_coll_p2p *ops, uint32_t op_count,
                    const struct zinf_coll_options *options)
{
	struct zi_client_call *call;
	int r = zi_client_coll_begin(zinf, options, &call);

	if (r)
		return err_trace(r);
	r = set_messages(call, ops, op_count);
	if (r)
		return err_trace(zi_client_call_drop(zinf, call, r));
	return err_trace(zi_client_coll_make(zinf, call, options));
}

int zinf_coll_send(struct zinf *zinf, const void *data, uint64_t count, enum zinf_dtype dtype,
                   uint32_t peer, const struct zinf_coll_options *options)
{
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
	const struct zinf_coll_p2p op = {
		.peer = peer,
		.data = data,
		.count = count,
		.dtype = dtype,
	};

	return err_trace(zinf_coll_batch(zinf, &op, 1, options));
}
