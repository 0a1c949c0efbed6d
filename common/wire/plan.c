/* SPDX-License-Identifier: Apache-2.0 */
/* See plan.h. Subgroups of a unit are full but for the last: they are counted, not walked. */
#include "common/wire/plan.h"

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "common/wire/geometry.h"
#include "common/wire/grads.h"
#include "common/wire/owner.h"
#include "common/wire/plan_check.h"
#include "common/wire/plan_part.h"
#include "common/wire/plan_pool.h"

/* Numbers that all planes need. */
struct widths {
	uint64_t param, grad, state; /* state: 0 forward only */
	bool is_nvme, is_forward_only;
	bool is_stored;  /* parameters are on NVMe, and pass through staging */
	bool is_divided; /* among nodes: they hold their own, and a pool */
	bool is_lent;    /* they are on NVMe, and other nodes have none of some */
};

/* How the optimizer state of a job is divided. */
struct shares {
	uint64_t resident_bytes, staged_bytes;   /* the latter with parameters, with a pool */
	uint64_t resident_count, subgroup_count; /* the former: that need no slot, without a pool */
	uint64_t kept_count;                     /* whose parameters are on the store */
	uint64_t slot_bytes;                     /* of staging */
};

static struct widths widths_of(const struct zi_plan_model *model,
                               const struct zi_plan_options *options)
{
	const struct zi_job_config *config = &options->config;
	enum zi_dtype param = (enum zi_dtype)config->param_dtype;
	bool is_forward_only = zi_training_is_forward_only(&options->training);
	bool spans_nodes = options->local_ranks < options->world_size;
	struct widths widths = {
		.param = zi_dtype_bytes(param),
		.grad = zi_dtype_bytes((enum zi_dtype)config->grad_dtype),
		.is_nvme = config->offload_optimizer == ZI_OFFLOAD_NVME,
		.is_stored = config->offload_param == ZI_OFFLOAD_NVME,
		.is_divided = spans_nodes && zi_strategy_divides_params(options->training.strategy),
		.is_forward_only = is_forward_only,
	};

	if (!is_forward_only)
		widths.state = zi_state_element_bytes((enum zi_optimizer)config->optimizer, param);
	widths.is_lent = widths.is_stored && spans_nodes &&
	                 zi_params_are_lent(&options->training, model->set_count > 0);
	return widths;
}

static uint64_t segment_bytes(const struct zi_plan_options *options, uint64_t bytes, bool is_huge)
{
	return zi_align_up(bytes, options->wants_huge && is_huge ? ZI_HUGE_PAGE_BYTES
	                                                         : ZI_STORE_ALIGN_BYTES);
}

/* Huge pages for what only the daemon sees, where rounding up costs at most an eighth. */
static bool is_worth_huge(uint64_t bytes)
{
	return zi_align_up(bytes, ZI_HUGE_PAGE_BYTES) - bytes <= bytes / 8;
}

static uint64_t plane_bytes(const struct zi_plan_model *model, uint64_t width, uint64_t slot_bytes)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < model->unit_count; i++)
		bytes += zi_geometry_unit_bytes(model->unit_padded[i], (uint32_t)width, slot_bytes);
	return bytes;
}

/* Of each rank those of the units that it trains. @least_bytes: a segment that a rank has all the
 * same. */
static uint64_t grads_bytes(const struct zi_plan_model *model,
                            const struct zi_plan_options *options, uint64_t width,
                            uint64_t slot_bytes, uint64_t least_bytes)
{
	uint64_t set_bytes[ZI_SETS_MAX] = { 0 }, bytes = 0;

	for (uint32_t i = 0; i < model->unit_count; i++)
		set_bytes[zi_plan_set_of(model, i)] +=
			zi_geometry_unit_bytes(model->unit_padded[i], (uint32_t)width, slot_bytes);
	for (uint64_t rest = zi_plan_here(options); rest; rest &= rest - 1) {
		uint64_t rank_bytes = 0;

		for (uint32_t set = 0; set < zi_plan_set_count(model); set++)
			if (zi_plan_members(model, options, set) & rest & -rest)
				rank_bytes += set_bytes[set];
		bytes += ZI_MAX(rank_bytes, least_bytes);
	}
	return bytes;
}

