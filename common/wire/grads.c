/* SPDX-License-Identifier: Apache-2.0 */
/* See grads.h. */
#include "common/wire/grads.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/owner.h"

/* One unit is being summed while the next is computed. */
static uint64_t bucket_bytes(const struct zi_grads_model *model,
                             const struct zi_job_training *training, bool is_nvme)
{
	uint64_t default_bytes = ZI_BUCKETS * model->largest_bytes;
	uint64_t bytes = training->grad_budget_bytes / model->slot_bytes * model->slot_bytes;

	/* On NVMe the rest is for sums. */
	if (!training->grad_budget_bytes || (is_nvme && bytes > default_bytes))
		bytes = default_bytes;
	return ZI_MIN(bytes, model->plane_bytes);
}

/* Each bucket takes a slot at least. */
static uint64_t table_bytes(const struct zi_grads_model *model, uint64_t rank_bytes)
{
	uint64_t run_count = ZI_MIN((uint64_t)model->unit_count, rank_bytes / model->slot_bytes);
	uint64_t slots_bytes = (uint64_t)model->unit_count * ZI_BUCKET_SLOT_BYTES;

	return slots_bytes + model->rank_count * (slots_bytes + run_count * ZI_BUCKET_RUN_BYTES);
}

/* See grads.h, as for the next. */
uint64_t zi_unused_bytes(uint32_t unit_count, uint32_t param_count, uint32_t world_size)
{
	uint64_t words = ((uint64_t)param_count + 63) / 64;

	return ((uint64_t)unit_count + 1) * sizeof(uint32_t) +
	       ((uint64_t)world_size + 1) * words * sizeof(uint64_t) +
	       (uint64_t)param_count * ZI_UNUSED_STRETCH_BYTES;
}

int zi_grads_plan(const struct zi_grads_model *model, const struct zi_job_config *config,
                  const struct zi_job_training *training, struct zi_grads *ret_grads)
{
	struct zi_grads pooled = { .is_pooled = true, .sum_bytes = model->sum_bytes };
	bool is_nvme = config->offload_optimizer == ZI_OFFLOAD_NVME;
	uint64_t budget_bytes = training->grad_budget_bytes;
	uint64_t held_bytes;

	assert(model->rank_count > 0);
	assert(model->largest_bytes > 0);
	*ret_grads = (struct zi_grads){ 0 };
	if (!zi_grads_are_divided(config, training))
		return 0;
	pooled.rank_bytes = bucket_bytes(model, training, is_nvme);
	if (pooled.rank_bytes < model->largest_bytes)
		return err_origin(-ENOSPC);
	/* Fits: 64 ranks, a plane of 2^50 elements. */
	if (is_nvme && budget_bytes && budget_bytes < model->plane_bytes) {
		pooled.sum_bytes = ZI_MIN(pooled.sum_bytes,
		                          model->rank_count * (budget_bytes - pooled.rank_bytes));
		pooled.is_stored = pooled.sum_bytes < model->sum_bytes;
	}
	pooled.table_bytes = table_bytes(model, pooled.rank_bytes);
	held_bytes = model->rank_count * pooled.rank_bytes + pooled.sum_bytes + pooled.table_bytes;
	if (pooled.is_stored)
		held_bytes += model->spill_bytes;
	if (held_bytes < model->whole_bytes)
		*ret_grads = pooled;
	return 0;
}
