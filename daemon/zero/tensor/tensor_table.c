/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a rank as a whole: their table, their segment, and the end of both. Floor 5, shard
 * thread. See tensor.h.
 */

#include "daemon/zero/tensor/tensor_table.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/holder.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/tensor/tensor_io.h"
#include "daemon/zero/tensor/tensor_room.h"
#include "daemon/zero/tensor/tensor_wait.h"

#define TENSOR_NONE UINT32_MAX

/* ---- the table ---- */

static uint32_t head_of(uint64_t id)
{
	return (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 52); /* 12 bits of a Fibonacci hash */
}
static_assert(ZERO_TENSORS_MAX == 1u << 12, "head_of() gives an index of heads");

/* Return: the one that @id means now, or NULL. */
struct zero_tensor *tensors_find(const struct zero_tensors *tensors, uint64_t id)
{
	uint32_t index = tensors->heads[head_of(id)];

	while (index != TENSOR_NONE && tensors->entries[index].id != id)
		index = tensors->entries[index].next;
	return index == TENSOR_NONE ? NULL : &tensors->entries[index];
}

/* A new one, OPEN, without room or space. Return: NULL when there are ZERO_TENSORS_MAX. */
struct zero_tensor *tensors_add(struct zero_tensors *tensors, uint64_t id, uint64_t bytes)
{
	struct zero_tensor *tensor;
	uint32_t head = head_of(id);

	if (tensors->free_first == TENSOR_NONE)
		return NULL;
	tensor = &tensors->entries[tensors->free_first];
	tensors->free_first = tensor->next;
	*tensor = (struct zero_tensor){ .tensors = tensors,
		                        .id = id,
		                        .bytes = bytes,
		                        .stage = ZERO_TENSOR_OPEN,
		                        .next = tensors->heads[head] };
	zi_list_init(&tensor->link);
	tensors->heads[head] = (uint32_t)(tensor - tensors->entries);
	tensors->count++;
	return tensor;
}

/* Its id may be used anew; the entry is not free yet. */
static void table_forget(struct zero_tensor *tensor)
{
	struct zero_tensors *tensors = tensor->tensors;
	uint32_t index = (uint32_t)(tensor - tensors->entries);
	uint32_t *place = &tensors->heads[head_of(tensor->id)];

	while (*place != index)
		place = &tensors->entries[*place].next;
	*place = tensor->next;
}

/* All that it holds; nothing is in flight on it, and the table does not know it any more. */
void tensor_clear(struct zero_tensor *tensor)
{
	struct zero_tensors *tensors = tensor->tensors;

	tensor_move_out(tensor);
	tier_extent_release(&tensor->extent);
	tier_charge_return(&tensor->charge);
	tensor->stage = ZERO_TENSOR_FREE;
	tensor->next = tensors->free_first;
	tensors->free_first = (uint32_t)(tensor - tensors->entries);
	tensors->count--;
}

/* It is no more, and its id may be used anew; what is in flight of it ends first. */
void tensor_drop(struct zero_tensor *tensor)
{
	table_forget(tensor);
	tensor->is_dropped = true;
	tensor_give_up(tensor);
	if (tensor->stage == ZERO_TENSOR_OPEN || tensor->stage == ZERO_TENSOR_KEPT)
		tensor_clear(tensor);
}

/* ---- life ---- */

struct zero_tensors *tensors_free(struct zero_tensors *tensors)
{
	if (!tensors)
		return NULL;
	assert(!tensors->busy_count);
	assert(!tensors->count);
	tensors->segment = tier_segment_unref(tensors->segment);
	free(tensors->entries);
	free(tensors->heads);
	free(tensors->runs);
	free(tensors);
	return NULL;
}
ZI_DEFINE_CLEANUP(struct zero_tensors *, tensors_free)

