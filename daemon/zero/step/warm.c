/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm slots: staging that keeps the optimizer state which a step wrote last, so that the next step
 * need not read it. Floor 5, shard thread.
 *
 *   free ──▶ an item's ──written, or the step is skipped──▶ warm ──next step──▶ an item's
 *    ▲                                                       │
 *    └── void, or a slot is wanted: the oldest gives way ────┘
 * The last subgroups of a step are warm, as many as there are slots, and the next step begins with
 * them (queue.c). So while a step's tail is written nothing is left to read for the next one: all
 * of its slots are full.
 *
 * What is warm is the state of the step under way from its write on, and the state in force once
 * that step is taken. Whatever ends the step otherwise voids it (job_unload()), and so does
 * param_write_end(). Nothing rests on that alone: what was warm is verified before it is
 * updated, against the checksums of the extent in force, as if it had been read.
 */
#include "daemon/zero/step/warm.h"

#include "common/base/assert.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

/* @slot: holds the state of @subgroup, whose it is from now on. */
void warm_keep(struct zero_subgroup *subgroup, void *slot)
{
	struct zero_job *job = subgroup->job;

	assert(!subgroup->warm);
	assert(!subgroup->memory);
	if (!job->zero->options.is_staging_kept) {
		tier_staging_give(job->staging, slot);
		return;
	}
	subgroup->warm = slot;
	zi_list_push_back(&job->warm, &subgroup->warm_link);
}

/* Return: the slot with the subgroup's state, the caller's; NULL: it has to be read. */
void *warm_claim(struct zero_subgroup *subgroup)
{
	void *slot = subgroup->warm;

	if (!slot)
		return NULL;
	assert(!subgroup->is_reset);
	subgroup->warm = NULL;
	zi_list_remove(&subgroup->warm_link);
	return slot;
}

/* What is warm of @subgroup counts no more. */
void warm_drop(struct zero_subgroup *subgroup)
{
	void *slot = subgroup->warm;

	if (!slot)
		return;
	subgroup->warm = NULL;
	zi_list_remove(&subgroup->warm_link);
	tier_staging_give(subgroup->job->staging, slot);
}

void warm_drop_all(struct zero_job *job)
{
	while (!zi_list_is_empty(&job->warm))
		warm_drop(container_of(job->warm.next, struct zero_subgroup, warm_link));
}

/* Return: a slot for anything, the caller's, for which the oldest warm one gives way; NULL: all are
 * in use. */
void *warm_slot(struct zero_job *job)
{
	if (!job->staging->free_count && !zi_list_is_empty(&job->warm))
		warm_drop(container_of(job->warm.next, struct zero_subgroup, warm_link));
	return tier_staging_take(job->staging);
}
