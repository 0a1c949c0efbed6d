/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job's gradients take. All of it serves one incarnation. Floor 5, shard thread.
 *
 *   grads     one for each rank that is here, which it writes: a plane, or buckets
 *   sums      of all ranks, with buckets; the daemon's alone. Of those that go to the store a few
 *   accum     fp32 sums of the sharded schedule, or of gradients of 16 bits that are summed in f32
 * Which of the first two is common/wire/grads.h's.
 */
#include "daemon/zero/grad/plan.h"

#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "common/wire/grads.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/grad/pool.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/memory.h"
#include "daemon/zero/step/unused.h"

/* Its sum is made here, or needed here. */
static bool has_sum(const struct zero_job *job, const struct zero_subgroup *subgroup)
{
	return (subgroup->is_here && !job->units[subgroup->unit].is_frozen) ||
	       job_finishes(job, subgroup);
}

/* Elements of those whose sum is; and of those that are summed here. */
static uint64_t sum_elements(const struct zero_job *job, bool is_made_here)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];

		if (is_made_here ? job_finishes(job, subgroup) : has_sum(job, subgroup))
			count += subgroup->element_count;
	}
	return count;
}

/* Which unit is the longest is for the words. */
static struct zi_grads_model model_of(const struct zero_job *job, uint32_t *ret_largest)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);
	struct zi_grads_model model = {
		.sum_bytes = job_has_wide_sums(job) ? 0 : sum_elements(job, false) * width,
		.spill_bytes = spill_slot_count(job) * spill_slot_bytes(job),
		.slot_bytes = job->slot_bytes,
		.rank_count = (uint32_t)__builtin_popcountll(job->here_mask),
		.unit_count = job->layout.unit_count,
	};

	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		uint64_t bytes =
			zi_geometry_unit_bytes(job->units[i].padded_count, width, job->slot_bytes);

		model.whole_bytes += bytes * (uint64_t)__builtin_popcountll(set_mask_here(job, i));
		if (job->units[i].is_frozen)
			continue;
		model.plane_bytes += bytes;
		if (bytes > model.largest_bytes)
			*ret_largest = i;
		model.largest_bytes = ZI_MAX(model.largest_bytes, bytes);
	}
	return model;
}

static int plan_ranks(struct zero_job *job, const struct zi_grads *grads, struct zi_text *text)
{
	bool is_huge = job->slot_bytes == ZI_HUGE_PAGE_BYTES;
	int r = 0;

	for_each_rank_here(job, rank) {
		uint64_t bytes = grads->is_pooled ? grads->rank_bytes : set_grad_bytes(job, rank);

		if (!r)
			r = memory_plan_segment(job, "zinf-grad", bytes,
			                        is_huge ? TIER_PAGES_COLLAPSED : TIER_PAGES_SMALL,
			                        &job->grads[rank], text);
	}
	return err_trace(r);
}

/* The first ones stay in memory, as many as there is room for; not those that are made for other
 * nodes alone, which pass through a slot and nothing else. Return: their bytes. */
static uint64_t choose_stored(struct zero_job *job)
{
	uint64_t left_bytes = job->grad_plan.sum_bytes, bytes = 0;
	bool is_stored = false;

	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[i];
		uint64_t next_bytes = job_subgroup_grad_bytes(job, subgroup);

		subgroup->is_sum_stored = false;
		if (!has_sum(job, subgroup) || job_has_wide_sums(job))
			continue;
		if (job->grad_plan.is_stored && !subgroup->is_here) {
			subgroup->is_sum_stored = true;
			continue;
		}
		is_stored |= job->grad_plan.is_pooled && next_bytes > left_bytes;
		subgroup->is_sum_stored = is_stored;
		if (is_stored || !job->grad_plan.is_pooled)
			continue;
		left_bytes -= next_bytes;
		bytes += next_bytes;
	}
	return bytes;
}

/* A step on state in memory that nodes make together: its sums may have to outlast the ranks, who
 * write where they please (step/doubt.h). */
static bool outlive_group(const struct zero_job *job)
{
	return job->across && !job_is_nvme(job);
}

