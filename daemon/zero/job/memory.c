/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a materialised job: planned and paid for at once, built on device threads, then put
 * to use. Floor 5, shard thread.
 *
 *   param     the parameters; as long as the job is in memory; ranks read it. With offload_param
 *             nvme, and divided over nodes, a pool for those that are used, of one incarnation
 *   shard     divided over nodes: this one's own parameters (shard.c)
 *   grads     what ranks write, and sums of it: grad/plan.c
 *   state     offload none or cpu: all optimizer state; nvme: the resident share, the first ones
 *   staging   nvme: what the rest streams through; a slot holds a subgroup's state, with a pool
 *             its parameters behind it, and behind those a sum of gradients that was stored
 */
#include "daemon/zero/job/memory.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "common/wire/plan.h"
#include "daemon/tier/holder.h"
#include "daemon/zero/grad/plan.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/grad/spill_space.h"
#include "daemon/zero/job/advice.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/shard.h"
#include "daemon/zero/param/pool.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/commit.h"

/* Return: huge pages for what only the daemon sees, where rounding up costs at most an eighth. */
enum tier_pages memory_pages(uint64_t bytes)
{
	bool is_worth_it = zi_align_up(bytes, ZI_HUGE_PAGE_BYTES) - bytes <= bytes / 8;

	return is_worth_it ? TIER_PAGES_COLLAPSED : TIER_PAGES_SMALL;
}

/* See memory.h. */
int memory_plan_segment(struct zero_job *job, const char *name, uint64_t bytes,
                        enum tier_pages pages, struct tier_segment **ret_place,
                        struct zi_text *text)
{
	int r;

	assert(!*ret_place);
	r = tier_segment_charge(job->cpu_tier, &job->account->account, name, bytes, pages, text,
	                        ret_place);
	if (r) {
		advice_append(job, text);
		return err_trace(r);
	}
	job->builds[job->build_count++] = (struct zero_build){ .job = job, .segment = *ret_place };
	return 0;
}

static int choose_pool_slots(const struct zero_job *job, struct zi_text *text, uint32_t *ret_count)
{
	uint32_t largest = 0;
	uint64_t slots_min = pool_slots_min(job, &largest);
	uint64_t slots = job->config.param_budget_bytes / job->slot_bytes;
	uint64_t all = job->param_bytes / job->slot_bytes;

	if (!job->config.param_budget_bytes)
		slots = pool_slots_chosen(job);
	if (slots < slots_min)
		return err_origin(zi_text_error(
			text, -ENOSPC,
			"param_budget_bytes is %s: unit '%.60s' takes %s, grant at least "
			"%llu bytes",
			zi_format_bytes(job->config.param_budget_bytes).chars,
			job->layout.units[largest].name,
			zi_format_bytes(slots_min * job->slot_bytes).chars,
			(unsigned long long)(slots_min * job->slot_bytes)));
	slots = ZI_MIN(slots, all);
	if (slots > UINT32_MAX)
		return err_origin(-EOVERFLOW);
	*ret_count = (uint32_t)slots;
	return 0;
}

static int plan_pool(struct zero_job *job, struct zi_text *text)
{
	uint32_t slot_count = 0;
	int r;

	assert(!job->param);
	r = choose_pool_slots(job, text, &slot_count);
	if (r)
		return err_trace(r);
	r = residency_new(job, slot_count);
	if (r)
		return err_origin(zi_text_error(text, r, "no memory for tables"));
	return err_trace(memory_plan_segment(
		job, "zinf-pool", slot_count * job->slot_bytes,
		job->slot_bytes == ZI_HUGE_PAGE_BYTES ? TIER_PAGES_HUGE : TIER_PAGES_SMALL,
		&job->param, text));
}