/* Huge slots where they cost at most an eighth more than small ones. */
static uint64_t choose_slot(const struct zi_plan_model *model,
                            const struct zi_plan_options *options, uint64_t width)
{
	uint64_t huge_bytes = plane_bytes(model, width, ZI_HUGE_PAGE_BYTES);
	uint64_t small_bytes = plane_bytes(model, width, ZI_STORE_ALIGN_BYTES);

	if (options->wants_huge && huge_bytes <= small_bytes + small_bytes / 8)
		return ZI_HUGE_PAGE_BYTES;
	return ZI_STORE_ALIGN_BYTES;
}

/* Subgroups of one unit that still fit become resident, the first ones of all. Return: more may. */
static bool take_resident(struct shares *shares, uint64_t padded, uint64_t width,
                          uint64_t *left_bytes)
{
	uint64_t full_bytes = ZI_SUBGROUP_ELEMENTS * width;
	uint64_t rest_bytes = padded % ZI_SUBGROUP_ELEMENTS * width;
	uint64_t full_count = padded / ZI_SUBGROUP_ELEMENTS;
	uint64_t count = ZI_MIN(full_count, *left_bytes / full_bytes);

	*left_bytes -= count * full_bytes;
	shares->resident_count += count;
	shares->resident_bytes += count * full_bytes;
	if (count < full_count || rest_bytes > *left_bytes)
		return false;
	*left_bytes -= rest_bytes;
	shares->resident_count += rest_bytes > 0;
	shares->resident_bytes += rest_bytes;
	return true;
}

/* @kept: whose parameters are on the store. */
static struct shares share(const struct zi_plan_model *model, const struct zi_plan_model *kept,
                           const struct zi_job_config *config, const struct widths *widths)
{
	uint64_t left_bytes = widths->is_nvme ? config->resident_bytes : UINT64_MAX;
	struct shares shares = { .subgroup_count = zi_plan_subgroups(model),
		                 .kept_count = zi_plan_subgroups(kept) };
	bool has_room = widths->state > 0;

	for (uint32_t i = 0; i < model->unit_count; i++) {
		uint64_t padded = model->unit_padded[i];

		if (has_room)
			has_room = take_resident(&shares, padded, widths->state, &left_bytes);
	}
	if (!widths->state)
		shares.resident_count = shares.subgroup_count; /* None of it waits for a slot. */
	shares.staged_bytes = model->padded_count * widths->state - shares.resident_bytes;
	shares.slot_bytes = zi_plan_longest(model, shares.resident_count) * widths->state;
	if (widths->is_stored) {
		uint64_t rest = zi_plan_longest(model, shares.resident_count);

		/* A resident subgroup's parameters pass through as well. */
		shares.staged_bytes += kept->padded_count * widths->param;
		shares.slot_bytes = ZI_MAX(rest * (widths->state + widths->param),
		                           zi_plan_longest(kept, 0) * widths->param);
	}
	return shares;
}

static uint64_t largest_bytes(const struct zi_plan_model *model, uint64_t width,
                              uint64_t slot_bytes)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < model->unit_count; i++)
		bytes = ZI_MAX(bytes, zi_geometry_unit_bytes(model->unit_padded[i], (uint32_t)width,
		                                             slot_bytes));
	return bytes;
}

/* Of the units that are small beside the largest (plan_pool.h). */
static uint64_t small_bytes(const struct zi_plan_model *model, uint64_t width, uint64_t slot_bytes)
{
	uint64_t largest_count = 0, bytes = 0;

	for (uint32_t i = 0; i < model->unit_count; i++)
		largest_count = ZI_MAX(largest_count, model->unit_padded[i]);
	for (uint32_t i = 0; i < model->unit_count; i++)
		if (zi_plan_pool_is_small(model->unit_padded[i], largest_count))
			bytes += zi_geometry_unit_bytes(model->unit_padded[i], (uint32_t)width,
			                                slot_bytes);
	return bytes;
}

/* Where nodes divide parameters: the own ones; of those on NVMe what is read for others. */
static uint64_t own_bytes(const struct zi_plan_model *held, const struct zi_plan_options *options,
                          const struct widths *widths)
{
	uint64_t bytes = held->padded_count * widths->param;

	if (!widths->is_divided && !widths->is_lent)
		return 0;
	if (widths->is_lent)
		bytes = ZI_MIN(zi_plan_subgroups(held), (uint64_t)ZI_PLAN_LENT_BUFFERS) *
		        zi_plan_longest(held, 0) * widths->param;
	return bytes ? segment_bytes(options, bytes, is_worth_huge(bytes)) : 0;
}

