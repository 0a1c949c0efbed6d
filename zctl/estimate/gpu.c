/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory of a rank, before there is one (gpu.h). */
#include "zctl/estimate/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/gpu/need.h"
#include "zctl/get.h"

/* As libzinf's zinf_gpu_open() without a wish. */
#define NEIGHBOURS 2u
/* In place of a room that is not known: 2^62 B, within what a sum of chunks may be. */
#define MUCH_BYTES (1ull << 62)

/* The units of both rings; @list: (2 * unit_count,). */
static void describe(const struct estimate_model *model, const struct zi_plan_options *plan,
                     struct zi_gpu_unit *list, struct zi_gpu_units *ret_params,
                     struct zi_gpu_units *ret_grads)
{
	uint32_t param_width = zi_dtype_bytes((enum zi_dtype)plan->config.param_dtype);
	uint32_t grad_width = zi_dtype_bytes((enum zi_dtype)plan->config.grad_dtype);
	uint32_t count = model->unit_count;

	for (uint32_t i = 0; i < count; i++) {
		const char *name = model->units[i].name ? model->units[i].name : "one of many";

		list[i] = (struct zi_gpu_unit){
			.name = name, .bytes = model->units[i].element_count * param_width
		};
		list[count + i] =
			(struct zi_gpu_unit){ .name = name,
			                      .bytes = model->units[i].element_count * grad_width };
	}
	*ret_params = (struct zi_gpu_units){
		.purpose = "parameters", .list = list, .count = count, .neighbour_count = NEIGHBOURS
	};
	*ret_grads = (struct zi_gpu_units){ .purpose = "gradients",
		                            .list = list + count,
		                            .count = count,
		                            .neighbour_count = NEIGHBOURS };
}

static int measure(const struct zi_gpu_units *units, uint32_t chosen_count, struct zi_text *text,
                   struct estimate_ring *ret_ring)
{
	struct zi_gpu_need need;
	int r = zi_gpu_need(units, text, &need);

	if (r)
		return err_trace(r);
	*ret_ring = (struct estimate_ring){ .least_bytes = need.least_count * units->chunk_bytes,
		                            .all_bytes = need.all_count * units->chunk_bytes,
		                            .chosen_bytes = chosen_count * units->chunk_bytes };
	return 0;
}

/* See gpu.h. */
int estimate_gpu(const struct estimate_options *options, const struct estimate_model *model,
                 const struct zi_plan_options *plan, struct estimate_gpu *gpu, struct zi_text *text)
{
	bool has_grads = !zi_training_is_forward_only(&plan->training);
	bool has_room = gpu->room_bytes != ESTIMATE_GPU_NO_ROOM;
	const struct zi_gpu_wish wish = {
		.param_budget_bytes = options->gpu_param_budget_bytes,
		.grad_budget_bytes = options->gpu_grad_budget_bytes,
		.granularity_bytes = gpu->granularity_bytes,
		.free_bytes = has_room ? gpu->room_bytes : MUCH_BYTES,
		.micro_batches = ZI_MAX(plan->training.accumulation, 1u),
		.device = gpu->name[0] ? gpu->name : "the GPU",
	};
	struct zi_gpu_budget budget = { 0 };
	struct zi_gpu_units params, grads;
	struct zi_gpu_unit *list = calloc(2 * (size_t)model->unit_count, sizeof(*list));
	int r;

	if (!list)
		return zi_text_error(text, err_origin(-ENOMEM), "no memory for %u units",
		                     model->unit_count);
	describe(model, plan, list, &params, &grads);
	r = zi_gpu_budget_choose(&wish, &params, has_grads ? &grads : NULL, &gpu->text, &budget);
	gpu->fits = !r;
	gpu->chunk_bytes = params.chunk_bytes;
	r = measure(&params, budget.param_count, text, &gpu->params);
	if (!r && has_grads)
		r = measure(&grads, budget.grad_count, text, &gpu->grads);
	free(list);
	return err_trace(r);
}

/* See gpu.h. */
bool estimate_gpu_find(const json_t *tiers, const char *device, struct estimate_gpu *gpu)
{
	const json_t *tier, *found = NULL;
	uint64_t most_bytes = 0;
	size_t index;

	json_array_foreach(tiers, index, tier)
	{
		uint64_t free_bytes = get_count(tier, "free_bytes");

		if (strcmp(get_word(tier, "kind"), "gpu") != 0 ||
		    (strcmp(device, "gpu") != 0 && strcasecmp(device, get_word(tier, "uuid")) != 0))
			continue;
		if (found && free_bytes <= most_bytes)
			continue;
		found = tier;
		most_bytes = free_bytes;
	}
	if (!found)
		return false;
	(void)snprintf(gpu->name, sizeof(gpu->name), "%s", get_word(found, "uuid")); /* Fits. */
	gpu->room_bytes = most_bytes;
	if (get_count(found, "granularity_bytes"))
		gpu->granularity_bytes = get_count(found, "granularity_bytes");
	return true;
}
