/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank asks of its tensors: alloc, put, prefetch, get, release, free, cancel. Floor 5, shard
 * thread. See tensor.h.
 */
#include "daemon/zero/tensor/tensor.h"

#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/tensor/tensor_io.h"
#include "daemon/zero/tensor/tensor_room.h"
#include "daemon/zero/tensor/tensor_table.h"
#include "daemon/zero/tensor/tensor_wait.h"

static bool is_waited_for(const struct zero_rank *rank, uint64_t id)
{
	return tensor_find_op(rank, ZI_OP_TENSOR_PUT, id) ||
	       tensor_find_op(rank, ZI_OP_TENSOR_GET, id) ||
	       tensor_find_op(rank, ZI_OP_TENSOR_PREFETCH, id);
}

/* Return: false when @op was completed. */
static bool tensor_begin(struct zero_rank *rank, struct zero_op *op, uint16_t opcode)
{
	if (!op_begin(rank, op, opcode))
		return false;
	if (rank->tensors && rank->tensors->is_ready)
		return true;
	op_fail(op, -EINVAL, "%s: no budget for tensors was opened", op_name(opcode));
	return false;
}

/* … of a tensor that is there. NULL: completed. */
static struct zero_tensor *begin_of(struct zero_rank *rank, struct zero_op *op, uint16_t opcode)
{
	struct zero_tensor *tensor;

	if (!tensor_begin(rank, op, opcode))
		return NULL;
	tensor = tensors_find(rank->tensors, op->id);
	if (!tensor)
		op_fail(op, -ENOENT, "there is no tensor %llu", (unsigned long long)op->id);
	return tensor;
}

/**
 * zero_tensor_alloc() - a place in the segment for the rank to write into
 * @op: id, bytes; completes when there is room, with offset_bytes
 *
 * Waits for room while what is in flight can make some. -EINVAL no bytes; -EEXIST; -E2BIG; -ENOSPC,
 * -EDQUOT with figures: the segment, or the store. Context: shard thread.
 */
void zero_tensor_alloc(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (tensor_begin(rank, op, ZI_OP_TENSOR_ALLOC)) {
		if (op->bytes) {
			op_wait(op);
			tensors_go_on(rank->tensors);
		} else {
			op_fail(op, -EINVAL, "tensor %llu of no bytes", (unsigned long long)op->id);
		}
	}
	zero_drain(zero);
}

static void put(struct zero_tensor *tensor, struct zero_op *op)
{
	struct zero_tensors *tensors = tensor->tensors;
	bool is_fresh = tensor->stage == ZERO_TENSOR_OPEN;
	int r;

	if (!is_fresh && (tensor->stage != ZERO_TENSOR_KEPT || tensor->is_stored)) {
		op_fail(op, -EALREADY, "tensor %llu was put before", (unsigned long long)op->id);
		return;
	}
	if (op->bytes != tensor->bytes) {
		op_fail(op, -EINVAL, "tensor %llu has %llu bytes, put says %llu",
		        (unsigned long long)op->id, (unsigned long long)tensor->bytes,
		        (unsigned long long)op->bytes);
		return;
	}
	r = tensor_reserve(tensor, &op->text); /* Taken back when a put before this failed. */
	if (r) {
		op_complete(op, r);
		return;
	}
	if (is_fresh)
		tensor->put_number = ++tensors->next_number;
	if (!tensors->nvme_tier) {
		tensor->stage = ZERO_TENSOR_KEPT;
		op_complete(op, 0);
		return;
	}
	op_wait(op);
	tensor_store(tensor);
}

/**
 * zero_tensor_put() - the rank has written the tensor
 * @op: id, bytes as allocated; completes when it is stored; without a store at once
 *
 * When it fails, is cancelled or late, the tensor stays in memory: it may be put again, got, freed.
 * -ENOENT; -EALREADY; -EINVAL another size; -EIO and the like. Context: shard thread.
 */
