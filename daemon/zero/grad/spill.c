/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few slots, through which sums go in the order in which their units are complete. What is in
 * them counts as being reduced (unit->reduce_count), so neither buckets nor a step go on without
 * it. Sums are of one step: their extents are reserved when it begins, and free when it is over.
 */
#include "daemon/zero/grad/spill.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/reduce.h"
#include "kernels/hash.h"

/* See spill.h. */
int spill_new(struct zero_job *job)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);
	struct zero_spill *spill = calloc(1, sizeof(*spill));

	assert(!job->spill);
	if (!spill)
		return err_origin(-ENOMEM);
	job->spill = spill;
	zi_list_init(&spill->waiting);
	spill->hashes = calloc(job->tile_count, sizeof(*spill->hashes));
	if (!spill->hashes) {
		spill_free(job);
		return err_origin(-ENOMEM);
	}
	for_each_subgroup_here(job, subgroup) {
		zi_list_init(&subgroup->spill_link);
		if (subgroup->is_sum_stored)
			spill->stored_bytes += (uint64_t)subgroup->element_count * width;
	}
	return 0;
}

/* See spill.h. */
void spill_free(struct zero_job *job)
{
	struct zero_spill *spill = job->spill;

	if (!spill)
		return;
	assert(spill_is_idle(job));
	assert(zi_list_is_empty(&spill->waiting));
	spill_release(job);
	job->spill = NULL;
	free(spill->hashes);
	free(spill);
}

/* See spill.h. */
uint64_t spill_slot_bytes(const struct zero_job *job)
{
	uint64_t bytes = 0;

	for_each_subgroup_here(job, subgroup)
		bytes = ZI_MAX(bytes, job_subgroup_grad_bytes(job, subgroup));
	return bytes;
}

/* See spill.h. */
void spill_place(struct zero_job *job, void *memory)
{
	uint64_t slot_bytes = spill_slot_bytes(job);

	for (uint32_t i = 0; i < ZI_SPILL_SLOTS; i++)
		job->spill->slots[i].memory = (char *)memory + i * slot_bytes;
}

/* See spill.h. */
bool spill_is_due(const struct zero_subgroup *subgroup)
{
	return subgroup->is_sum_stored && subgroup->is_last_micro;
}

static struct zero_spill_slot *free_slot(struct zero_spill *spill)
{
	for (uint32_t i = 0; i < ZI_SPILL_SLOTS; i++)
		if (!spill->slots[i].subgroup)
			return &spill->slots[i];
	return NULL;
}

/* See spill.h. */
bool spill_take(struct zero_subgroup *subgroup)
{
	struct zero_spill *spill = subgroup->job->spill;
	struct zero_spill_slot *slot = free_slot(spill);

	assert(!subgroup->spill_slot);
	if (!slot) {
		zi_list_push_back(&spill->waiting, &subgroup->spill_link);
		return false;
	}
	slot->subgroup = subgroup;
	subgroup->spill_slot = slot;
	subgroup->sum = slot->memory;
	spill->used_count++;
	return true;
}

static uint64_t tile_bytes(const struct zero_subgroup *subgroup, uint32_t tile)
{
	uint64_t first = (uint64_t)tile * ZI_TILE_ELEMENTS;

	return ZI_MIN((uint64_t)ZI_TILE_ELEMENTS, subgroup->element_count - first) *
	       zi_dtype_bytes((enum zi_dtype)subgroup->job->config.grad_dtype);
}

/* @sum: of the whole subgroup. */
static uint64_t tile_hash(const struct zero_subgroup *subgroup, const void *sum, uint32_t tile,
                          uint64_t *ret_offset_bytes)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)subgroup->job->config.grad_dtype);

	*ret_offset_bytes = (uint64_t)tile * ZI_TILE_ELEMENTS * width;
	return kern_hash_tile((const char *)sum + *ret_offset_bytes, tile_bytes(subgroup, tile),
	                      width);
}

