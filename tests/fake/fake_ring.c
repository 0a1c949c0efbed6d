/* SPDX-License-Identifier: Apache-2.0 */
/* The test double of zinfd: operations on the rings. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* Where the unit lies now. */
static uint64_t pool_place(struct fake_daemon *fake, uint32_t unit)
{
	uint64_t half_bytes = fake->param.bytes / 2;
	uint64_t offset = fake->unshard_count++ % 2 * half_bytes;

	if (fake->options.has_steps)
		return fake_steps_place(fake, unit);
	memset((char *)fake->param.base + offset, (int)fake->unshard_count,
	       fake_unit_bytes(fake, unit));
	if (fake->options.lie == FAKE_LIE_POOL_OUTSIDE)
		return fake->param.bytes - fake_unit_bytes(fake, unit) + 4096;
	return offset + (fake->options.lie == FAKE_LIE_POOL_MISALIGNED ? 512 : 0);
}

/* Where its gradient lies now. */
static uint64_t bucket_place(struct fake_daemon *fake, uint32_t unit)
{
	uint64_t offset = fake->acquire_count++ % 2 * (fake->grad.bytes / 2);

	fake->buckets[unit] = offset;
	if (fake->options.lie == FAKE_LIE_POOL_OUTSIDE)
		return fake->grad.bytes - fake_unit_bytes(fake, unit) + 4096;
	return offset + (fake->options.lie == FAKE_LIE_POOL_MISALIGNED ? 512 : 0);
}

/* A look that does not fault: the kernel copies a byte, or says that there is none. */
static bool is_readable(const void *address)
{
	int fds[2];
	bool is_copied;

	must(pipe(fds) == 0);
	is_copied = write(fds[1], address, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return is_copied;
}

static void follow_step(struct fake_daemon *fake, const struct zi_sqe *sqe)
{
	if (sqe->opcode == ZI_OP_RESHARD && fake_is_pooled(fake))
		fake_steps_free(fake, sqe->unit);
	else if (sqe->opcode == ZI_OP_REDUCE)
		fake_steps_add(fake, sqe->unit);
	else if (sqe->opcode == ZI_OP_STEP)
		fake_steps_apply(fake);
}

static void complete(struct fake_daemon *fake, const struct zi_sqe *sqe)
{
	struct zi_cqe cqe = { .user_data = sqe->user_data };
	struct zi_downlink_header *down = fake->down.base;
	enum fake_lie lie = fake->options.lie;

	if (fake->options.has_steps)
		follow_step(fake, sqe);
	if (FAKE_ON_OP(sqe->opcode) == fake->options.fail_on) {
		cqe.result = fake->options.fail_error;
		if (fake->options.fail_text)
			put_text(fake, &cqe, fake->options.fail_text);
	} else if ((sqe->opcode == ZI_OP_UNSHARD || sqe->opcode == ZI_OP_UNSHARD_PART) &&
	           fake_is_pooled(fake)) {
		cqe.values[0] = pool_place(fake, sqe->unit);
	} else if (sqe->opcode == ZI_OP_GRAD_ACQUIRE && fake->options.has_buckets) {
		cqe.values[0] = bucket_place(fake, sqe->unit);
	} else if (sqe->opcode == ZI_OP_TENSOR_ALLOC || sqe->opcode == ZI_OP_TENSOR_GET) {
		/* Each at its id times 4096; all are as long as the last that was put. */
		cqe.values[0] = sqe->args[0] * 4096;
		if (lie == FAKE_LIE_TENSOR_OUTSIDE)
			cqe.values[0] = fake->tensors.bytes - 4;
		if (sqe->opcode == ZI_OP_TENSOR_GET)
			cqe.values[1] = fake->tensor_bytes;
	} else if (sqe->opcode == ZI_OP_GRAD_NORM) {
		memcpy(&cqe.values[0], &(double){ 2.5 }, sizeof(double));
	} else if (sqe->opcode == ZI_OP_TENSOR_PUT) {
		fake->tensor_bytes = sqe->args[1];
	} else if ((sqe->opcode == ZI_OP_RESHARD || sqe->opcode == ZI_OP_REDUCE) && fake->watched) {
		fake->is_seen_readable = is_readable(fake->watched);
	} else if (sqe->opcode == ZI_OP_STEP || sqe->opcode == ZI_OP_COMMIT) {
		cqe.values[0] = (uint64_t)++fake->committed_step;
		down->stats = (struct zi_step_stats){ .step = cqe.values[0],
			                              .norm = 2.5,
			                              .culprit = 3,
			                              .update_count = cqe.values[0] + 40,
			                              .loss_scale = 512 };
		cqe.values[1] = sqe->opcode == ZI_OP_STEP ? 2 : 0; /* unit 1 */
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
	if (sqe.opcode == ZI_OP_STEP_BEGIN || sqe.opcode == ZI_OP_STEP_OPTIONS)
		fake->step_options = ((struct zi_uplink_header *)fake->up.base)->step_options;
	memcpy(fake->step_groups, (char *)fake->up.base + zi_uplink_groups_offset(fake->cq.entries),
	       sizeof(fake->step_groups));
	memcpy(fake->step_betas, (char *)fake->up.base + zi_uplink_betas_offset(fake->cq.entries),
	       sizeof(fake->step_betas));
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
