/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs at rest, and snapshots, leave a path that is draining or has failed: read, verified, written
 * elsewhere, and told to the catalog (evacuate_commit.c) at the step where they stand. Floor 5,
 * shard thread.
 *
 * A job that has ranks needs none of this: its next step writes everything beside it. One at rest
 * is moved in rounds, a commit each, so that ranks who come meanwhile wait for a round at most (its
 * step is COMMITTING) and what was moved stays moved. Then come snapshots, each in such rounds, for
 * which nobody waits: it may be removed meanwhile. What several of them hold is moved once. One
 * owner at a time, few extents in flight: there is no hurry. What cannot be read, or finds no room,
 * stays where it is and is told of once; it is tried again when an administrator drains, or after
 * the job's next commit.
 */
#include "daemon/zero/place/evacuate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/snapshot/snapshot_make.h"
#include "daemon/zero/step/step.h"

static void fill(struct zero *zero);

static bool is_leaving(const struct tier_extent *extent)
{
	return extent->bytes && tier_member_is_leaving(extent->member);
}

static bool has_leaving(const struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			if (is_leaving(&job->subgroups[i].places[plane].extent) ||
			    is_leaving(&job->subgroups[i].places[plane].kept))
				return true;
	return false;
}

static bool snapshot_has_leaving(const struct zero_snapshot *snapshot)
{
	for (uint32_t i = 0; i < snapshot->record->extent_count; i++)
		if (is_leaving(&snapshot->extents[i]))
			return true;
	return false;
}

static bool is_idle(const struct zero_job *job)
{
	return job->is_stored && job_is_nvme(job) && job->committed_step >= 0 && !job->refusal &&
	       !job->is_deleting && !job->is_materializing && !job_is_ahead(job) &&
	       !job->busy_count && !job->attached_count && job->group.phase == ZERO_GROUP_NONE &&
	       job->step.phase == ZERO_STEP_NONE;
}

/* See evacuate.h. */
bool evacuate_is_at_rest(const struct zero_job *job)
{
	return is_idle(job) && !job->former.is_kept;
}

/* See snapshot.h. */
bool snapshot_is_movable(const struct zero_snapshot *snapshot)
{
	return snapshot->phase == ZERO_SNAPSHOT_KEPT && snapshot->name[0] && !snapshot->refusal &&
	       !snapshot->use_count && !snapshot->is_stuck;
}

/* The first error of an owner is told. */
static void stick(struct zero *zero, const struct zi_text *text)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	bool was_stuck = evacuation->is_stuck;

	if (evacuation->job)
		evacuation->job->is_stuck = true;
	if (evacuation->snapshot)
		evacuation->snapshot->is_stuck = true;
	evacuation->is_stuck = true;
	if (!was_stuck && zero->options.stuck)
		zero->options.stuck(zero->options.stuck_arg, text);
}

/* ---- the end of an owner's turn ---- */

/* See evacuate.h. */
void evacuate_lock(struct zero_job *job)
{
	job->step.generation = job->group.generation - 1; /* No group's. */
	job->step.is_commit = true;
	job_step_set(job, ZERO_STEP_COMMITTING);
	job_busy(job);
}

/* See evacuate.h. */
void evacuate_unlock(struct zero_job *job)
{
	job_step_set(job, ZERO_STEP_NONE);
	job_unbusy(job);
	snapshot_retry(job);
	job_settle(job);
}

static void finish(struct zero *zero)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	struct zero_job *job = zi_steal(evacuation->job);

	assert(evacuation->is_on);
	evacuation->is_on = false;
	evacuation->snapshot = NULL;
	evacuation->staging = tier_staging_free(evacuation->staging);
	free(evacuation->moved);
	evacuation->moved = NULL;
	zero->snapshot_busy_count--;
	evacuate_kick(zero);
	if (job)
		evacuate_unlock(job);
}

/* Somebody waits, or the owner is no more, or has an error. */
static bool is_over(const struct zero *zero)
{
	const struct zero_evacuation *evacuation = &zero->evacuation;

	return zero->is_stopping || zero->frozen || evacuation->is_stuck ||
	       (evacuation->job
	                ? evacuation->job->attached_count > 0
	                : !evacuation->snapshot || !snapshot_is_movable(evacuation->snapshot));
}