/* See plan.h. */
int grads_choose(struct zero_job *job, struct zi_text *text)
{
	struct zi_grads_model model;
	uint32_t largest = 0;
	int r = 0;

	job->grad_plan = (struct zi_grads){ 0 };
	if (job_is_forward_only(job))
		return 0;
	model = model_of(job, &largest);
	if (model.largest_bytes) /* Else there is nothing to train. */
		r = zi_grads_plan(&model, &job->config, &job->training, &job->grad_plan);
	if (r)
		return err_origin(zi_text_error(
			text, r,
			"grad_budget_bytes is %s: unit '%.60s' takes %s, grant at least "
			"%llu bytes",
			zi_format_bytes(job->training.grad_budget_bytes).chars,
			job->layout.units[largest].name, zi_format_bytes(model.largest_bytes).chars,
			(unsigned long long)model.largest_bytes));
	job->grad_plan.sum_bytes = choose_stored(job);
	if (!job->grad_plan.is_pooled && outlive_group(job))
		job->grad_plan.sum_bytes = model.sum_bytes;
	r = job->grad_plan.is_stored ? spill_new(job) : 0;
	if (r)
		return err_origin(zi_text_error(text, r, "no memory for tables"));
	if (job->spill)
		job->grad_plan.sum_bytes += model.spill_bytes;
	return 0;
}

/* See plan.h. */
int grads_plan(struct zero_job *job, struct zi_text *text)
{
	/* Wide sums lie there too, made here or not. At least one: there are nodes that sum
	 * nothing. */
	uint64_t accum_count = ZI_MAX(sum_elements(job, !job_has_wide_sums(job)), 1ull);
	uint64_t accum_bytes = accum_count * sizeof(float);
	uint64_t sum_bytes = job->grad_plan.sum_bytes;
	int r;

	if (job_is_forward_only(job))
		return 0;
	r = plan_ranks(job, &job->grad_plan, text);
	if (!r)
		r = unused_charge(job, text);
	if (!r && job->grad_plan.is_pooled)
		r = grad_pool_new(job, text);
	if (!r && sum_bytes)
		r = memory_plan_segment(job, "zinf-sums", sum_bytes, memory_pages(sum_bytes),
		                        &job->sums, text);
	if (r || (job->config.schedule != ZI_SCHEDULE_SHARDED && !job_has_wide_sums(job)))
		return err_trace(r);
	return err_trace(memory_plan_segment(job, "zinf-accum", accum_bytes,
	                                     memory_pages(accum_bytes), &job->accum, text));
}

/* See plan.h. */
void grads_place(struct zero_job *job)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);
	uint64_t offset_bytes = 0, accum_offset = 0;

	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[i];

		if (job->sums && has_sum(job, subgroup) && !subgroup->is_sum_stored) {
			subgroup->sum = (char *)job->sums->region.base + offset_bytes;
			offset_bytes += (uint64_t)subgroup->element_count * width;
		}
		if (job_has_wide_sums(job) ? !has_sum(job, subgroup) : !job_finishes(job, subgroup))
			continue;
		subgroup->accum_offset = accum_offset;
		accum_offset += (uint64_t)subgroup->element_count * sizeof(float);
	}
	if (job->spill)
		spill_place(job, (char *)job->sums->region.base + offset_bytes);
}

/* See plan.h. */
void grads_drop_sums(struct zero_job *job)
{
	job->sums = tier_segment_unref(job->sums);
	job->accum = tier_segment_unref(job->accum);
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		job->subgroups[i].sum = NULL;
		job->subgroups[i].is_sum_stored = false;
	}
	unused_drop(job); /* Which of them count. */
}

/* See plan.h. */
void grads_drop(struct zero_job *job)
{
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		job->grads[i] = tier_segment_unref(job->grads[i]);
	grad_pool_free(job);
	spill_free(job);
	if (!job->doubt.is_on)
		grads_drop_sums(job);
	else if (!job_has_wide_sums(job)) /* Else sums lie there. */
		job->accum = tier_segment_unref(job->accum);
}

static uint64_t held_bytes(const struct tier_segment *segment)
{
	return segment ? segment->bytes : 0;
}

/* Return: of the plane, on this node; the accumulator is one of its own. */
uint64_t grads_held_bytes(const struct zero_job *job)
{
	uint64_t bytes =
		held_bytes(job->sums) + grad_pool_charged_bytes(job) + unused_charged_bytes(job);

	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		bytes += held_bytes(job->grads[i]);
	return bytes;
}