static int plan_param(struct zero_job *job, struct zi_text *text)
{
	bool is_huge = job->slot_bytes == ZI_HUGE_PAGE_BYTES;
	int r;

	if (job_has_pool(job)) {
		r = plan_pool(job, text);
		if (r)
			return err_trace(r);
	} else if (!job->param) {
		r = memory_plan_segment(job, "zinf-param", job->param_bytes,
		                        is_huge ? TIER_PAGES_HUGE : TIER_PAGES_SMALL, &job->param,
		                        text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* The first subgroups, as many as resident_bytes hold: backward comes to them last, so that an
 * early update ends with what need not be read. Returns their bytes. */
static uint64_t choose_resident(struct zero_job *job)
{
	uint64_t left_bytes = job_is_nvme(job) ? job->config.resident_bytes : UINT64_MAX;
	uint64_t bytes = 0;

	job->resident_count = job->subgroup_count;
	if (job_is_forward_only(job))
		return 0; /* Nobody asks for state: none of it is read. */
	for_each_subgroup_here(job, subgroup) {
		uint64_t next = job_subgroup_state_bytes(job, subgroup);

		if (next > left_bytes) {
			job->resident_count = job_subgroup_index(job, subgroup);
			break;
		}
		left_bytes -= next;
		bytes += next;
	}
	return bytes;
}

static int plan_state(struct zero_job *job, struct zi_text *text)
{
	uint64_t bytes;

	if (job->state)
		return 0;
	bytes = choose_resident(job);
	if (!bytes)
		return 0;
	return err_trace(memory_plan_segment(job, "zinf-state", bytes, memory_pages(bytes),
	                                     &job->state, text));
}

static bool is_resident(const struct zero_job *job, const struct zero_subgroup *subgroup)
{
	return job_subgroup_index(job, subgroup) < job->resident_count;
}

/* With a pool any subgroup's parameters may have to pass through, wherever its state is. */
static uint32_t staged_count(const struct zero_job *job)
{
	uint32_t count = 0;

	if (job_stores_param(job))
		return job->kept_count;
	for_each_subgroup_here(job, subgroup)
		count += !is_resident(job, subgroup) || subgroup->is_sum_stored;
	return count;
}

static uint64_t staging_slot_bytes(const struct zero_job *job)
{
	uint64_t slot_bytes = 0;

	for_each_subgroup_here(job, subgroup) {
		uint64_t bytes = 0;

		if (!is_resident(job, subgroup))
			bytes += job_subgroup_state_bytes(job, subgroup);
		if (job_stores_param(job))
			bytes += job_subgroup_param_bytes(job, subgroup);
		if (subgroup->is_sum_stored)
			bytes += job_subgroup_grad_bytes(job, subgroup);
		slot_bytes = ZI_MAX(slot_bytes, bytes);
	}
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		if (job_keeps_copy(&job->subgroups[i]))
			slot_bytes = ZI_MAX(slot_bytes,
			                    job_subgroup_param_bytes(job, &job->subgroups[i]));
	return slot_bytes;
}

static uint64_t staging_bytes(const struct zero_job *job)
{
	return job->config.staging_bytes ? job->config.staging_bytes
	                                 : job->zero->options.default_staging_bytes;
}

/* No more slots than there is to stream: a small job pays for little. */
static uint32_t staging_slots(const struct zero_job *job, uint64_t slot_bytes)
{
	uint64_t slots = staging_bytes(job) / slot_bytes;

	slots = ZI_MIN(slots, job_is_forward_only(job) ? (uint64_t)ZI_PLAN_SLOTS_FORWARD
	                                               : (uint64_t)ZERO_STAGING_SLOTS_MAX);
	return (uint32_t)ZI_MIN(slots, (uint64_t)staged_count(job));
}

static int plan_staging(struct zero_job *job, struct zi_text *text)
{
	uint64_t slot_bytes = staging_slot_bytes(job);
	uint64_t bytes;

	if (!job_is_nvme(job) || !slot_bytes)
		return 0;
	if (job_is_forward_only(job) && !job->is_stateless)
		return 0; /* Nothing is written. */
	if (staging_bytes(job) / slot_bytes < ZERO_STAGING_SLOTS_MIN)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"staging_bytes is %s: %s needs %u slots of %s, at least %llu bytes",
			zi_format_bytes(staging_bytes(job)).chars,
			job->is_stateless ? "writing parameters" : "a step", ZERO_STAGING_SLOTS_MIN,
			zi_format_bytes(slot_bytes).chars,
			(unsigned long long)(ZERO_STAGING_SLOTS_MIN * slot_bytes)));
	bytes = slot_bytes * staging_slots(job, slot_bytes);
	return err_trace(memory_plan_segment(job, "zinf-staging", bytes, memory_pages(bytes),
	                                     &job->staging_segment, text));
}

static uint64_t stored_bytes(const struct zero_job *job)
{
	/* Each subgroup's extents are whole blocks of 4096 elements: nothing to round. */
	return job->here_elements * job_state_bytes(job) + job_param_bytes(job, job->kept_elements);
}

/* What each step writes anew, also when it is not committed. */
static uint64_t streamed_bytes(const struct zero_job *job)
{
	uint64_t bytes = 0;

	for_each_subgroup_here(job, subgroup) {
		if (!is_resident(job, subgroup))
			bytes += job_subgroup_state_bytes(job, subgroup);
	}
	return job_stores_param(job) ? bytes + job_param_bytes(job, job->kept_elements) : bytes;
}

/* Extents are never overwritten while committed: a step needs room for a second set, and a third
 * one of what steps write that are not committed. */
static int plan_store(struct zero_job *job, struct zi_text *text)
{
	struct tier_account *account = &job->account->account;
	struct tier *tier = job->nvme_tier;
	uint64_t former_bytes = job->nvme_charge.bytes;
	uint64_t bytes = stored_bytes(job);
	uint64_t third_bytes = job_interval(job) > 1 ? streamed_bytes(job) : 0;
	struct zi_text why = { "" }, third = { "" };
	int r;

	third_bytes += spill_bytes(job);
	if (!job_is_nvme(job) || former_bytes == 2 * bytes + third_bytes)
		return 0;
	assert(tier);
	tier_charge_return(&job->nvme_charge);
	r = tier_charge_take(&job->nvme_charge, tier, account, 2 * bytes + third_bytes, &why);
	if (!r)
		return 0;
	/* What it had is what it has: there was room for it a moment ago. */
	if (former_bytes && tier_charge_take(&job->nvme_charge, tier, account, former_bytes, NULL))
		assert(false);
	if (third_bytes > spill_bytes(job))
		zi_text_set(&third, " and %s (commit_interval %u)",
		            zi_format_bytes(third_bytes - spill_bytes(job)).chars,
		            job_interval(job));
	if (spill_bytes(job))
		zi_text_append(&third, " and %s (gradients)",
		               zi_format_bytes(spill_bytes(job)).chars);
	r = zi_text_error(text, r == TIER_E_QUOTA ? -EDQUOT : -ENOSPC,
	                  "job '%s' needs 2 x %s%s on %s: %s", job->name,
	                  zi_format_bytes(bytes).chars, third.chars, tier->name, why.chars);
	advice_append(job, text);
	return err_origin(r);
}

/* Return: 0; -ENOMEM. */
int memory_plan_items(struct zero_job *job)
{
	uint32_t others = job->nvme_tier ? job->nvme_tier->member_count - 1 : 0;

	if (job->items)
		return 0;
	/* Beside what holds a staging slot: two for each thread, so that none of them waits for the
	 * shard, and a few in the hands of the disk. */
	job->item_count = 2 * dev_width(job->device) + 6;
	if (job->staging_segment)
		job->item_count += staging_slots(job, staging_slot_bytes(job));
	/* Each path can fail once for whatever is being written. */
	job->abandoned_max = others * (_ZERO_PLANE_COUNT * job->item_count + ZERO_SPILL_SLOTS_MAX);
	free(job->abandoned);
	job->abandoned = calloc(job->abandoned_max + 1, sizeof(*job->abandoned));
	if (!job->abandoned)
		return err_origin(-ENOMEM);
	job->items = calloc(job->item_count, sizeof(*job->items));
	if (!job->items)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < job->item_count; i++)
		job->items[i].job = job;
	return 0;
}