/* See evacuate.h. */
void evacuate_round_over(struct zero *zero, int error, const struct zi_text *text)
{
	if (error)
		stick(zero, text);
	zero->evacuation.has_more &= !is_over(zero);
	if (zero->evacuation.has_more)
		fill(zero);
	else
		finish(zero);
}

/* A snapshot goes: it owns nothing any more, and what is in flight is nobody's. */
void evacuate_forget(struct zero_snapshot *snapshot)
{
	struct zero_evacuation *evacuation = &snapshot->zero->evacuation;

	if (evacuation->snapshot == snapshot)
		evacuation->snapshot = NULL;
}

/* ---- one extent ---- */

static void evacuee_close(struct zero_evacuee *evacuee)
{
	struct zero *zero = evacuee->zero;
	struct zero_evacuation *evacuation = &zero->evacuation;

	/* A write that failed is final for that copy: its place is given back, and to nobody as
	 * long as the path takes nothing. */
	if (evacuee->error) {
		stick(zero, &evacuee->text);
		tier_extent_release(&evacuee->to);
		share_release(&zero->shares, &evacuee->from);
	} else {
		evacuation->moved[evacuation->moved_count++] =
			(struct zero_moved){ .from = evacuee->from, .to = evacuee->to };
	}
	tier_staging_give(evacuation->staging, evacuee->slot);
	evacuee->zero = NULL;
	assert(evacuation->active_count > 0);
	evacuation->active_count--;
}

/* See evacuate.h. */
void evacuate_evacuee_over(struct zero_evacuee *evacuee)
{
	struct zero *zero = evacuee->zero;

	evacuee_close(evacuee);
	fill(zero);
	zero_drain(zero);
}

/* ---- choosing ---- */

/* What an evacuee begins with; all of it is copied, since its owner may go. */
static void evacuee_fill(struct zero_evacuee *evacuee, const struct tier_extent *extent,
                         uint32_t element_bytes, const uint64_t *hashes, uint32_t hash_count)
{
	evacuee->from = *extent;
	evacuee->element_bytes = element_bytes;
	evacuee->hash_count = hash_count;
	assert(hash_count <= ZI_COUNT_OF(evacuee->hashes));
	memcpy(evacuee->hashes, hashes, hash_count * sizeof(hashes[0]));
}

static const char *plane_words(bool is_state)
{
	return is_state ? "optimizer state" : "parameters";
}

/* The next extent to move, past the cursor; false when there is none. */
static bool next_of_job(struct zero_evacuation *evacuation, struct zero_evacuee *ret_evacuee)
{
	const struct zero_job *job = evacuation->job;

	while (evacuation->cursor < job->subgroup_count * _ZERO_PLANE_COUNT) {
		const struct zero_subgroup *subgroup =
			&job->subgroups[evacuation->cursor / _ZERO_PLANE_COUNT];
		uint32_t plane = evacuation->cursor++ % _ZERO_PLANE_COUNT;
		const struct zero_place *place = &subgroup->places[plane];

		if (!is_leaving(&place->extent))
			continue;
		evacuee_fill(ret_evacuee, &place->extent,
		             (uint32_t)(place->extent.bytes / subgroup->element_count),
		             &job->hashes[plane][place->hash_index][subgroup->tile_first],
		             subgroup->tile_count);
		ret_evacuee->plane = plane;
		zi_text_set(&ret_evacuee->what, "job '%s': moving %s of unit '%.60s', subgroup %u",
		            job->name, plane_words(plane == ZERO_PLANE_STATE),
		            job->layout.units[subgroup->unit].name, subgroup->index);
		return true;
	}
	return false;
}