static int plan_param(const struct zi_plan_model *model, const struct zi_plan_part *part,
                      const struct zi_plan_options *options, const struct widths *widths,
                      struct zi_plan *plan, struct zi_text *text)
{
	uint64_t all_bytes = plane_bytes(model, widths->param, plan->slot_bytes);
	uint64_t least_bytes = largest_bytes(model, widths->param, plan->slot_bytes);
	uint64_t bytes;

	plan->copy_cpu_bytes = least_bytes;
	plan->param_cpu_bytes = all_bytes;
	if (!widths->is_stored && !widths->is_divided)
		return 0;
	plan->pool_min_bytes = least_bytes;
	bytes = options->config.param_budget_bytes / plan->slot_bytes * plan->slot_bytes;
	if (!options->config.param_budget_bytes)
		bytes = zi_plan_pool_bytes(&(struct zi_plan_pool){
			.all_bytes = all_bytes,
			.largest_bytes = least_bytes,
			.small_bytes = small_bytes(model, widths->param, plan->slot_bytes),
			.slot_bytes = plan->slot_bytes,
			.is_divided = widths->is_divided });
	if (bytes < least_bytes)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"param_budget_bytes is %s: the largest unit takes %s, grant at least "
			"%llu bytes",
			zi_format_bytes(options->config.param_budget_bytes).chars,
			zi_format_bytes(least_bytes).chars, (unsigned long long)least_bytes));
	plan->param_cpu_bytes = ZI_MIN(bytes, all_bytes) + own_bytes(&part->held, options, widths);
	return 0;
}

/* Whole subgroups, the first ones. Return: their bytes. */
static uint64_t resident_sums(const struct zi_plan_model *model, uint64_t width,
                              uint64_t left_bytes, uint64_t *ret_count)
{
	struct shares shares = { 0 };
	bool has_room = true;

	for (uint32_t i = 0; i < model->unit_count && has_room; i++)
		has_room = take_resident(&shares, model->unit_padded[i], width, &left_bytes);
	*ret_count = shares.resident_count;
	return shares.resident_bytes;
}

/* Nodes that step together in memory keep the sums apart from what ranks may write: a step may have
 * to be made when these have gone. */
static bool outlive_ranks(const struct zi_plan_options *options, const struct widths *widths)
{
	return options->local_ranks < options->world_size && !widths->is_nvme;
}

/* More where sums come from other nodes. */
static uint64_t spill_slots(const struct zi_plan_part *part)
{
	bool has_takes = part->summed.padded_count > part->finished_count;

	return has_takes ? 2 * ZI_SPILL_SLOTS : ZI_SPILL_SLOTS;
}

/* @ret_resident_count: subgroups whose sums stay in memory, of those that are held where others go
 * to the store: what is summed for other nodes alone passes through then. */
static int plan_grads(const struct zi_plan_model *model, const struct zi_plan_part *part,
                      const struct zi_plan_options *options, const struct widths *widths,
                      struct zi_plan *plan, uint64_t *ret_resident_count, struct zi_text *text)
{
	bool has_wide_sums = zi_training_has_wide_sums(&options->training, &options->config);
	const struct zi_grads_model grads_model = {
		.plane_bytes = plane_bytes(model, widths->grad, plan->slot_bytes),
		.largest_bytes = largest_bytes(model, widths->grad, plan->slot_bytes),
		.whole_bytes = grads_bytes(model, options, widths->grad, plan->slot_bytes, 0),
		.sum_bytes = has_wide_sums ? 0 : part->summed.padded_count * widths->grad,
		.spill_bytes = spill_slots(part) * zi_plan_longest(&part->summed, 0) * widths->grad,
		.slot_bytes = plan->slot_bytes,
		.rank_count = options->local_ranks,
		.unit_count = model->unit_count,
	};
	const struct zi_plan_model *kept;
	struct zi_grads grads;
	uint64_t sum_bytes;
	int r = zi_grads_plan(&grads_model, &options->config, &options->training, &grads);