static int plan_blobs(struct zero_job *job)
{
	/* Those of other nodes' ranks go with what this node commits, too (across/bytes/blobs.h).
	 */
	bool has_all = job_spans_nodes(job) && job_is_nvme(job);

	/* In force, committed, and of the step: the first two are one where every step commits. */
	for (uint32_t which = 0; which < (job_interval(job) > 1 ? ZERO_BLOBS : 2); which++)
		for (uint32_t rank = 0; rank < job->world; rank++) {
			struct zero_blob *blob = &job->blobs[which][rank];

			if (blob->bytes || !(has_all || job->here_mask >> rank & 1))
				continue;
			blob->bytes = malloc(ZI_BLOB_BYTES);
			if (!blob->bytes)
				return err_origin(-ENOMEM);
		}
	return 0;
}

/*
 * Charges, in order of how soon a refusal is useful, then tables. What was charged before a failure
 * is the job's, and goes with job_drop_memory(). Return: 0; -ENOSPC, -EDQUOT, -EINVAL with figures;
 * -ENOMEM.
 */
int memory_plan(struct zero_job *job, struct zi_text *text)
{
	int r;

	job->build_count = 0;
	/* Gradients of each rank here, sums of two kinds, parameters and own ones, state, staging.
	 */
	job->builds =
		calloc((uint32_t)__builtin_popcountll(job->here_mask) + 6, sizeof(*job->builds));
	if (!job->builds)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	if (!job->state)
		(void)choose_resident(job); /* The store's share depends on it, */
	r = grads_choose(job, text);        /* and on this. */
	if (!r)
		r = plan_store(job, text);
	if (!r)
		r = plan_param(job, text);
	if (!r)
		r = shard_plan(job, text);
	if (!r)
		r = grads_plan(job, text);
	if (!r)
		r = plan_state(job, text);
	if (!r)
		r = plan_staging(job, text);
	if (r)
		return err_trace(r);
	r = memory_plan_items(job);
	if (!r)
		r = plan_blobs(job);
	if (r)
		return err_origin(zi_text_error(text, r, "no memory for tables"));
	return 0;
}