static int tensors_new(struct zero_rank *rank, struct zero_tensors **ret_tensors)
{
	_cleanup_(tensors_freep) struct zero_tensors *tensors = calloc(1, sizeof(*tensors));
	const struct zero_job *job = rank->job;

	if (!tensors)
		return err_origin(-ENOMEM);
	tensors->zero = job->zero;
	tensors->rank = rank;
	tensors->nvme_tier = job->nvme_tier;
	tensors->account = &job->account->account;
	tensors->flow = job->flow;
	tensors->tally = &job->account->tally;
	tensors->device = job->device;
	tensors->rank_number = rank->number;
	(void)zi_copy_name(tensors->job_name, sizeof(tensors->job_name), job->name); /* As long. */
	zi_list_init(&tensors->loads);
	zi_list_init(&tensors->stores);
	tensors->entries = calloc(ZERO_TENSORS_MAX, sizeof(*tensors->entries));
	tensors->heads = malloc(ZERO_TENSORS_MAX * sizeof(*tensors->heads));
	tensors->runs = calloc(ZERO_TENSORS_MAX, sizeof(*tensors->runs));
	if (!tensors->entries || !tensors->heads || !tensors->runs)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < ZERO_TENSORS_MAX; i++) {
		tensors->heads[i] = TENSOR_NONE;
		tensors->entries[i].next = i + 1 < ZERO_TENSORS_MAX ? i + 1 : TENSOR_NONE;
	}
	*ret_tensors = zi_steal(tensors);
	return 0;
}

/* The segment is there, or cannot be. */
void tensors_built(struct zero_tensors *tensors)
{
	struct zero_rank *rank = tensors->rank;
	struct zero_op *op = rank ? tensor_find_op(rank, ZERO_OP_TENSOR_OPEN, 0) : NULL;
	int r = tensors->build_error;

	if (!r && op)
		r = tier_holder_add(rank->holder, tensors->segment);
	if (op && !r) {
		tensors->slot_count =
			(uint32_t)(tensors->segment->region.bytes / ZI_STORE_ALIGN_BYTES);
		tensors->is_ready = true;
		op_complete(op, 0);
		return;
	}
	if (op) {
		op->text = tensors->build_text;
		op_complete(op, r);
	}
	/* Nobody waits any more, or there is nothing to hand out. */
	if (rank)
		rank->tensors = NULL;
	(void)tensors_free(tensors);
}

/* The rank leaves: what is in flight ends first. */
void tensors_forget(struct zero_rank *rank)
{
	struct zero_tensors *tensors = zi_steal(rank->tensors);

	if (!tensors)
		return;
	tensors->rank = NULL;
	for (uint32_t i = 0; i < ZERO_TENSORS_MAX && tensors->count; i++)
		if (tensors->entries[i].stage != ZERO_TENSOR_FREE &&
		    !tensors->entries[i].is_dropped)
			tensor_drop(&tensors->entries[i]);
	if (!tensors->busy_count)
		(void)tensors_free(tensors);
}

static int open_segment(struct zero_rank *rank, struct zero_op *op)
{
	_cleanup_(tensors_freep) struct zero_tensors *tensors = NULL;
	struct zero_job *job = rank->job;
	int r;

	if (rank->tensors)
		return zi_text_error(&op->text, -EALREADY, "tensors were opened before");
	if (!op->bytes || op->bytes / ZI_STORE_ALIGN_BYTES >= UINT32_MAX)
		return zi_text_error(&op->text, -EINVAL, "a budget of %llu bytes for tensors",
		                     (unsigned long long)op->bytes);
	r = tensors_new(rank, &tensors);
	if (r)
		return err_trace(r);
	r = tier_segment_charge(job->cpu_tier, tensors->account, "zinf-tensor", op->bytes,
	                        op->bytes >= ZI_HUGE_PAGE_BYTES ? TIER_PAGES_COLLAPSED
	                                                        : TIER_PAGES_SMALL,
	                        &op->text, &tensors->segment);
	if (r)
		return err_trace(r);
	rank->tensors = tensors;
	op_wait(op);
	tensors_build(zi_steal(tensors));
	return 0;
}

/**
 * zero_tensor_open() - memory for this rank's tensors
 * @op: bytes: the budget, rounded up to whole pages; completes when it is there
 *
 * Once. -EALREADY; -ENOSPC, -EDQUOT with figures. Context: shard thread.
 */
void zero_tensor_open(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	op->id = 0;
	if (op_begin(rank, op, ZERO_OP_TENSOR_OPEN)) {
		int r = open_segment(rank, op);

		if (r)
			op_complete(op, r);
	}
	zero_drain(zero);
}

/* Of this rank, which may write it; NULL: none. */
struct tier_segment *zero_tensor_segment(struct zero_rank *rank)
{
	return rank->tensors && rank->tensors->is_ready ? rank->tensors->segment : NULL;
}
