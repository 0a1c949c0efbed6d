/* SPDX-License-Identifier: Apache-2.0 */
/* The way of an operation into the SQ. Floor 2. */
#include <unistd.h>

#include "common/base/err.h"
#include "libclient/client.h"

/* Makes room in the table: takes completions in, and waits for one if it must. */
static int make_room(struct zinf *zinf, bool is_kept)
{
	bool held = zinf->holds_interrupts;
	int r;

	/* Calls that do not wait cannot be repeated when they do. */
	zinf->holds_interrupts |= is_kept;
	r = zi_client_wait_any(zinf);
	zinf->holds_interrupts = held;
	if (r)
		return err_trace(r);
	if (!zinf->free_count)
		return zi_client_error(zinf, -ENOBUFS,
		                       "%u tickets were never waited for: zinf_wait() them",
		                       zinf->entries);
	return 0;
}

/* A full eventfd (-EAGAIN) has rung already; any other failure shows on the socket. */
static void ring_doorbell(struct zinf *zinf)
{
	const uint64_t one = 1;

	while (write(zinf->doorbell_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/**
 * zi_client_submit_slot() - hand one operation to the daemon
 * @slot: all of it but user_data
 * @is_kept: nobody waits; an error is kept with the unit, and the entry frees itself
 * @ret_op: PENDING; the caller waits for it and frees it. NULL with @is_kept
 *
 * Waits only when the whole table is under way.
 * Return: 0; -ENOBUFS nothing but tickets that were never waited for; or how the session ended.
 */
int zi_client_submit_slot(struct zinf *zinf, const struct zi_sqe *slot, bool is_kept,
                          struct zi_client_op **ret_op)
{
	struct zi_sqe sqe = *slot;
	struct zi_client_op *op;
	int r;

	assert(is_kept || ret_op);
	r = zinf->free_count ? 0 : make_room(zinf, is_kept);
	if (r)
		return err_trace(r);
	op = &zinf->ops[zinf->free_indices[zinf->free_count - 1]];
	assert(op->state == ZI_CLIENT_OP_FREE);
	sqe.user_data = op->ticket + zinf->entries;
	r = zi_ring_push(&zinf->sq, &sqe);
	if (r) /* A full ring too: the daemon completed what it never took. */
		return err_trace(zi_client_breach(zinf, "the submission ring's head is wrong"));
	zinf->free_count--;
	op->ticket = sqe.user_data;
	op->state = ZI_CLIENT_OP_PENDING;
	op->opcode = sqe.opcode;
	op->is_kept = is_kept;
	op->unit = sqe.unit;
	op->tensor_buffer = NULL;
	if (zi_ring_must_wake(&zinf->sq))
		ring_doorbell(zinf);
	if (!is_kept)
		*ret_op = op;
	return 0;
}

/**
 * zi_client_submit() - the same for an operation of a few words
 * @unit: 0 for opcodes without one
 * @arg: args[0]
 */
int zi_client_submit(struct zinf *zinf, enum zi_opcode opcode, uint32_t unit, uint64_t arg,
                     bool is_kept, struct zi_client_op **ret_op)
{
	const struct zi_sqe slot = { .opcode = (uint16_t)opcode, .unit = unit, .args = { arg } };

	return err_trace(zi_client_submit_slot(zinf, &slot, is_kept, ret_op));
}
