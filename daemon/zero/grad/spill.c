/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots; see spill.h. Sums go through them in the order in which their units are complete. What is
 * in them is waited for (unit->reduce_count; over nodes grads->wait_count), so that no step goes on
 * without it.
 */
#include "daemon/zero/grad/spill.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/sums/grads_spill.h"
#include "daemon/zero/grad/spill_space.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/step/reduce.h"

/* See spill.h, as for all that are not static. */
uint32_t spill_slot_count(const struct zero_job *job)
{
	for_each_subgroup_here(job, subgroup)
		if (!job_finishes(job, subgroup) && !job->units[subgroup->unit].is_frozen)
			return ZERO_SPILL_SLOTS_MAX;
	return ZI_SPILL_SLOTS;
}

uint64_t spill_slot_bytes(const struct zero_job *job)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];

		if (subgroup->is_here || job_finishes(job, subgroup))
			bytes = ZI_MAX(bytes, job_subgroup_grad_bytes(job, subgroup));
	}
	return bytes;
}

int spill_new(struct zero_job *job)
{
	struct zero_spill *spill = calloc(1, sizeof(*spill));

	assert(!job->spill);
	if (!spill)
		return err_origin(-ENOMEM);
	job->spill = spill;
	zi_list_init(&spill->waiting);
	spill->slot_count = spill_slot_count(job);
	spill->hashes = calloc(job->tile_count, sizeof(*spill->hashes));
	if (!spill->hashes) {
		spill_free(job);
		return err_origin(-ENOMEM);
	}
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		zi_list_init(&job->subgroups[i].spill_link);
	for_each_subgroup_here(job, subgroup)
		if (subgroup->is_sum_stored)
			spill->stored_bytes += job_subgroup_grad_bytes(job, subgroup);
	return 0;
}

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

void spill_place(struct zero_job *job, void *memory)
{
	uint64_t slot_bytes = spill_slot_bytes(job);

	for (uint32_t i = 0; i < job->spill->slot_count; i++)
		job->spill->slots[i].memory = (char *)memory + i * slot_bytes;
}

bool spill_is_due(const struct zero_subgroup *subgroup)
{
	return subgroup->is_sum_stored && subgroup->is_last_micro;
}

static struct zero_spill_slot *free_slot(struct zero_spill *spill, bool is_made_here)
{
	uint32_t first = is_made_here ? 0 : ZI_SPILL_SLOTS;

	for (uint32_t i = first; i < first + ZI_SPILL_SLOTS && i < spill->slot_count; i++)
		if (!spill->slots[i].subgroup)
			return &spill->slots[i];
	return NULL;
}

bool spill_have(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;
	struct zero_spill_slot *slot = free_slot(job->spill, job_finishes(job, subgroup));

	assert(!subgroup->spill_slot);
	if (!slot)
		return false;
	slot->subgroup = subgroup;
	slot->is_busy = false;
	subgroup->spill_slot = slot;
	subgroup->sum = slot->memory;
	job->spill->used_count++;
	return true;
}

bool spill_take(struct zero_subgroup *subgroup)
{
	if (!spill_have(subgroup)) {
		zi_list_push_back(&subgroup->job->spill->waiting, &subgroup->spill_link);
		return false;
	}
	subgroup->spill_slot->is_busy = true;
	return true;
}

static void leave(struct zero_subgroup *subgroup)
{
	assert(subgroup->spill_slot);
	assert(subgroup->spill_slot->subgroup == subgroup);
	subgroup->spill_slot->subgroup = NULL;
	subgroup->spill_slot = NULL;
	subgroup->job->spill->used_count--;
}

/* Those that wait are made here. */
static void go_on(struct zero_job *job)
{
	struct zero_subgroup *next;

	if (!zi_list_is_empty(&job->spill->waiting) && free_slot(job->spill, true)) {
		next = container_of(job->spill->waiting.next, struct zero_subgroup, spill_link);
		zi_list_remove(&next->spill_link);
		if (!spill_take(next))
			assert(false);
		reduce_start(next);
	}
	grads_spill_more(job);
}

void spill_give(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;

	leave(subgroup);
	if (job->step.phase != ZERO_STEP_STEPPING)
		return; /* Others may be given it yet: its memory stays while the job is busy. */
	subgroup->sum = NULL;
	go_on(job);
}

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

void spill_lose(struct zero_job *job)
{
	struct zero_spill *spill = job->spill;

	spill_abort(job);
	for (uint32_t i = 0; spill && i < spill->slot_count; i++)
		if (spill->slots[i].subgroup && !spill->slots[i].is_busy)
			leave(spill->slots[i].subgroup);
}

bool spill_is_idle(const struct zero_job *job)
{
	return !job->spill || job->spill->used_count == 0;
}
