/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole operation: submitted, waited for, over. Floor 2.
 *
 * The operation of an interrupted call stays in the table. The same call with the same slot goes on
 * waiting for it. Other ranks count on an operation that they take part in: no other such operation
 * may begin before the interrupted one was called again.
 */
#include <string.h>

#include "common/base/err.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

/* See client.h. */
int zi_client_enter(struct zinf *zinf)
{
	int r = zi_client_check_session(zinf);

	if (!zinf->gpu || r)
		return err_trace(r);
	return err_trace(zi_client_gpu_look(zinf));
}

/* Whether other ranks take part in it. */
static bool is_collective(uint16_t opcode)
{
	switch (opcode) {
	case ZI_OP_NOP:
	case ZI_OP_CANCEL:
	case ZI_OP_GRAD_NORM: /* or the step could not be discarded instead */
	case ZI_OP_TENSOR_ALLOC:
	case ZI_OP_TENSOR_GET:
	case ZI_OP_TENSOR_RELEASE:
	case ZI_OP_TENSOR_FREE:
		return false;
	default:
		return true;
	}
}

static bool is_same(const struct zi_sqe *one, const struct zi_sqe *other)
{
	return one->opcode == other->opcode && one->flags == other->flags &&
	       one->unit == other->unit && memcmp(one->args, other->args, sizeof(one->args)) == 0;
}

/* Return: 0, *ret_op the one to go on with or NULL; -EBUSY. */
static int find_interrupted(struct zinf *zinf, const struct zi_sqe *slot,
                            struct zi_client_op **ret_op)
{
	*ret_op = NULL;
	for (uint32_t i = 0; zinf->interrupted_count && i < zinf->entries; i++) {
		struct zi_client_op *op = &zinf->ops[i];

		if (op->state == ZI_CLIENT_OP_FREE || !op->is_interrupted)
			continue;
		if (is_same(&op->slot, slot)) {
			*ret_op = op;
			return 0;
		}
		if (is_collective(op->slot.opcode) && is_collective(slot->opcode))
			return zi_client_error(zinf, -EBUSY,
			                       "zinf_%s() was interrupted: repeat that call with "
			                       "the same arguments before zinf_%s()",
			                       zi_opcode_name(op->slot.opcode),
			                       zi_opcode_name(slot->opcode));
	}
	return 0;
}

struct zi_client_op *zi_client_open_call(struct zinf *zinf, enum zi_opcode opcode)
{
	for (uint32_t i = 0; zinf->interrupted_count && i < zinf->entries; i++)
		if (zinf->ops[i].state != ZI_CLIENT_OP_FREE && zinf->ops[i].is_interrupted &&
		    zinf->ops[i].slot.opcode == opcode)
			return &zinf->ops[i];
	return NULL;
}

/* No call waits for @op any more: the completion frees it. */
static void abandon(struct zinf *zinf, struct zi_client_op *op)
{
	zinf->interrupted_count -= op->is_interrupted;
	op->is_interrupted = false;
	op->state = ZI_CLIENT_OP_ABANDONED;
}

/* See client.h. */
void zi_client_forget_call(struct zinf *zinf, enum zi_opcode opcode)
{
	struct zi_client_op *op = zi_client_open_call(zinf, opcode);

	if (!op)
		return;
	if (op->state == ZI_CLIENT_OP_DONE) {
		zi_client_op_free(zinf, op);
		return;
	}
	abandon(zinf, op);
}

static void leave_interrupted(struct zinf *zinf, struct zi_client_op *op, const struct zi_sqe *slot)
{
	zinf->interrupted_count += !op->is_interrupted;
	op->is_interrupted = true;
	op->slot = *slot;
}

int zi_client_call_op(struct zinf *zinf, const struct zi_sqe *slot, struct zi_client_op **ret_op)
{
	struct zi_client_op *op;
	bool is_op_done = false;
	int r = find_interrupted(zinf, slot, &op);

	if (!r && !op)
		r = zi_client_submit_slot(zinf, slot, false, &op);
	if (r)
		return err_trace(r);
	r = zi_client_wait_op(zinf, op, true, &is_op_done);
	if (!is_op_done && r == -EINTR) {
		leave_interrupted(zinf, op, slot);
		return err_trace(r);
	}
	if (!is_op_done) {
		abandon(zinf, op);
		return err_trace(r);
	}
	zinf->is_blob_loose = false;
	if (r)
		zi_client_op_free(zinf, op);
	else
		*ret_op = op;
	return err_trace(r);
}

/**
 * zi_client_call_slot() - a whole operation
 * @slot: all of it but user_data
 * @ret_value: values[0] of its completion; may be NULL
 *
 * After a deadline its late completion is dropped. After -EINTR the same call goes on.
 * Return: its result, or why there is none.
 */
int zi_client_call_slot(struct zinf *zinf, const struct zi_sqe *slot, uint64_t *ret_value)
{
	struct zi_client_op *op;
	int r = zi_client_call_op(zinf, slot, &op);

	if (r)
		return err_trace(r);
	if (ret_value)
		*ret_value = op->value;
	zi_client_op_free(zinf, op);
	return 0;
}

/* The same for an operation of a few words. */
int zi_client_call(struct zinf *zinf, enum zi_opcode opcode, uint32_t unit, uint64_t arg,
                   uint64_t *ret_value)
{
	const struct zi_sqe slot = { .opcode = (uint16_t)opcode, .unit = unit, .args = { arg } };

	return err_trace(zi_client_call_slot(zinf, &slot, ret_value));
}
