/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops of tensors that wait. Floor 5, shard thread. See tensor.h.
 *
 * They lie in the rank's list of pending ops, like everything else a rank waits for, and are looked
 * at again, in order, whenever something came back (tensors_go_on()).
 */
#include "daemon/zero/tensor/tensor_wait.h"

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
int tensor_reserve(struct zero_tensor *tensor, struct zi_text *text)
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
	r = tensor_reserve(tensor, &op->text);
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
