/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which order subgroups go through the pipeline. Floor 5, shard thread.
 *
 *     [ begun | ready: may be computed | ahead: may only be read ]
 * Ready subgroups come first; among them, those of the unit that became ready last. Backward ends
 * where the next forward begins. So where the disk falls behind, the updates that are left in the
 * next forward are those of the units that forward uses last.
 * Subgroups ahead lie in the order in which the update is expected to want them. In an early update
 * this is the order in which units became ready in the step before (in the first step: the last
 * unit first, as in backward). In other updates this is the order of the indices, behind warm
 * subgroups (warm.c), whose slots of staging are used up first.
 * Resident state needs no reading. Its subgroups lie behind all others, so the disk never waits for
 * them.
 *
 * No subgroup is copied or searched for in a pump: places move when a unit becomes ready, which is
 * once per unit and step, and once for each UNSHARD that waits for an update.
 */
#include "daemon/zero/step/queue.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/warm.h"

/* Tables for the job's layout. Return: 0; -ENOMEM. */
int queue_build(struct zero_job *job)
{
	struct zero_queue *queue = &job->queue;

	queue->places = calloc(job->subgroup_count, sizeof(*queue->places));
	queue->spare = calloc(job->subgroup_count, sizeof(*queue->spare));
	queue->units = calloc(job->layout.unit_count, sizeof(*queue->units));
	if (!queue->places || !queue->spare || !queue->units)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		queue->units[i] = job->layout.unit_count - 1 - i;
	return 0;
}

void queue_unbuild(struct zero_job *job)
{
	free(job->queue.places);
	free(job->queue.spare);
	free(job->queue.units);
	job->queue = (struct zero_queue){ 0 };
}

static void push(struct zero_queue *queue, const struct zero_job *job,
                 const struct zero_subgroup *subgroup)
{
	assert(queue->count < job->subgroup_count);
	queue->places[queue->count++] = (uint32_t)(subgroup - job->subgroups);
}

/* How a subgroup's state comes to its update. */
enum {
	QUEUE_WARM = 1u << 0,
	QUEUE_READ = 1u << 1,
	QUEUE_RESIDENT = 1u << 2,
	QUEUE_UPDATE = 1u << 3, /* of units that change alone */
};

static uint32_t share_of(const struct zero_subgroup *subgroup)
{
	if (subgroup->memory)
		return QUEUE_RESIDENT;
	return subgroup->warm ? QUEUE_WARM : QUEUE_READ;
}

/* The subgroups of a unit that are of @shares. */
static void push_unit(struct zero_job *job, const struct zero_unit *unit, uint32_t shares)
{
	for (uint32_t k = 0; k < unit->subgroup_count; k++) {
		const struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + k];

		if (shares & QUEUE_UPDATE && unit->is_frozen)
			continue;
		if (subgroup->is_here && share_of(subgroup) & shares)
			push(&job->queue, job, subgroup);
	}
}

/*
 * The subgroups of all units in the foretold order, those of @shares. In an early update the warm
 * subgroups of a unit come first. Staging seldom ends with a whole unit: the step before computed
 * the first subgroups of such a unit early and the rest last, and the rest is warm.
 */
static void push_units(struct zero_job *job, bool is_early, uint32_t shares)
{
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		struct zero_unit *unit = &job->units[is_early ? job->queue.units[i] : i];

		unit->place = i;
		if (is_early && shares & QUEUE_WARM)
			push_unit(job, unit, shares & ~QUEUE_READ);
		push_unit(job, unit, is_early ? shares & ~QUEUE_WARM : shares);
	}
}

/* An early update goes by the order of arrival: what is warm and comes late there gives its slot to
 * what is read before. So all that is warm is among the first, and begins at once. */
static void push_update(struct zero_job *job, bool is_early)
{
	struct zero_queue *queue = &job->queue;

	if (is_early) {
		push_units(job, true, QUEUE_UPDATE | QUEUE_WARM | QUEUE_READ);
		for (uint32_t i = job->staging ? job->staging->slot_count : 0; i < queue->count;
		     i++)
			warm_drop(&job->subgroups[queue->places[i]]);
	} else {
		push_units(job, false, QUEUE_UPDATE | QUEUE_WARM);
		push_units(job, false, QUEUE_UPDATE | QUEUE_READ);
	}
	push_units(job, is_early, QUEUE_UPDATE | QUEUE_RESIDENT);
}

/* By a commit. */
static bool is_written(const struct zero_job *job, const struct zero_subgroup *subgroup)
{
	return extent_needs_write(job, subgroup) ||
	       (subgroup->places[ZERO_PLANE_STATE].next.bytes && !state_is_stored(subgroup));
}

