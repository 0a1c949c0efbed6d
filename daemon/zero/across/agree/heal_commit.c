/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit of a step that was committed before, by nodes that hold other parts of it now; see
 * heal.h. Floor 5, shard thread.
 *
 * A node that had a commit keeps that beside the new one until all nodes have theirs: of what was
 * chosen nothing is lost before. A node that has none yet has the new one alone.
 */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/job/history.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/start.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/commit.h"

static struct zero_marks marks_of(const struct heal *heal)
{
	const struct zero_job *job = heal->job;
	const struct offer *chosen = heal_offer_of(heal, heal->source);
	struct catalog_job record = { .scaler_bytes = chosen->scaler_bytes };
	struct zero_marks marks = { .update_count = chosen->update_count,
		                    .beta1_power = chosen->beta1_power,
		                    .beta2_power = chosen->beta2_power,
		                    .blob_index = heal->blob_index,
		                    .world = job->world,
		                    .number = heal->number,
		                    .line = across_line(job),
		                    .placement = record_placement(job) };

	memcpy(record.scaler, chosen->scaler, sizeof(record.scaler));
	(void)scale_get(&record, &marks.scale); /* It was looked at when it came. */
	return marks;
}

/* ---- what the catalog is told ---- */

/* Return: the path that it lies on. */
static uint32_t put_extent(struct heal *heal, struct zero_subgroup *subgroup, uint32_t plane)
{
	struct zero_job *job = heal->job;
	const struct zero_place *place = &subgroup->places[plane];
	uint32_t index = job_subgroup_index(job, subgroup);
	bool is_new = heal_lacks(heal, index, plane);
	const struct tier_extent *extent = is_new ? &place->next : &place->extent;
	uint32_t which = is_new ? place_next_index(place) : place->hash_index;

	job->record_extents[job->record.extent_count++] = record_extent(
		subgroup, plane, extent, &job->hashes[plane][which][subgroup->tile_first],
		is_new ? heal->pull.steps[plane][index] : place->step);
	return extent->bytes ? tier_member_bit(extent->member) : 0;
}

static uint32_t fill_record(struct heal *heal, const struct zero_marks *marks)
{
	struct zero_job *job = heal->job;
	struct catalog_job *record = &job->record;
	uint32_t members = 0;

	record_describe(job, record);
	record_put_marks(record, heal->chosen.step, marks);
	record->extents = job->record_extents;
	record->blobs = job->record_blobs;
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			if (job_keeps(&job->subgroups[i], plane))
				members |= put_extent(heal, &job->subgroups[i], plane);
	record_put_blobs(job, heal->blob_index, job->world, record, job->record_blobs);
	return members;
}

/* ---- it is in force ---- */

static void move_place(struct heal *heal, struct zero_subgroup *subgroup, uint32_t plane)
{
	struct zero_job *job = heal->job;
	uint32_t index = job_subgroup_index(job, subgroup);
	bool is_new = heal_lacks(heal, index, plane);

	/* What stays is in both commits. */
	if (job_keeps(subgroup, plane) && !is_new)
		return;
	place_move(job, &subgroup->places[plane], is_new ? heal->pull.steps[plane][index] : 0);
}

static void take(struct heal *heal, const struct zero_marks *marks)
{
	struct zero_job *job = heal->job;
	const struct offer *present =
		heal->present == HEAL_NONE
			? NULL
			: offers_of(&heal->offers, heal->across->node, heal->present);

	assert(!job->former.is_kept);
	job->former = (struct zero_former){ .is_kept = job->is_stored,
		                            .is_stored = job->is_stored,
		                            .is_named = job->is_stored,
		                            .step = job->committed_step,
		                            .marks = job->committed };
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		job->subgroups[i].is_former_here = present && offer_has(present, i);
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			move_place(heal, &job->subgroups[i], plane);
	}
	ahead_set(job, heal->chosen.step, marks);
	start_forget(job); /* What a start that fails goes back to is this. */
	heal_pull_end(&heal->pull);
}

static void committed(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct heal *heal = job->heal;
	struct zero *zero = job->zero;
	struct zero_marks marks = heal->marks;
	struct zi_text text = request->text;

	request_end(job);
	if (!request->result)
		take(heal, &marks);
	else
		extents_release_next(job);
	heal->committed(job, request->result, &text);
	zero_drain(zero);
}

static void created(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;
	struct zi_text text = request->text;

	request_end(job);
	if (!request->result) {
		job->is_stored = true;
		job->stored_number = job->record.incarnation_number;
	}
	job->heal->committed(job, request->result, &text);
	zero_drain(zero);
}

/* Documented in a header. */
void heal_commit(struct heal *heal, heal_done_fn done)
{
	struct zero_job *job = heal->job;
	struct zi_text text;
	int r;

	assert(job->step.phase == ZERO_STEP_NONE);
	heal->committed = done;
	heal->marks = marks_of(heal);
	if (job->is_stored) {
		whole_submit(job, fill_record(heal, &heal->marks), committed);
		return;
	}
	r = history_record(&job->history, job->stored_number);
	if (r) {
		zi_text_set(&text, "no memory for the names of job '%s'", job->name);
		done(job, r, &text);
		return;
	}
	take(heal, &heal->marks);
	request_submit(job, CATALOG_JOB_CREATE, created);
}

static void released(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;
	struct heal *heal = job->heal;
	struct zi_text text = request->text;

	request_end(job);
	if (!request->result) {
		former_release(job);
		job->former.is_stored = false;
	}
	job->heal = NULL;
	heal->across->task_count--;
	if (heal->across->error || heal->across->is_detached)
		across_go_on(heal->across); /* It may wait for this. */
	heal->released(job, request->result, &text);
	zero_drain(zero);
}

/* Documented in the header. Its rows go first: they name what is about to be given to others. */
void heal_release(struct zero_job *job, heal_done_fn done)
{
	struct heal *heal = job->across ? job->across->heal : NULL;

	if (!heal || !job->former.is_kept) {
		done(job, 0, NULL);
		return;
	}
	heal->released = done;
	job->heal = heal;
	heal->across->task_count++;
	step_back_submit(job, &job->committed, released);
}
