/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs at rest leave a path that is draining or has failed: read, verified, written elsewhere, and
 * committed at the step where they stand. Floor 5, shard thread, but for evacuee_run() on a device
 * thread.
 *
 * A job that has ranks needs none of this: its next step writes everything beside it. One at rest
 * is moved in rounds, a commit each, so that ranks who come meanwhile wait for a round at most (its
 * step is COMMITTING) and what was moved stays moved. One job at a time, few extents in flight:
 * there is no hurry. What cannot be read, or finds no room, stays where it is and is told of once;
 * it is tried again when an administrator drains, or after the job's next commit.
 *
 * What a snapshot holds too is moved for the job alone.
 */
#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/internal.h"
#include "kernels/hash.h"

#define EVACUATE_ROUND 256u /* extents of a commit */

static void fill(struct zero *zero);

static struct zero_place *place_of(const struct zero_evacuee *evacuee)
{
	return &evacuee->subgroup->places[evacuee->plane];
}

/* Where an extent's bytes are not wanted any more. */
static bool is_leaving(const struct zero_place *place)
{
	return place->extent.bytes && tier_member_is_leaving(place->extent.member);
}

static bool has_leaving(const struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			if (is_leaving(&job->subgroups[i].places[plane]))
				return true;
	return false;
}

static bool is_due(const struct zero_job *job)
{
	return job->is_stored && job_is_nvme(job) && job->committed_step >= 0 && !job->refusal &&
	       !job->is_deleting && !job->is_materializing && !job->is_stuck &&
	       !job_is_ahead(job) && !job->busy_count && !job->attached_count &&
	       job->group.phase == ZERO_GROUP_NONE && job->step.phase == ZERO_STEP_NONE;
}

/* The first error of a job is told. */
static void stick(struct zero *zero, const struct zi_text *text)
{
	struct zero_job *job = zero->evacuation.job;

	if (!job->is_stuck && zero->options.stuck)
		zero->options.stuck(zero->options.stuck_arg, text);
	job->is_stuck = true;
}

/* ---- the end of a job's turn ---- */

static void finish(struct zero *zero)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	struct zero_job *job = evacuation->job;

	evacuation->job = NULL;
	evacuation->staging = tier_staging_free(evacuation->staging);
	job_step_set(job, ZERO_STEP_NONE);
	job_unbusy(job);
	evacuate_kick(zero);
	snapshot_retry(job);
	job_settle(job); /* May free the job. */
}

static void committed(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;

	request_end(job);
	if (request->result) {
		extents_release_next(job);
		stick(zero, &request->text);
		finish(zero);
	} else {
		extents_commit_moved(job);
		zero->evacuation.round_count = 0;
		/* Somebody waits, or all is over. */
		if (job->attached_count || zero->is_stopping || job->is_stuck)
			finish(zero);
		else
			fill(zero);
	}
	zero_drain(zero);
}

/* Nothing is in flight, nothing more begins in this round. */
static void round_end(struct zero *zero)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	struct zero_job *job = evacuation->job;

	if (evacuation->round_count && !zero->frozen) {
		commit_moved(job, committed);
		return;
	}
	extents_release_next(job);
	finish(zero);
}

/* ---- one extent ---- */

static void evacuee_close(struct zero_evacuee *evacuee)
{
	struct zero *zero = evacuee->job->zero;
	struct zero_evacuation *evacuation = &zero->evacuation;

	/* A write that failed is final for that copy: its place is given back, and to nobody as
	 * long as the path takes nothing. */
	if (evacuee->error) {
		stick(zero, &evacuee->text);
		tier_extent_release(&place_of(evacuee)->next);
	} else {
		evacuation->round_count++;
	}
	tier_staging_give(evacuation->staging, evacuee->slot);
	evacuee->subgroup = NULL;
	assert(evacuation->active_count > 0);
	evacuation->active_count--;
}

static void evacuee_end(struct zero_evacuee *evacuee)
{
	struct zero *zero = evacuee->job->zero;

	evacuee_close(evacuee);
	fill(zero);
	zero_drain(zero);
}

static void evacuee_fail(struct zero_evacuee *evacuee, int error)
{
	const struct zero_job *job = evacuee->job;
	const struct tier_move *move = &evacuee->move;

	evacuee->error = error;
	zi_text_set(&evacuee->text,
	            "job '%s': moving %s of unit '%.60s', subgroup %u: %s at offset %llu of %s: %s",
	            job->name,
	            evacuee->plane == ZERO_PLANE_PARAM ? "parameters" : "optimizer state",
	            job->layout.units[evacuee->subgroup->unit].name, evacuee->subgroup->index,
	            error == -EBADMSG ? "damaged"
	            : move->is_write  ? "writing"
	                              : "reading",
	            (unsigned long long)move->offset_bytes, move->member->path, zi_err_name(error));
}