	if (r)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"grad_budget_bytes is %s: the largest unit takes %s, grant at least "
			"%llu bytes",
			zi_format_bytes(options->training.grad_budget_bytes).chars,
			zi_format_bytes(grads_model.largest_bytes).chars,
			(unsigned long long)grads_model.largest_bytes));
	plan->grad_cpu_bytes =
		grads_bytes(model, options, widths->grad, plan->slot_bytes, ZI_STORE_ALIGN_BYTES);
	*ret_resident_count = UINT64_MAX;
	if (!grads.is_pooled) {
		if (outlive_ranks(options, widths))
			plan->grad_cpu_bytes += segment_bytes(options, grads_model.sum_bytes,
			                                      is_worth_huge(grads_model.sum_bytes));
		return 0;
	}
	plan->grad_cpu_bytes = options->local_ranks * grads.rank_bytes + grads.table_bytes;
	plan->bucket_cpu_bytes = grads.rank_bytes;
	if (has_wide_sums) /* They are in the accumulator. */
		return 0;
	kept = grads.is_stored ? &part->held : &part->summed;
	sum_bytes = resident_sums(kept, widths->grad, grads.sum_bytes, ret_resident_count);
	plan->grad_nvme_bytes = kept->padded_count * widths->grad - sum_bytes;
	if (grads.is_stored)
		sum_bytes += grads_model.spill_bytes;
	plan->grad_cpu_bytes += segment_bytes(options, sum_bytes, is_worth_huge(sum_bytes));
	return 0;
}

/* Sums of subgroups from @sum_count on pass through staging as well, behind all else. */
static void stage_sums(const struct zi_plan_model *model, const struct widths *widths,
                       uint64_t sum_count, struct shares *shares)
{
	uint64_t last = ZI_MAX(sum_count, shares->resident_count);
	uint64_t width = widths->grad + (widths->is_stored ? widths->param : 0);

	if (sum_count >= shares->subgroup_count)
		return;
	shares->slot_bytes = ZI_MAX(shares->slot_bytes, zi_plan_longest(model, sum_count) * width);
	shares->slot_bytes =
		ZI_MAX(shares->slot_bytes, zi_plan_longest(model, last) * (width + widths->state));
	shares->resident_count = ZI_MIN(shares->resident_count, sum_count);
}

static int plan_staging(const struct zi_plan_options *options, const struct widths *widths,
                        const struct shares *shares, struct zi_plan *plan, struct zi_text *text)
{
	uint64_t staging_bytes = options->config.staging_bytes;
	uint64_t staged_count = widths->is_stored ? shares->kept_count
	                                          : shares->subgroup_count - shares->resident_count;
	uint64_t slots;

	if (!widths->is_nvme || !shares->slot_bytes)
		return 0;
	if (!staging_bytes)
		staging_bytes = options->default_staging_bytes ? options->default_staging_bytes
		                                               : ZI_PLAN_STAGING_BYTES;
	plan->staging_min_bytes = ZI_PLAN_SLOTS_MIN * shares->slot_bytes;
	if (staging_bytes < plan->staging_min_bytes)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"staging_bytes is %s: %s needs %u slots of %s, at least %llu bytes",
			zi_format_bytes(staging_bytes).chars,
			widths->is_forward_only ? "writing parameters" : "a step",
			ZI_PLAN_SLOTS_MIN, zi_format_bytes(shares->slot_bytes).chars,
			(unsigned long long)plan->staging_min_bytes));
	slots = ZI_MIN(staging_bytes / shares->slot_bytes, widths->is_forward_only
	                                                           ? (uint64_t)ZI_PLAN_SLOTS_FORWARD
	                                                           : (uint64_t)ZI_PLAN_SLOTS_MAX);
	slots = ZI_MIN(slots, staged_count);
	plan->staging_cpu_bytes = segment_bytes(options, slots * shares->slot_bytes,
	                                        is_worth_huge(slots * shares->slot_bytes));
	return 0;
}

static void plan_store(const struct zi_plan_model *model, const struct zi_plan_model *kept,
                       const struct zi_plan_options *options, const struct widths *widths,
                       const struct shares *shares, struct zi_plan *plan)
{
	uint64_t held_bytes =
		model->padded_count * widths->state + kept->padded_count * widths->param;

	plan->reserved_nvme_bytes = options->snapshot_count * held_bytes;
	if (!widths->is_nvme)
		return;
	plan->state_nvme_bytes = model->padded_count * widths->state;
	plan->param_nvme_bytes = kept->padded_count * widths->param;
	/* Extents are never overwritten while committed: a second set, and a third one of what
	 * steps write that are not committed. */
	plan->reserved_nvme_bytes += 2 * held_bytes + plan->grad_nvme_bytes;
	plan->read_bytes_per_step = shares->staged_bytes + plan->grad_nvme_bytes;
	if (widths->is_forward_only)
		return;
	if (options->config.commit_interval > 1)
		plan->reserved_nvme_bytes += shares->staged_bytes;
	plan->write_bytes_per_step = held_bytes + plan->grad_nvme_bytes;
}

