/* SPDX-License-Identifier: Apache-2.0 */
/* A whole operation: submitted, waited for, over. Floor 2. */
#include "common/base/err.h"
#include "libclient/client.h"

/**
 * zi_client_call_slot() - a whole operation
 * @slot: all of it but user_data
 * @ret_value: values[0] of its completion; may be NULL
 *
 * After a deadline its late completion is dropped.
 * Return: its result, or why there is none.
 */
int zi_client_call_slot(struct zinf *zinf, const struct zi_sqe *slot, uint64_t *ret_value)
{
	struct zi_client_op *op;
	bool is_op_done = false;
	int r;

	r = zi_client_submit_slot(zinf, slot, false, &op);
	if (r)
		return err_trace(r);
	r = zi_client_wait_op(zinf, op, true, &is_op_done);
	if (!is_op_done) {
		op->state = ZI_CLIENT_OP_ABANDONED;
		return err_trace(r);
	}
	zinf->is_blob_loose = false;
	if (!r && ret_value)
		*ret_value = op->value;
	zi_client_op_free(zinf, op);
	return err_trace(r);
}

/* The same for an operation of a few words. */
int zi_client_call(struct zinf *zinf, enum zi_opcode opcode, uint32_t unit, uint64_t arg,
                   uint64_t *ret_value)
{
	const struct zi_sqe slot = { .opcode = (uint16_t)opcode, .unit = unit, .args = { arg } };

	return err_trace(zi_client_call_slot(zinf, &slot, ret_value));
}
