/* SPDX-License-Identifier: Apache-2.0 */
/* The test double of zinfd: operations on the rings. */
#include <stdio.h>
#include <string.h>

#include "common/wire/check.h"
#include "tests/fake/fake_private.h"

/* ---- operations on the rings ---- */

static void put_text(struct fake_daemon *fake, struct zi_cqe *cqe, const char *text)
{
	char *texts = (char *)fake->down.base + zi_downlink_text_offset(fake->cq.entries);
	uint32_t slot = fake->text_next++ % ZI_TEXT_SLOTS;

	snprintf(texts + slot * ZI_ERROR_TEXT_BYTES, ZI_ERROR_TEXT_BYTES, "%s", text);
	cqe->text_index = 1 + slot;
}

static void take_blob(struct fake_daemon *fake, const struct zi_sqe *sqe)
{
	fake->blob_bytes = sqe->args[0];
	memcpy(fake->blob, (char *)fake->up.base + zi_uplink_blob_offset(fake->cq.entries),
	       sqe->args[0]);
}

static void complete(struct fake_daemon *fake, const struct zi_sqe *sqe)
{
	struct zi_cqe cqe = { .user_data = sqe->user_data };
	struct zi_downlink_header *down = fake->down.base;
	enum fake_lie lie = fake->options.lie;

	if (FAKE_ON_OP(sqe->opcode) == fake->options.fail_on) {
		cqe.result = fake->options.fail_error;
		if (fake->options.fail_text)
			put_text(fake, &cqe, fake->options.fail_text);
	} else if (sqe->opcode == ZI_OP_STEP || sqe->opcode == ZI_OP_COMMIT) {
		cqe.values[0] = (uint64_t)++fake->committed_step;
		down->stats = (struct zi_step_stats){ .step = cqe.values[0], .norm = 2.5 };
	}
	if (lie == FAKE_LIE_CQE_UNKNOWN)
		cqe.user_data++;
	if (lie == FAKE_LIE_CQE_TEXT) {
		cqe.result = -EIO;
		cqe.text_index = ZI_TEXT_SLOTS + 1;
	}
	must(zi_ring_push(&fake->cq, &cqe) == 0);
	if (lie == FAKE_LIE_CQE_TWICE)
		must(zi_ring_push(&fake->cq, &cqe) == 0);
	if (lie == FAKE_LIE_CQ_TAIL)
		zi_line_store(&down->cq_tail, fake->cq.entries + 5);
	if (lie == FAKE_LIE_SQ_HEAD)
		zi_line_store(&down->sq_head, 12345);
}

/* Takes one slot. False: there is none. */
bool fake_take_slot(struct fake_daemon *fake)
{
	struct zi_sqe sqe;

	if (!fake->has_rings || zi_ring_pop(&fake->sq, &sqe))
		return false;
	must(zi_check_sqe(&sqe, fake->unit_count, NULL) == 0);
	if (sqe.opcode == ZI_OP_STEP_BEGIN)
		fake->step_options = ((struct zi_uplink_header *)fake->up.base)->step_options;
	if (sqe.opcode == ZI_OP_STEP || sqe.opcode == ZI_OP_COMMIT)
		take_blob(fake, &sqe);
	if (fake_misbehave(fake, FAKE_ON_OP(sqe.opcode)))
		return true;
	complete(fake, &sqe);
	if (FAKE_ON_OP(sqe.opcode) == fake->options.last_on)
		fake_hang_up(fake);
	else if (zi_ring_must_wake(&fake->cq))
		fake_wake(fake);
	return true;
}