static void evacuee_written(struct tier_move *move)
{
	struct zero_evacuee *evacuee = container_of(move, struct zero_evacuee, move);

	if (move->result)
		evacuee_fail(evacuee, move->result);
	evacuee_end(evacuee);
}

static int evacuee_move(struct zero_evacuee *evacuee, bool is_write,
                        const struct tier_extent *extent, tier_move_fn done)
{
	struct nvme_engine *engine = evacuee->job->zero->options.engine;
	int r;

	evacuee->move = (struct tier_move){
		.member = extent->member,
		.is_write = is_write,
		.offset_bytes = extent->offset_bytes,
		.buffer = evacuee->slot,
		.bytes = extent->bytes,
		.done = done,
	};
	r = tier_move_submit(engine, &evacuee->move);
	if (r) {
		evacuee_fail(evacuee, r);
		return err_trace(r);
	}
	tier_move_kick(engine);
	return 0;
}

/* Device thread. The checksums of what is committed. */
static void evacuee_run(struct dev_task *task)
{
	struct zero_evacuee *evacuee = container_of(task, struct zero_evacuee, task);
	const struct zero_job *job = evacuee->job;
	const struct zero_subgroup *subgroup = evacuee->subgroup;
	const struct zero_place *place = place_of(evacuee);
	const uint64_t *hashes =
		&job->hashes[evacuee->plane][place->hash_index][subgroup->tile_first];
	uint64_t width = place->extent.bytes / subgroup->element_count;

	for (uint32_t i = 0; i < subgroup->tile_count && !evacuee->error; i++) {
		uint64_t first = (uint64_t)i * ZI_TILE_ELEMENTS;
		uint64_t count =
			ZI_MIN((uint64_t)ZI_TILE_ELEMENTS, subgroup->element_count - first);

		if (kern_hash((char *)evacuee->slot + first * width, count * width) != hashes[i])
			evacuee->error = -EBADMSG;
	}
}

static void evacuee_verified(struct dev_task *task)
{
	struct zero_evacuee *evacuee = container_of(task, struct zero_evacuee, task);

	if (evacuee->error)
		evacuee_fail(evacuee, evacuee->error);
	if (evacuee->error ||
	    evacuee_move(evacuee, true, &place_of(evacuee)->next, evacuee_written))
		evacuee_end(evacuee);
}

static void evacuee_read(struct tier_move *move)
{
	struct zero_evacuee *evacuee = container_of(move, struct zero_evacuee, move);

	if (move->result) {
		evacuee_fail(evacuee, move->result);
		evacuee_end(evacuee);
		return;
	}
	evacuee->task = (struct dev_task){ .run = evacuee_run,
		                           .done = evacuee_verified,
		                           .loop = evacuee->job->zero->options.loop };
	dev_submit(evacuee->job->device, &evacuee->task);
}

/* ---- choosing ---- */

/* The next extent to move, past the cursor; false when there is none. */
static bool next_place(struct zero_evacuation *evacuation, struct zero_subgroup **ret_subgroup,
                       uint32_t *ret_plane)
{
	struct zero_job *job = evacuation->job;

	for (; evacuation->cursor < job->subgroup_count * _ZERO_PLANE_COUNT; evacuation->cursor++) {
		*ret_subgroup = &job->subgroups[evacuation->cursor / _ZERO_PLANE_COUNT];
		*ret_plane = evacuation->cursor % _ZERO_PLANE_COUNT;
		if (!is_leaving(&(*ret_subgroup)->places[*ret_plane]))
			continue;
		evacuation->cursor++;
		return true;
	}
	return false;
}