/* See spill.h. */
void spill_hash(const struct zero_subgroup *subgroup, const void *sum)
{
	uint64_t *hashes = subgroup->job->spill->hashes + subgroup->tile_first;
	uint64_t offset_bytes;

	for (uint32_t i = 0; i < subgroup->tile_count; i++)
		hashes[i] = tile_hash(subgroup, sum, i, &offset_bytes);
}

/* See spill.h. */
int spill_verify(const struct zero_subgroup *subgroup, const void *sum, uint32_t tile,
                 struct zi_text *text)
{
	const struct zero_job *job = subgroup->job;
	const struct tier_extent *extent = &subgroup->sum_place.next;
	uint64_t offset_bytes;

	if (tile_hash(subgroup, sum, tile, &offset_bytes) ==
	    job->spill->hashes[subgroup->tile_first + tile])
		return 0;
	return err_origin(zi_text_error(
		text, -EBADMSG,
		"job '%s': gradients of unit '%.60s' are damaged: %llu bytes at offset %llu of %s "
		"do not match their checksum",
		job->name, job->layout.units[subgroup->unit].name,
		(unsigned long long)tile_bytes(subgroup, tile),
		(unsigned long long)(extent->offset_bytes + offset_bytes), extent->member->path));
}

/* Its slot is the next one's, which begins at once. */
static void give(struct zero_subgroup *subgroup)
{
	struct zero_spill *spill = subgroup->job->spill;

	assert(subgroup->spill_slot);
	subgroup->spill_slot->subgroup = NULL;
	subgroup->spill_slot = NULL;
	subgroup->sum = NULL;
	spill->used_count--;
	if (!zi_list_is_empty(&spill->waiting)) {
		struct zero_subgroup *next =
			container_of(spill->waiting.next, struct zero_subgroup, spill_link);

		zi_list_remove(&next->spill_link);
		if (!spill_take(next))
			assert(false);
		reduce_start(next);
	}
}

/* See spill.h. */
void spill_drop(struct zero_subgroup *subgroup)
{
	give(subgroup);
}

/* The step ends with it, as when reading ahead fails. */
static void fail(struct zero_subgroup *subgroup, const struct tier_move *move, int error)
{
	struct zero_job *job = subgroup->job;

	if (job->pipeline.error || job->step.phase != ZERO_STEP_STEPPING)
		return;
	job->pipeline.error = error;
	zi_text_set(&job->pipeline.text,
	            "job '%s': writing gradients of unit '%.60s', subgroup %u, at offset %llu of "
	            "%s: %s",
	            job->name, job->layout.units[subgroup->unit].name, subgroup->index,
	            (unsigned long long)move->offset_bytes, move->member->path, zi_err_name(error));
}

static void written(struct tier_move *move);

/* False: it failed at once. */
static bool submit(struct zero_subgroup *subgroup)
{
	struct zero_spill_slot *slot = subgroup->spill_slot;
	const struct tier_extent *extent = &subgroup->sum_place.next;
	struct zero_job *job = subgroup->job;
	int r;

	assert(extent->bytes > 0);
	slot->move = (struct tier_move){
		.member = extent->member,
		.is_write = true,
		.offset_bytes = extent->offset_bytes,
		.buffer = slot->memory,
		.bytes = extent->bytes,
		.flow = job->flow,
		.tally = &job->account->tally,
		.done = written,
	};
	r = tier_move_submit(job->zero->options.engine, &slot->move);
	if (r) {
		fail(subgroup, &slot->move, r);
		return false;
	}
	job_busy(job);
	return true;
}

/* A failed write is final for that copy: the same bytes go to another path. */
static bool rewrite(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;

	if (job->pipeline.error || job->step.phase != ZERO_STEP_STEPPING ||
	    extent_replace(job, &subgroup->sum_place, ZERO_LANE_SUM, true))
		return false;
	return submit(subgroup);
}

/* Of what is in a slot; after an error the pipeline ends the step. */
static void end(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;
	bool is_failed = job->pipeline.error && job->step.phase == ZERO_STEP_STEPPING;

	if (is_failed)
		spill_abort(job);
	give(subgroup);
	reduce_end(subgroup); /* The job may be gone, but not while it steps. */
	if (is_failed)
		pipeline_pump(job);
}

