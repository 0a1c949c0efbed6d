/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: activations and other blobs in a segment of this rank, which the daemon spills to its
 * store and brings back. Floor 2.
 *
 * The daemon says where in the segment a tensor lies; here the place is only checked, used and
 * given back. A get into the caller's buffer copies when its ticket is waited for, since only then
 * does the caller look, and releases at once.
 */
#include <string.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/region.h"
#include "libclient/client.h"

static struct zi_sqe slot_of(enum zi_opcode opcode, uint64_t id, uint64_t bytes)
{
	return (struct zi_sqe){ .opcode = (uint16_t)opcode, .args = { id, bytes } };
}

bool zi_client_is_tensor_op(uint16_t opcode)
{
	return opcode == ZI_OP_TENSOR_PUT || opcode == ZI_OP_TENSOR_PREFETCH ||
	       opcode == ZI_OP_TENSOR_GET;
}

void zi_client_unmap_tensors(struct zinf *zinf)
{
	(void)zi_region_unmap(zinf->tensor_base, zinf->tensor_bytes); /* Asserts inside. */
	zinf->tensor_base = NULL;
}

static int enter(struct zinf *zinf)
{
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (!zinf->tensor_base)
		return zi_client_error(zinf, -EINVAL, "call zinf_tensor_open() first");
	return 0;
}

/* NULL: the daemon lies. */
static void *place_at(const struct zinf *zinf, uint64_t offset_bytes, uint64_t bytes)
{
	if (offset_bytes > zinf->tensor_bytes || bytes > zinf->tensor_bytes - offset_bytes)
		return NULL;
	return (char *)zinf->tensor_base + offset_bytes;
}

int zinf_tensor_open(struct zinf *zinf, uint64_t budget_bytes)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_tensor_open request = { .budget_bytes = budget_bytes };
	const struct zi_message_header *reply;
	int fds[ZI_MESSAGE_FDS_MAX];
	uint64_t bytes;
	int r;

	r = zi_client_enter(zinf);
	if (r)
		return err_trace(r);
	if (!zinf->is_materialized)
		return zi_client_error(zinf, -EINVAL, "call zinf_materialize() first");
	if (zinf->tensor_base)
		return zi_client_error(zinf, -EALREADY, "zinf_tensor_open() was called before");
	if (!(zinf->features & ZI_FEATURE_TENSORS))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "zinfd at %s knows no tensors, use a newer one", zinf->path);
	r = zi_client_request(zinf, &request.header, ZI_MESSAGE_TENSOR_OPEN, sizeof(request),
	                      ZI_MESSAGE_TENSOR_OPENED, &reply, fds, 1);
	if (r)
		return err_trace(r);
	bytes = ((const struct zi_tensor_opened *)reply)->bytes;
	r = bytes < budget_bytes ? -EPROTO : zi_region_map(fds[0], bytes, true, &zinf->tensor_base);
	(void)zi_close(fds[0]); /* The mapping is enough. */
	if (r == -EPROTO || r == -EACCES)
		return err_trace(zi_client_breach(zinf, "memory for tensors that is not sealed, "
		                                        "too short, or read-only"));
	if (r)
		return zi_client_error(zinf, r, "mapping %s for tensors: %s",
		                       zi_format_bytes(bytes).chars, strerror(-r));
	zinf->tensor_bytes = bytes;
	return 0;
}

int zinf_tensor_alloc(struct zinf *zinf, uint64_t id, size_t bytes, void **ret_place)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_place, ret_place);
	const struct zi_sqe slot = slot_of(ZI_OP_TENSOR_ALLOC, id, bytes);
	uint64_t offset_bytes;
	void *place;
	int r = enter(zinf);

	if (r)
		return err_trace(r);
	r = zi_client_call_slot(zinf, &slot, &offset_bytes);
	if (r)
		return err_trace(r);
	place = place_at(zinf, offset_bytes, bytes);
	if (!place)
		return err_trace(zi_client_breach(zinf, "a tensor outside its memory"));
	*ret_place = place;
	return 0;
}

static int submit(struct zinf *zinf, const struct zi_sqe *slot, zinf_ticket *ret_ticket)
{
	struct zi_client_op *op;
	int r;

	/* The caller could not repeat it: of a tensor with data the memory is given out already. */
	zinf->holds_interrupts = true;
	r = zi_client_submit_slot(zinf, slot, false, &op);
	zinf->holds_interrupts = false;
	if (r)
		return err_trace(r);
	*ret_ticket = op->ticket;
	return 0;
}