static bool next_of_snapshot(struct zero_evacuation *evacuation, struct zero_evacuee *ret_evacuee)
{
	const struct zero_snapshot *snapshot = evacuation->snapshot;
	const struct catalog_job *record = snapshot->record;
	enum zi_dtype dtype = (enum zi_dtype)record->config.param_dtype;

	while (evacuation->cursor < record->extent_count) {
		uint32_t index = evacuation->cursor++;
		const struct catalog_extent *row = &record->extents[index];
		bool is_state = row->plane == ZI_PLANE_STATE;

		if (!is_leaving(&snapshot->extents[index]) ||
		    row->hash_count > ZI_COUNT_OF(ret_evacuee->hashes))
			continue;
		evacuee_fill(ret_evacuee, &snapshot->extents[index],
		             is_state ? zi_state_element_bytes(
						(enum zi_optimizer)record->config.optimizer, dtype)
		                      : zi_dtype_bytes(dtype),
		             row->hashes, row->hash_count);
		ret_evacuee->plane = is_state ? ZERO_PLANE_STATE : ZERO_PLANE_PARAM;
		zi_text_set(&ret_evacuee->what,
		            "snapshot '%s/%s': moving %s of unit '%.50s', subgroup %u",
		            snapshot->job_name, snapshot->name, plane_words(is_state),
		            record->units[row->unit].name, row->subgroup);
		return true;
	}
	return false;
}

/* Begins one more. False when nothing more begins in this round. */
static bool begin_one(struct zero *zero)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	struct zero_evacuee *evacuee = evacuation->evacuees;
	struct zi_text text;

	if (is_over(zero) ||
	    evacuation->moved_count + evacuation->active_count >= ZERO_EVACUATE_ROUND)
		return false;
	while (evacuee->zero)
		evacuee++;
	assert(evacuee < evacuation->evacuees + ZERO_EVACUEES);
	*evacuee = (struct zero_evacuee){ 0 };
	if (!(evacuation->job ? next_of_job(evacuation, evacuee)
	                      : next_of_snapshot(evacuation, evacuee))) {
		evacuation->has_more = false;
		return false;
	}
	if (share_reserve(&zero->shares, 1) ||
	    tier_extent_reserve(evacuation->tier, evacuee->plane, evacuee->from.bytes,
	                        &evacuee->to)) {
		zi_text_set(&text, "%.120s: no room beside %s (%.100s)", evacuee->what.chars,
		            evacuee->from.member->path, tier_paths(evacuation->tier).chars);
		stick(zero, &text);
		return false;
	}
	share_hold(&zero->shares, &evacuee->from); /* Its owner may let go of it meanwhile. */
	evacuee->zero = zero;
	evacuee->slot = tier_staging_take(evacuation->staging);
	assert(evacuee->slot); /* One for each. */
	evacuation->active_count++;
	if (evacuee_begin(evacuee))
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
		evacuate_commit(zero);
}

/* ---- whose turn it is ---- */

static int make_staging(struct zero *zero, struct tier *cpu_tier, struct zero_account *account,
                        uint64_t slot_bytes, struct zi_text *text)
{
	struct zero_evacuation *evacuation = &zero->evacuation;

	evacuation->moved = calloc(ZERO_EVACUATE_ROUND, sizeof(*evacuation->moved));
	if (!account || !evacuation->moved)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory to move extents"));
	return err_trace(tier_staging_new(cpu_tier, &account->account, zero->options.engine,
	                                  slot_bytes, ZERO_EVACUEES, text, &evacuation->staging));
}

/* The owner is set. @slot_bytes: of its longest extent. */
static void start(struct zero *zero, struct tier *cpu_tier, struct zero_account *account,
                  uint64_t slot_bytes, const char *whose)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	struct zi_text why = { "" }, text;

	evacuation->is_stuck = false;
	if (make_staging(zero, cpu_tier, account, slot_bytes, &why)) {
		zi_text_set(&text, "%s cannot leave its path: %.150s", whose, why.chars);
		stick(zero, &text);
		free(evacuation->moved);
		evacuation->moved = NULL;
		evacuation->job = NULL;
		evacuation->snapshot = NULL;
		evacuate_kick(zero); /* Others may have what this one has not. */
		return;
	}
	evacuation->is_on = true;
	evacuation->has_more = true;
	evacuation->cursor = 0;
	evacuation->moved_count = 0;
	zero->snapshot_busy_count++;
	if (evacuation->job)
		evacuate_lock(evacuation->job);
	fill(zero);
}