static void written(struct tier_move *move)
{
	struct zero_spill_slot *slot = container_of(move, struct zero_spill_slot, move);
	struct zero_subgroup *subgroup = slot->subgroup;
	struct zero_job *job = subgroup->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	if (!move->result) {
		job->pipeline.write_bytes += move->bytes;
	} else if (rewrite(subgroup)) {
		tier_move_kick(job->zero->options.engine);
		return;
	} else {
		fail(subgroup, move, move->result);
	}
	end(subgroup);
	zero_drain(zero);
}

/* See spill.h. */
void spill_write(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;

	if (submit(subgroup))
		tier_move_kick(job->zero->options.engine);
	else
		end(subgroup);
}

/* See spill.h. */
void spill_abort(struct zero_job *job)
{
	while (job->spill && !zi_list_is_empty(&job->spill->waiting)) {
		struct zero_subgroup *subgroup =
			container_of(job->spill->waiting.next, struct zero_subgroup, spill_link);

		zi_list_remove(&subgroup->spill_link);
		job->units[subgroup->unit].reduce_count--;
		job->step.reduce_count--;
	}
}

/* See spill.h. */
bool spill_is_idle(const struct zero_job *job)
{
	return !job->spill || job->spill->used_count == 0;
}

/* See spill.h. */
uint64_t spill_bytes(const struct zero_job *job)
{
	return job->spill ? job->spill->stored_bytes : 0;
}

/* @bytes: (member_count,), of a step so far; *@sum: of all of them. */
void spill_add_due(const struct zero_job *job, uint64_t *bytes, uint64_t *sum)
{
	for (uint32_t i = 0; job->spill && i < job->subgroup_count; i++) {
		const struct tier_extent *next = &job->subgroups[i].sum_place.next;

		if (!next->bytes)
			continue;
		bytes[next->member - job->nvme_tier->members] += next->bytes;
		*sum += next->bytes;
	}
}

static int refuse(struct zero_job *job, uint64_t free_bytes, struct zi_text *text)
{
	return err_origin(zi_text_error(
		text, -ENOSPC,
		"gradients of a step of job '%s' need %s of new space on %s, %s are free (%.100s)",
		job->name, zi_format_bytes(spill_bytes(job)).chars, job->nvme_tier->name,
		zi_format_bytes(free_bytes).chars, tier_paths(job->nvme_tier).chars));
}

/* Twice the bytes for bits that nobody keeps. */
static int refuse_f32(struct zero_job *job, struct zi_text *text)
{
	return err_origin(zi_text_error(
		text, -EINVAL,
		"gradients never go to NVMe in f32: %s of the sums of job '%s' have no room in "
		"grad_budget_bytes: grant at least %llu, or use grad_dtype bf16, or update_early "
		"without a norm",
		zi_format_bytes(spill_bytes(job)).chars, job->name,
		(unsigned long long)(job->training.grad_budget_bytes + spill_bytes(job))));
}

/* See spill.h. */
int spill_reserve(struct zero_job *job, struct zi_text *text)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);
	uint64_t free_bytes;
	int r = 0;

	if (!job->spill)
		return 0;
	if (job->config.grad_dtype == ZI_DTYPE_F32)
		return err_trace(refuse_f32(job, text));
	free_bytes = tier_extent_free_bytes(job->nvme_tier);
	for_each_subgroup_here(job, subgroup) {
		if (!r && subgroup->is_sum_stored)
			r = tier_extent_reserve(job->nvme_tier, ZERO_LANE_SUM,
			                        (uint64_t)subgroup->element_count * width,
			                        &subgroup->sum_place.next);
	}
	if (!r)
		return 0;
	spill_release(job);
	return r == TIER_E_FULL ? err_trace(refuse(job, free_bytes, text)) : err_fold(r);
}

/* See spill.h. */
void spill_release(struct zero_job *job)
{
	assert(spill_is_idle(job));
	for (uint32_t i = 0; job->spill && i < job->subgroup_count; i++)
		tier_extent_release(&job->subgroups[i].sum_place.next);
}