/* Each subgroup that the pipeline of @kind will handle. All of them are ready, but in an UPDATE. */
void queue_fill(struct zero_job *job, enum zero_pipeline_kind kind, bool is_early)
{
	struct zero_queue *queue = &job->queue;

	queue->count = 0;
	queue->begun_count = 0;
	queue->ready_count = 0;
	queue->arrival_count = 0;
	if (kind == ZERO_PIPELINE_WRITE || kind == ZERO_PIPELINE_STORE) {
		for (uint32_t i = 0; i < job->subgroup_count; i++) {
			const struct zero_subgroup *subgroup = &job->subgroups[i];

			if (job_keeps(subgroup, ZERO_PLANE_PARAM) &&
			    (kind == ZERO_PIPELINE_WRITE ? is_written(job, subgroup)
			                                 : subgroup->unit == job->write_unit))
				push(queue, job, subgroup);
		}
	} else if (kind == ZERO_PIPELINE_LOAD && job_stores_param(job)) {
		/* Parameters come as they are used. */
		push_units(job, false, QUEUE_RESIDENT);
	} else if (kind == ZERO_PIPELINE_UPDATE) {
		push_update(job, is_early);
	} else {
		push_units(job, false, QUEUE_WARM | QUEUE_READ);
		push_units(job, false, QUEUE_RESIDENT);
	}
	if (kind != ZERO_PIPELINE_UPDATE)
		queue->ready_count = queue->count;
}

/* Return: what should begin next, NULL: nothing may; *ret_is_ready: it may be computed. */
struct zero_subgroup *queue_peek(struct zero_job *job, bool *ret_is_ready)
{
	const struct zero_queue *queue = &job->queue;
	struct zero_subgroup *subgroup;

	if (queue->begun_count == queue->count)
		return NULL;
	subgroup = &job->subgroups[queue->places[queue->begun_count]];
	*ret_is_ready = queue->ready_count > 0;
	/* Reading ahead: nothing to read, nothing to do. */
	if (!*ret_is_ready && subgroup->memory)
		return NULL;
	return subgroup;
}

/* What queue_peek() gave has begun. */
void queue_take(struct zero_job *job)
{
	struct zero_queue *queue = &job->queue;

	assert(queue->begun_count < queue->count);
	queue->begun_count++;
	if (queue->ready_count)
		queue->ready_count--;
}

/* @subgroup was read ahead and gave way: it is the first of those ahead again. */
void queue_return(struct zero_job *job, const struct zero_subgroup *subgroup)
{
	struct zero_queue *queue = &job->queue;
	uint32_t *first;

	assert(queue->begun_count > 0);
	/* What has begun is not looked at again: its places are free. */
	queue->begun_count--;
	first = &queue->places[queue->begun_count];
	memmove(first, first + 1, queue->ready_count * sizeof(*first));
	first[queue->ready_count] = (uint32_t)(subgroup - job->subgroups);
}

/* Keeps the order in which units become ready, for the next step. */
static void note_arrival(struct zero_queue *queue, uint32_t unit)
{
	uint32_t *next = &queue->units[queue->arrival_count++];
	uint32_t *place = next;

	while (*place != unit)
		place++;
	memmove(next + 1, next, (size_t)(place - next) * sizeof(*next));
	*next = unit;
}

/*
 * The subgroups of @index that have not begun move up before what is ready already. If ranks used
 * a part of the unit since its last update (an embedding), its subgroups come behind what is ready:
 * ranks name the part that they wait for (queue_prefer()), and the next forward needs the rest
 * last.
 */
void queue_ready(struct zero_job *job, uint32_t index)
{
	struct zero_queue *queue = &job->queue;
	uint32_t *places = queue->places;
	uint32_t target = queue->begun_count;

	note_arrival(queue, index);
	if (job->units[index].is_part_used)
		target += queue->ready_count;
	job->units[index].is_part_used = false;
	for (uint32_t i = queue->begun_count + queue->ready_count; i < queue->count; i++) {
		uint32_t moved = places[i];

		if (job->subgroups[moved].unit != index)
			continue;
		memmove(&places[target + 1], &places[target], (i - target) * sizeof(*places));
		places[target++] = moved;
		queue->ready_count++;
	}
}

void queue_prefer(struct zero_job *job,
                  bool (*is_wanted)(const void *arg, const struct zero_subgroup *subgroup),
                  const void *arg)
{
	struct zero_queue *queue = &job->queue;
	uint32_t *places = queue->places;
	uint32_t target = queue->begun_count;
	uint32_t end = queue->begun_count + queue->ready_count;
	uint32_t other_count = 0;

	while (target < end && job->subgroups[places[target]].warm)
		target++;
	for (uint32_t i = target; i < end; i++) {
		uint32_t place = places[i];

		if (is_wanted(arg, &job->subgroups[place]))
			places[target++] = place;
		else
			queue->spare[other_count++] = place;
	}
	memcpy(&places[target], queue->spare, other_count * sizeof(*places));
}

/* One that comes from another node, behind what is ready. */
void queue_add(struct zero_job *job, const struct zero_subgroup *subgroup)
{
	assert(job->queue.begun_count + job->queue.ready_count == job->queue.count);
	push(&job->queue, job, subgroup);
	job->queue.ready_count++;
}

/* All at once, in the order in which they lie. */
void queue_ready_all(struct zero_job *job)
{
	job->queue.ready_count = job->queue.count - job->queue.begun_count;
}