void zero_tensor_put(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;
	struct zero_tensor *tensor = begin_of(rank, op, ZI_OP_TENSOR_PUT);

	if (tensor)
		put(tensor, op);
	zero_drain(zero);
}

static void bring(struct zero_rank *rank, struct zero_op *op, uint16_t opcode)
{
	struct zero *zero = rank->job->zero;

	if (begin_of(rank, op, opcode)) {
		op_wait(op);
		tensors_go_on(rank->tensors);
	}
	zero_drain(zero);
}

/**
 * zero_tensor_prefetch() - the tensor will be got soon
 * @op: id; completes when it is in the segment. What was prefetched before does not go for it
 *
 * -ENOENT; -EINVAL not put; -EBADMSG damaged, -EIO: the text says where.
 */
void zero_tensor_prefetch(struct zero_rank *rank, struct zero_op *op)
{
	bring(rank, op, ZI_OP_TENSOR_PREFETCH);
}

/**
 * zero_tensor_get() - the tensor is in the segment, and stays until it is released
 * @op: id; completes with offset_bytes and bytes. Errors as zero_tensor_prefetch()
 */
void zero_tensor_get(struct zero_rank *rank, struct zero_op *op)
{
	bring(rank, op, ZI_OP_TENSOR_GET);
}

/**
 * zero_tensor_release() - one get of the tensor is over
 * @op: id; -EINVAL it was not got
 */
void zero_tensor_release(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;
	struct zero_tensor *tensor = begin_of(rank, op, ZI_OP_TENSOR_RELEASE);

	if (tensor && !tensor->pin_count) {
		op_fail(op, -EINVAL, "tensor %llu is not mapped", (unsigned long long)op->id);
	} else if (tensor) {
		tensor->pin_count--;
		op_complete(op, 0);
		tensors_go_on(rank->tensors);
	}
	zero_drain(zero);
}

/**
 * zero_tensor_free() - forget a tensor
 * @op: id, which may be used anew at once; -EBUSY it is got, or a ticket of it is pending
 */
void zero_tensor_free(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;
	struct zero_tensor *tensor = begin_of(rank, op, ZI_OP_TENSOR_FREE);

	if (tensor && (tensor->pin_count || is_waited_for(rank, op->id))) {
		op_fail(op, -EBUSY, "tensor %llu is in use: %s", (unsigned long long)op->id,
		        tensor->pin_count ? "it is mapped, or a get of it was not waited for"
		                          : "wait for its tickets, or cancel them");
	} else if (tensor) {
		tensor_drop(tensor);
		op_complete(op, 0);
		tensors_go_on(rank->tensors);
	}
	zero_drain(zero);
}

static bool is_cancellable(uint16_t opcode)
{
	return opcode == ZI_OP_TENSOR_ALLOC || opcode == ZI_OP_TENSOR_PUT ||
	       opcode == ZI_OP_TENSOR_GET || opcode == ZI_OP_TENSOR_PREFETCH;
}

/**
 * zero_cancel() - end a pending op of this rank
 * @op: id: the other's `ticket`; that one completes with -ECANCELED before this one
 *
 * -EALREADY it is over, or never was; -EBUSY what others take part in cannot be cancelled.
 */
void zero_cancel(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;
	struct zero_op *target = NULL;

	if (op_begin(rank, op, ZI_OP_CANCEL)) {
		zi_list_for_each(link, &rank->ops)
			if (container_of(link, struct zero_op, link)->ticket == op->id)
				target = container_of(link, struct zero_op, link);
		if (!target) {
			op_fail(op, -EALREADY, "it is over already");
		} else if (!is_cancellable(target->opcode)) {
			op_fail(op, -EBUSY, "%s cannot be cancelled", op_name(target->opcode));
		} else {
			tensor_op_abandon(target);
			op_fail(target, -ECANCELED, "%s was cancelled", op_name(target->opcode));
			op_complete(op, 0);
			tensors_go_on(rank->tensors);
		}
	}
	zero_drain(zero);
}
