/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank asks of its tensors. Floor 5, shard thread. See tensor.h.
 *
 * Who waits lies in the rank's list of pending ops, like everything else a rank waits for, and is
 * looked at again, in order, whenever something came back (tensors_go_on()).
 */

#include "daemon/zero/tensor/tensor.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/tensor/tensor_io.h"
#include "daemon/zero/tensor/tensor_room.h"
#include "daemon/zero/tensor/tensor_table.h"

/* Return: the pending op of that opcode on that tensor, or NULL. */
struct zero_op *tensor_find_op(const struct zero_rank *rank, uint16_t opcode, uint64_t id)
{
	zi_list_for_each(link, &rank->ops) {
		struct zero_op *op = container_of(link, struct zero_op, link);

		if (op->opcode == opcode && op->id == id)
			return op;
	}
	return NULL;
}

static bool is_waited_for(const struct zero_rank *rank, uint64_t id)
{
	return tensor_find_op(rank, ZI_OP_TENSOR_PUT, id) ||
	       tensor_find_op(rank, ZI_OP_TENSOR_GET, id) ||
	       tensor_find_op(rank, ZI_OP_TENSOR_PREFETCH, id);
}

/* ---- room ---- */

static void say_held(const struct zero_tensors *tensors, struct zi_text *ret_text)
{
	uint64_t open_bytes = 0, got_bytes = 0, memory_bytes = 0;

	for (uint32_t i = 0; i < tensors->run_count; i++) {
		const struct zero_tensor *tensor = &tensors->entries[tensors->runs[i].unit];
		uint64_t bytes = (uint64_t)tensor->slot_count * ZI_STORE_ALIGN_BYTES;

		if (tensor->pin_count)
			got_bytes += bytes;
		else if (tensor->stage == ZERO_TENSOR_OPEN)
			open_bytes += bytes;
		else if (tensor_is_held(tensor))
			memory_bytes += bytes;
	}
	zi_text_set(ret_text, "%s mapped or being got, %s allocated and not put, %s not stored%s",
	            zi_format_bytes(got_bytes).chars, zi_format_bytes(open_bytes).chars,
	            zi_format_bytes(memory_bytes).chars,
	            tensors->nvme_tier ? "" : " (the daemon has no nvme tier)");
}

/* It will never fit, whatever comes back. */
static int refuse_room(struct zero_tensors *tensors, struct zero_op *op)
{
	struct zi_text held;

	say_held(tensors, &held);
	return err_origin(zi_text_error(
		&op->text, -ENOSPC,
		"tensor %llu of %s has no room in the budget of %s: %s; free tensors, or open with "
		"more",
		(unsigned long long)op->id, zi_format_bytes(op->bytes).chars,
		zi_format_bytes(tensors->segment->region.bytes).chars, held.chars));
}

/* Space on the store, paid for. */
static int reserve(struct zero_tensor *tensor, struct zi_text *text)
{
	struct zero_tensors *tensors = tensor->tensors;
	uint64_t bytes = tensor_slots(tensor->bytes) * ZI_STORE_ALIGN_BYTES;
	int r = 0;

	if (!tensors->nvme_tier || tensor->extent.bytes)
		return 0;
	if (!tensor->charge.tier)
		r = tier_charge_take(&tensor->charge, tensors->nvme_tier, tensors->account, bytes,
		                     text);
	if (r)
		return err_origin(r == TIER_E_QUOTA ? -EDQUOT : -ENOSPC);
	r = tier_extent_reserve(tensors->nvme_tier, ZERO_PLANE_STATE, bytes, &tensor->extent);
	if (!r)
		return 0;
	if (r != TIER_E_FULL)
		return err_fold(r);
	return err_origin(zi_text_error(
		text, -ENOSPC,
		"tensor %llu needs %s in one piece on %s, %s are free in all: free tensors, or "
		"enlarge the store",
		(unsigned long long)tensor->id, zi_format_bytes(bytes).chars,
		tensors->nvme_tier->name,
		zi_format_bytes(tier_extent_free_bytes(tensors->nvme_tier)).chars));
}

/* ---- ops that wait ---- */

/* Return: false when it waits for room: nobody behind it may overtake. */
static bool try_alloc(struct zero_tensors *tensors, struct zero_op *op, bool has_room)
{
	struct zero_tensor *tensor;
	int r;

	if (tensors_find(tensors, op->id)) {
		op_fail(op, -EEXIST, "tensor %llu is there already: free it first",
		        (unsigned long long)op->id);
		return true;
	}
	if (!tensor_has_hope(tensors, op->bytes)) {
		op_complete(op, refuse_room(tensors, op));
		return true;
	}
	if (!has_room)
		return false;
	tensor = tensors_add(tensors, op->id, op->bytes);
	if (!tensor) {
		op_fail(op, -E2BIG, "%u tensors are there, as many as a rank may have: free some",
		        tensors->count);
		return true;
	}
	if (!tensor_settle_in(tensor, false)) {
		tensor_drop(tensor);
		return false;
	}
	r = reserve(tensor, &op->text);
	if (r) {
		tensor_drop(tensor);
		op_complete(op, r);
		return true;
	}
	op->offset_bytes = tensor_offset(tensor);
	op_complete(op, 0);
	return true;
}