static int make(const struct zi_plan_model *model, const struct zi_plan_part *part,
                const struct zi_plan_options *options, struct zi_plan *ret_plan,
                struct zi_text *text)
{
	const struct widths widths = widths_of(model, options);
	/* Those that all nodes have are on the store of each (zero1, zero2). */
	const struct zi_plan_model *kept =
		widths.is_stored && !widths.is_divided ? model : &part->held;
	struct shares shares = share(&part->held, kept, &options->config, &widths);
	bool has_wide_sums = zi_training_has_wide_sums(&options->training, &options->config);
	uint64_t sum_count = UINT64_MAX, bytes;
	struct zi_plan plan = { .slot_bytes = choose_slot(model, options, widths.param) };
	int r = plan_param(model, part, options, &widths, &plan, text);

	if (!r && !widths.is_forward_only)
		r = plan_grads(model, part, options, &widths, &plan, &sum_count, text);
	if (!widths.is_forward_only && options->training.flags & ZI_TRAINING_FIND_UNUSED)
		plan.grad_cpu_bytes +=
			zi_unused_bytes(model->unit_count, model->param_count, options->world_size);
	if (!r)
		stage_sums(&part->held, &widths, sum_count, &shares);
	if (!r)
		r = plan_staging(options, &widths, &shares, &plan, text);
	if (r)
		return err_trace(r);
	/* There are nodes that sum nothing, and have the memory. */
	bytes = has_wide_sums ? part->summed.padded_count : part->finished_count;
	bytes = ZI_MAX(bytes, (uint64_t)1) * sizeof(float);
	if (!widths.is_forward_only &&
	    (options->config.schedule == ZI_SCHEDULE_SHARDED || has_wide_sums))
		plan.accum_cpu_bytes = segment_bytes(options, bytes, is_worth_huge(bytes));
	if (shares.resident_bytes)
		plan.state_cpu_bytes = segment_bytes(options, shares.resident_bytes,
		                                     is_worth_huge(shares.resident_bytes));
	bytes = options->tensor_bytes;
	plan.tensor_cpu_bytes =
		options->local_ranks * segment_bytes(options, bytes, bytes >= ZI_HUGE_PAGE_BYTES);
	plan.coll_cpu_bytes =
		options->local_ranks * segment_bytes(options, options->arena_bytes, true);
	if (options->local_ranks < options->world_size)
		plan.coll_cpu_bytes += options->node_count * ZI_PLAN_TALK_BYTES;
	plan_store(&part->held, kept, options, &widths, &shares, &plan);
	plan.cpu_bytes = plan.param_cpu_bytes + plan.grad_cpu_bytes + plan.accum_cpu_bytes +
	                 plan.state_cpu_bytes + plan.staging_cpu_bytes + plan.tensor_cpu_bytes +
	                 plan.coll_cpu_bytes + plan.copy_cpu_bytes;
	*ret_plan = plan;
	return 0;
}

/**
 * zi_plan_make() - what a job holds
 * @model: its units
 * @options: its configuration, and what of the daemon's matters
 * @ret_plan: written
 * @text: which field cannot be; may be NULL
 *
 * Return: 0; -EINVAL, -EOPNOTSUPP, -EPROTO the configuration, as zi_check_job_config(); -EINVAL a
 * model or ranks that cannot be, or budgets below the least, which the words name.
 * Context: any thread.
 */
int zi_plan_make(const struct zi_plan_model *model, const struct zi_plan_options *options,
                 struct zi_plan *ret_plan, struct zi_text *text)
{
	struct zi_plan_part part;
	int r = zi_plan_check(model, options, text);

	if (r)
		return err_trace(r);
	r = zi_plan_part_make(model, options, &part);
	if (r)
		return err_origin(zi_text_error(text, r, "no memory for a model of %u units",
		                                model->unit_count));
	r = make(model, &part, options, ret_plan, text);
	zi_plan_part_free(&part);
	return err_trace(r);
}
