/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an arena; see budget.h. Floor 2, pure, any thread. */
#include "libclient/gpu/budget.h"

#include <stddef.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/text.h"
#include "common/gpu/need.h"

/* A budget of 0 of gradients: one is written while the one before is copied. */
#define GRAD_UNITS 2u

/* With chunks of one size. */
struct plan {
	struct zi_gpu_need params, grads;
	uint64_t param_count, grad_count; /* wanted, before the limit of chunks */
};

static uint64_t largest_chunks(const struct zi_gpu_units *units)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < units->count; i++)
		count = ZI_MAX(count, zi_gpu_unit_chunks(units, i));
	return count;
}

/* Of a budget: no more than all units need, and one at least, which is then refused in words. */
static uint64_t whole_chunks(uint64_t budget_bytes, const struct zi_gpu_units *units,
                             const struct zi_gpu_need *need)
{
	uint64_t count = budget_bytes / units->chunk_bytes;

	return ZI_MIN(ZI_MAX(count, (uint64_t)1), need->all_count);
}

/* Chunks of gradients. */
static uint64_t want_grads(const struct zi_gpu_wish *wish, const struct zi_gpu_units *units,
                           const struct zi_gpu_need *need)
{
	uint64_t two_count = GRAD_UNITS * largest_chunks(units);

	if (wish->grad_budget_bytes)
		return whole_chunks(wish->grad_budget_bytes, units, need);
	if (wish->micro_batches > 1)
		return need->all_count;
	return ZI_MIN(ZI_MAX(two_count, need->least_count), need->all_count);
}

/* Chunks of parameters beside @grad_count. */
static uint64_t want_params(const struct zi_gpu_wish *wish, const struct zi_gpu_units *units,
                            const struct zi_gpu_need *need, uint64_t grad_count)
{
	uint64_t free_count = wish->free_bytes / units->chunk_bytes;

	if (wish->param_budget_bytes)
		return whole_chunks(wish->param_budget_bytes, units, need);
	free_count = free_count > grad_count ? free_count - grad_count : 0;
	/* Where not even the least fits, the daemon's figures are told (check_room()). */
	return ZI_MAX(ZI_MIN(need->all_count, free_count), need->least_count);
}

static int make_plan(const struct zi_gpu_wish *wish, const struct zi_gpu_units *params,
                     const struct zi_gpu_units *grads, struct zi_text *text, struct plan *ret_plan)
{
	struct plan plan = { 0 };
	int r = zi_gpu_need(params, text, &plan.params);

	if (!r && grads)
		r = zi_gpu_need(grads, text, &plan.grads);
	if (r)
		return err_trace(r);
	if (grads)
		plan.grad_count = want_grads(wish, grads, &plan.grads);
	plan.param_count = want_params(wish, params, &plan.params, plan.grad_count);
	*ret_plan = plan;
	return 0;
}

static int check_adding(const struct zi_gpu_wish *wish, const struct plan *plan,
                        uint64_t chunk_bytes, struct zi_text *text)
{
	if (wish->micro_batches <= 1 || plan->grad_count >= plan->grads.all_count)
		return 0;
	return err_origin(zi_text_error(
		text, -ENOSPC,
		"gradients of %u micro-batches are added up in GPU memory: raise grad_budget_bytes "
		"from %s to %s, which all units need, or set ZINF_REDUCE_PER_MICRO_BATCH",
		wish->micro_batches, zi_format_bytes(wish->grad_budget_bytes).chars,
		zi_format_bytes(plan->grads.all_count * chunk_bytes).chars));
}

static int check_room(const struct zi_gpu_wish *wish, const struct zi_gpu_budget *budget,
                      struct zi_text *text)
{
	uint64_t param_bytes = budget->param_count * budget->chunk_bytes;
	uint64_t grad_bytes = budget->grad_count * budget->chunk_bytes;

	if (param_bytes + grad_bytes <= wish->free_bytes)
		return 0;
	return err_origin(zi_text_error(
		text, -ENOSPC,
		"%s has room for %s of this rank, which needs %s: %s for parameters, %s for "
		"gradients. Lower param_budget_bytes or grad_budget_bytes, or use a larger GPU",
		wish->device, zi_format_bytes(wish->free_bytes).chars,
		zi_format_bytes(param_bytes + grad_bytes).chars, zi_format_bytes(param_bytes).chars,
		zi_format_bytes(grad_bytes).chars));
}

/* The limit of chunks cuts what was wanted of parameters. */
static uint32_t limit(uint64_t count, uint64_t other_count)
{
	uint64_t most_count = other_count < ZI_GPU_CHUNKS_MAX ? ZI_GPU_CHUNKS_MAX - other_count : 0;

	return (uint32_t)ZI_MIN(count, most_count);
}

static uint64_t largest_bytes(const struct zi_gpu_units *units)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; units && i < units->count; i++)
		bytes = ZI_MAX(bytes, units->list[i].bytes);
	return bytes;
}

int zi_gpu_budget_choose(const struct zi_gpu_wish *wish, struct zi_gpu_units *params,
                         struct zi_gpu_units *grads, struct zi_text *text,
                         struct zi_gpu_budget *ret_budget)
{
	uint64_t most_bytes = ZI_MAX(largest_bytes(params), largest_bytes(grads));
	uint64_t chunk_bytes = wish->granularity_bytes;
	struct zi_gpu_budget budget;
	struct plan plan;
	int r;

	assert(chunk_bytes && chunk_bytes % ZI_GPU_CHUNK_ALIGN_BYTES == 0);
	/* Each doubling halves the chunks, until a chunk holds any unit. */
	for (;; chunk_bytes *= 2) {
		params->chunk_bytes = chunk_bytes;
		if (grads)
			grads->chunk_bytes = chunk_bytes;
		r = make_plan(wish, params, grads, text, &plan);
		if (r)
			return err_trace(r);
		if (plan.param_count + plan.grad_count <= ZI_GPU_CHUNKS_MAX ||
		    chunk_bytes >= most_bytes)
			break;
	}
	budget = (struct zi_gpu_budget){
		.chunk_bytes = chunk_bytes,
		.grad_count = limit(plan.grad_count, plan.params.least_count),
	};
	budget.param_count = limit(plan.param_count, budget.grad_count);
	r = check_adding(wish, &plan, chunk_bytes, text);
	if (!r && grads)
		r = zi_gpu_need_check(grads, &plan.grads, budget.grad_count, text);
	if (!r)
		r = zi_gpu_need_check(params, &plan.params, budget.param_count, text);
	if (!r)
		r = check_room(wish, &budget, text);
	if (r)
		return err_trace(r);
	*ret_budget = budget;
	return 0;
}