static void start_job(struct zero_job *job)
{
	struct zero *zero = job->zero;
	char whose[ZI_NAME_BYTES + 8];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->subgroup_count; i++)
		bytes = ZI_MAX(bytes, ZI_MAX(job_subgroup_state_bytes(job, &job->subgroups[i]),
		                             job_subgroup_param_bytes(job, &job->subgroups[i])));
	zero->evacuation.job = job;
	zero->evacuation.tier = job->nvme_tier;
	zero->evacuation.device = job->device;
	(void)snprintf(whose, sizeof(whose), "job '%s'", job->name); /* Fits. */
	start(zero, job->cpu_tier, job->account, bytes, whose);
}

static void start_snapshot(struct zero_snapshot *snapshot)
{
	struct zero *zero = snapshot->zero;
	char whose[2 * ZI_NAME_BYTES + 16];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < snapshot->record->extent_count; i++)
		bytes = ZI_MAX(bytes, snapshot->extents[i].bytes);
	zero->evacuation.snapshot = snapshot;
	zero->evacuation.tier = snapshot_tier(snapshot);
	zero->evacuation.device = zero->options.devices[0];
	(void)snprintf(whose, sizeof(whose), "snapshot '%s/%s'", snapshot->job_name,
	               snapshot->name); /* Fits. */
	start(zero, &zero->options.cpu_tiers[0], zero_account_of(zero, snapshot->uid), bytes,
	      whose);
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

/* One of two commits is to go, and it is not known which: neither moves until ranks come. */
static void tell_open(struct zero_job *job)
{
	struct zi_text text;

	if (job->is_stuck || !job->former.is_kept || !is_idle(job) || !has_leaving(job))
		return;
	job->is_stuck = true;
	zi_text_set(&text,
	            "job '%s' stays on its path until its ranks come again: it has commits %llu "
	            "and %llu, and which of them all of its nodes have is known then",
	            job->name, (unsigned long long)job->former.marks.number,
	            (unsigned long long)job->committed.number);
	if (job->zero->options.stuck)
		job->zero->options.stuck(job->zero->options.stuck_arg, &text);
}

/* Jobs first: what they share with snapshots goes along. */
static void choose(struct zero *zero)
{
	zi_list_for_each(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		tell_open(job);
		if (!job->is_stuck && evacuate_is_at_rest(job) && has_leaving(job)) {
			start_job(job);
			return; /* It may be gone. */
		}
	}
	zi_list_for_each(link, &zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (snapshot_is_movable(snapshot) && snapshot_has_leaving(snapshot)) {
			start_snapshot(snapshot);
			return;
		}
	}
}

static void look(struct zi_post *post)
{
	struct zero *zero = container_of(post, struct zero, evacuation.post);

	zero->evacuation.is_posted = false;
	if (!zero->is_stopping && !zero->frozen && !zero->evacuation.is_on && is_any_leaving(zero))
		choose(zero);
	zero_drain(zero); /* Also when there is nothing to do: a daemon that stops waits for it. */
}

/* A path, a job or a snapshot is in another state: looks, soon, for what lies where it should not.
 */
void evacuate_kick(struct zero *zero)
{
	if (zero->evacuation.is_posted || zero->evacuation.is_on || zero->is_stopping)
		return;
	if (!is_any_leaving(zero))
		return;
	zero->evacuation.is_posted = true;
	zi_loop_post(zero->options.loop, &zero->evacuation.post, look);
}

/**
 * zero_evacuate() - paths were drained or not: jobs at rest and snapshots are moved off them
 *
 * Also those that could not be moved before. Context: shard thread, or at start.
 */
void zero_evacuate(struct zero *zero)
{
	zi_list_for_each(link, &zero->jobs)
		container_of(link, struct zero_job, jobs_link)->is_stuck = false;
	zi_list_for_each(link, &zero->snapshots)
		container_of(link, struct zero_snapshot, snapshots_link)->is_stuck = false;
	evacuate_kick(zero);
}