/* Begins one more. False when nothing more begins in this round. */
static bool begin_one(struct zero *zero)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	struct zero_job *job = evacuation->job;
	struct zero_evacuee *evacuee = evacuation->evacuees;
	struct zero_subgroup *subgroup;
	struct zi_text text;
	uint32_t plane;
	struct zero_place *place;

	if (zero->is_stopping || zero->frozen || job->attached_count || job->is_stuck ||
	    evacuation->round_count + evacuation->active_count >= EVACUATE_ROUND)
		return false;
	while (evacuee->subgroup)
		evacuee++;
	assert(evacuee < evacuation->evacuees + ZERO_EVACUEES);
	if (!next_place(evacuation, &subgroup, &plane))
		return false;
	place = &subgroup->places[plane];
	if (tier_extent_reserve(job->nvme_tier, plane, place->extent.bytes, &place->next)) {
		zi_text_set(&text, "job '%s' cannot leave %s: no room on the others (%.150s)",
		            job->name, place->extent.member->path,
		            tier_paths(job->nvme_tier).chars);
		stick(zero, &text);
		return false;
	}
	*evacuee = (struct zero_evacuee){ .job = job,
		                          .subgroup = subgroup,
		                          .plane = plane,
		                          .slot = tier_staging_take(evacuation->staging) };
	assert(evacuee->slot); /* One for each. */
	evacuation->active_count++;
	if (evacuee_move(evacuee, false, &place->extent, evacuee_read))
		evacuee_close(evacuee);
	return true;
}

static void fill(struct zero *zero)
{
	struct zero_evacuation *evacuation = &zero->evacuation;

	if (evacuation->is_filling)
		return; /* Called from within. */
	evacuation->is_filling = true;
	while (evacuation->active_count < ZERO_EVACUEES && begin_one(zero))
		;
	evacuation->is_filling = false;
	if (!evacuation->active_count)
		round_end(zero);
}

static int make_staging(struct zero_job *job, struct zi_text *text)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->subgroup_count; i++)
		bytes = ZI_MAX(bytes, ZI_MAX(job_subgroup_state_bytes(job, &job->subgroups[i]),
		                             job_subgroup_param_bytes(job, &job->subgroups[i])));
	return err_trace(tier_staging_new(job->cpu_tier, &job->account->account,
	                                  job->zero->options.engine, bytes, ZERO_EVACUEES, text,
	                                  &job->zero->evacuation.staging));
}

static void start(struct zero_job *job)
{
	struct zero *zero = job->zero;
	struct zi_text why = { "" }, text;

	zero->evacuation.job = job;
	if (make_staging(job, &why)) {
		zi_text_set(&text, "job '%s' cannot leave its path: %.180s", job->name, why.chars);
		stick(zero, &text);
		zero->evacuation.job = NULL;
		return;
	}
	zero->evacuation.cursor = 0;
	zero->evacuation.round_count = 0;
	job->step.generation = job->group.generation - 1; /* No group's. */
	job->step.is_commit = true;
	job_step_set(job, ZERO_STEP_COMMITTING);
	job_busy(job);
	fill(zero);
}

static bool is_any_leaving(const struct zero *zero)
{
	for (uint32_t i = 0; i < zero->options.nvme_tier_count; i++) {
		const struct tier *tier = &zero->options.nvme_tiers[i];

		for (uint32_t j = 0; j < tier->member_count; j++)
			if (tier_member_is_leaving(&tier->members[j]) &&
			    tier_member_used_bytes(&tier->members[j]))
				return true;
	}
	return false;
}

/* NULL: none, or nothing may begin. */
static struct zero_job *next_job(const struct zero *zero)
{
	if (zero->is_stopping || zero->frozen || zero->evacuation.job || !is_any_leaving(zero))
		return NULL;
	zi_list_for_each(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (is_due(job) && has_leaving(job))
			return job;
	}
	return NULL;
}

static void look(struct zi_post *post)
{
	struct zero *zero = container_of(post, struct zero, evacuation.post);
	struct zero_job *job = next_job(zero);

	zero->evacuation.is_posted = false;
	if (job)
		start(job);
	zero_drain(zero); /* Also when there is nothing to do: a daemon that stops waits for it. */
}

/* A path or a job is in another state: looks, soon, for jobs at rest that lie where they should
 * not. */
void evacuate_kick(struct zero *zero)
{
	if (zero->evacuation.is_posted || zero->evacuation.job || zero->is_stopping)
		return;
	if (!is_any_leaving(zero))
		return;
	zero->evacuation.is_posted = true;
	zi_loop_post(zero->options.loop, &zero->evacuation.post, look);
}

/**
 * zero_evacuate() - paths were drained or not: jobs at rest are moved off them
 *
 * Also those that could not be moved before. Context: shard thread, or at start.
 */
void zero_evacuate(struct zero *zero)
{
	zi_list_for_each(link, &zero->jobs)
		container_of(link, struct zero_job, jobs_link)->is_stuck = false;
	evacuate_kick(zero);
}