int zinf_tensor_put(struct zinf *zinf, uint64_t id, const void *data, size_t bytes,
                    zinf_ticket *ret_ticket)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_ticket, ret_ticket);
	const struct zi_sqe slot = slot_of(ZI_OP_TENSOR_PUT, id, bytes);
	int r = enter(zinf);

	if (!r && data) {
		void *place;

		r = zinf_tensor_alloc(zinf, id, bytes, &place);
		if (!r)
			memcpy(place, data, bytes);
	}
	if (r)
		return err_trace(r);
	return err_trace(submit(zinf, &slot, ret_ticket));
}

int zinf_tensor_prefetch(struct zinf *zinf, uint64_t id, zinf_ticket *ret_ticket)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_ticket, ret_ticket);
	const struct zi_sqe slot = slot_of(ZI_OP_TENSOR_PREFETCH, id, 0);
	int r = enter(zinf);

	if (r)
		return err_trace(r);
	return err_trace(submit(zinf, &slot, ret_ticket));
}

int zinf_tensor_get(struct zinf *zinf, uint64_t id, void *buffer, size_t bytes,
                    zinf_ticket *ret_ticket)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_ticket, ret_ticket);
	const struct zi_sqe slot = slot_of(ZI_OP_TENSOR_GET, id, 0);
	struct zi_client_op *op;
	int r = enter(zinf);

	if (r)
		return err_trace(r);
	if (!buffer)
		return zi_client_error(zinf, -EINVAL,
		                       "no buffer: zinf_tensor_map() gives the tensor in place");
	r = zi_client_submit_slot(zinf, &slot, false, &op);
	if (r)
		return err_trace(r);
	op->tensor_id = id;
	op->tensor_buffer = buffer;
	op->tensor_bytes = bytes;
	*ret_ticket = op->ticket;
	return 0;
}

static int release(struct zinf *zinf, uint64_t id)
{
	return err_trace(zi_client_call(zinf, ZI_OP_TENSOR_RELEASE, 0, id, NULL));
}

/* Its ticket has completed well: the bytes are the caller's now. What it says to the daemon is no
 * part of that: a session that ends here has given them. */
int zi_client_tensor_over(struct zinf *zinf, const struct zi_client_op *op)
{
	/* Before the next operation: it may use the same entry. */
	const struct zi_client_op got = *op;
	const void *place;

	if (got.opcode != ZI_OP_TENSOR_GET)
		return 0;
	place = place_at(zinf, got.value, got.value1);
	if (!place)
		return err_trace(zi_client_breach(zinf, "a tensor outside its memory"));
	if (got.value1 == got.tensor_bytes)
		memcpy(got.tensor_buffer, place, got.value1);
	zinf->holds_interrupts = true;
	(void)release(zinf, got.tensor_id); /* The next call meets the same end. */
	zinf->holds_interrupts = false;
	if (got.value1 != got.tensor_bytes)
		return zi_client_error(zinf, -EINVAL, "tensor %llu has %llu bytes, the buffer %llu",
		                       (unsigned long long)got.tensor_id,
		                       (unsigned long long)got.value1,
		                       (unsigned long long)got.tensor_bytes);
	return 0;
}

int zinf_tensor_map(struct zinf *zinf, uint64_t id, const void **ret_place, size_t *ret_bytes)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_place, ret_place);
	ZI_CLIENT_NEED(zinf, ret_bytes, ret_bytes);
	const struct zi_sqe slot = slot_of(ZI_OP_TENSOR_GET, id, 0);
	struct zi_client_op *op;
	const void *place;
	uint64_t bytes;
	int r = enter(zinf);

	if (!r)
		r = zi_client_call_op(zinf, &slot, &op);
	if (r)
		return err_trace(r);
	place = place_at(zinf, op->value, op->value1);
	bytes = op->value1;
	zi_client_op_free(zinf, op);
	if (!place)
		return err_trace(zi_client_breach(zinf, "a tensor outside its memory"));
	*ret_place = place;
	*ret_bytes = bytes;
	return 0;
}

int zinf_tensor_unmap(struct zinf *zinf, uint64_t id)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = enter(zinf);

	if (r)
		return err_trace(r);
	return err_trace(release(zinf, id));
}

int zinf_tensor_free(struct zinf *zinf, uint64_t id)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = enter(zinf);

	if (r)
		return err_trace(r);
	return err_trace(zi_client_call(zinf, ZI_OP_TENSOR_FREE, 0, id, NULL));
}