/* The tensor is here: @op, a get or a prefetch, is over. */
static void arrive(struct zero_tensor *tensor, struct zero_op *op)
{
	if (op->opcode == ZI_OP_TENSOR_GET) {
		tensor->pin_count++;
		tensor->is_prefetched = false;
	}
	op->offset_bytes = tensor_offset(tensor);
	op->bytes = tensor->bytes;
	op_complete(op, 0);
}

/* A get or a prefetch. Return: as try_alloc(). */
static bool try_bring(struct zero_tensors *tensors, struct zero_op *op, bool has_room)
{
	struct zero_tensor *tensor = tensors_find(tensors, op->id);
	bool is_get = op->opcode == ZI_OP_TENSOR_GET;

	if (!tensor) {
		op_fail(op, -ENOENT, "there is no tensor %llu", (unsigned long long)op->id);
		return true;
	}
	if (tensor->stage == ZERO_TENSOR_OPEN) {
		op_fail(op, -EINVAL, "tensor %llu was allocated and not yet put",
		        (unsigned long long)op->id);
		return true;
	}
	if (tensor->stage == ZERO_TENSOR_LOADING || tensor->stage == ZERO_TENSOR_CHECKING)
		return true;
	if (tensor->is_resident) {
		if (!is_get && !tensor->is_prefetched && tensor->is_stored) {
			tensor->is_prefetched = true;
			tensor->prefetch_number = ++tensors->next_number;
		}
		arrive(tensor, op);
		return true;
	}
	if (!has_room || !tensor_settle_in(tensor, !is_get))
		return !is_get;
	tensor->is_prefetched = !is_get;
	if (!is_get)
		tensor->prefetch_number = ++tensors->next_number;
	tensor_load(tensor);
	return true;
}

/* Who waits for @tensor hears that its move is over. */
void tensor_tell(struct zero_tensor *tensor, int error)
{
	struct zero_rank *rank = tensor->tensors->rank;

	if (!rank)
		return;
	zi_list_for_each_safe(link, &rank->ops) {
		struct zero_op *op = container_of(link, struct zero_op, link);
		bool is_put = op->opcode == ZI_OP_TENSOR_PUT;
		bool is_bring =
			op->opcode == ZI_OP_TENSOR_GET || op->opcode == ZI_OP_TENSOR_PREFETCH;

		if ((!is_put && !is_bring) || op->id != tensor->id)
			continue;
		if (error) {
			op->text = tensor->text;
			op_complete(op, error);
		} else if (is_put) {
			op_complete(op, 0);
		} else {
			arrive(tensor, op);
		}
	}
}

/* Something came back or was given back: who waits is looked at again. May free @tensors. */
void tensors_go_on(struct zero_tensors *tensors)
{
	bool has_room = true;

	if (!tensors->rank) {
		if (!tensors->busy_count)
			(void)tensors_free(tensors);
		return;
	}
	zi_list_for_each_safe(link, &tensors->rank->ops) {
		struct zero_op *op = container_of(link, struct zero_op, link);

		if (op->opcode == ZI_OP_TENSOR_ALLOC)
			has_room &= try_alloc(tensors, op, has_room);
		else if (op->opcode == ZI_OP_TENSOR_GET || op->opcode == ZI_OP_TENSOR_PREFETCH)
			has_room &= try_bring(tensors, op, has_room);
	}
	tensors_pump(tensors);
}

/* ---- what a rank asks ---- */

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
	r = reserve(tensor, &op->text); /* Taken back when a put before this failed. */
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

/* ---- giving up ---- */

/* @op, pending, is about to end without what it waits for. */
void tensor_op_abandon(struct zero_op *op)
{
	struct zero_tensors *tensors = op->rank->tensors;
	struct zero_tensor *tensor = NULL;
	bool is_put = op->opcode == ZI_OP_TENSOR_PUT;

	if (is_put || op->opcode == ZI_OP_TENSOR_GET || op->opcode == ZI_OP_TENSOR_PREFETCH)
		tensor = tensors_find(tensors, op->id);
	if (!tensor)
		return;
	if (is_put) {
		tensor_give_up(tensor);
		return;
	}
	/* A put of a tensor that is got at the same time goes on, and so does another's load. */
	if (tensor->stage != ZERO_TENSOR_LOADING)
		return;
	zi_list_for_each(link, &op->rank->ops) {
		const struct zero_op *other = container_of(link, struct zero_op, link);

		if (other != op && other->id == op->id &&
		    (other->opcode == ZI_OP_TENSOR_GET || other->opcode == ZI_OP_TENSOR_PREFETCH))
			return;
	}
	tensor_give_up(tensor);
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