static void place_state(struct zero_job *job)
{
	uint64_t offset = 0;

	for_each_subgroup_here(job, subgroup) {
		if (!job->state || !is_resident(job, subgroup))
			break;
		subgroup->memory = (char *)job->state->region.base + offset;
		offset += job_subgroup_state_bytes(job, subgroup);
	}
}

/* Each rank holds what it will receive until it leaves. Last of all: a failure before leaves
 * nothing in the hands of ranks that never saw it. Return: 0; -ENOMEM. */
int memory_hand_out(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		job->units[i].users_mask = 0;
	for_each_rank_here(job, number) {
		struct zero_rank *rank = job->group.ranks[number];
		int r;

		free(rank->pin_counts);
		rank->pin_counts = calloc(job->layout.unit_count, sizeof(*rank->pin_counts));
		if (!rank->pin_counts)
			return err_origin(-ENOMEM);
		r = tier_holder_add(rank->holder, job->param);
		if (!r && job->grads[number])
			r = tier_holder_add(rank->holder, job->grads[number]);
		if (r)
			return err_trace(r);
	}
	return 0;
}

static int register_segment(struct zero_job *job, struct tier_segment *segment)
{
	if (!job_is_nvme(job) || !segment || segment->engine)
		return 0;
	return err_trace(tier_segment_register(segment, job->zero->options.engine));
}

/* Return: 0; -ENOMEM. */
int memory_finish(struct zero_job *job, struct zi_text *text)
{
	uint64_t slot_bytes = staging_slot_bytes(job);
	int r = 0;

	place_state(job);
	shard_place(job);
	grads_place(job);
	if (job->staging_segment) {
		r = tier_staging_adopt(job->staging_segment, job->zero->options.engine, slot_bytes,
		                       staging_slots(job, slot_bytes), &job->staging);
		if (!r)
			job->staging_segment = NULL; /* Passed over. */
	}
	if (!r && (job_stores_param(job) || !job->residency))
		r = register_segment(job, job->param);
	if (!r)
		r = register_segment(job, job->shard);
	if (!r)
		r = register_segment(job, job->lent);
	if (!r)
		r = register_segment(job, job->state);
	if (r)
		return err_origin(zi_text_error(text, r, "preparing memory of job '%s': %s",
		                                job->name, zi_err_name(r)));
	return 0;
}
