/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's space on its store: committed extents, and those the next commit will put in their place.
 * Floor 5, shard thread. Memory-only jobs have none, and pass through here unharmed.
 */
#include "daemon/zero/place/extent.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/former.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/ahead.h"

/* With a pool, what param_write_end() was given lies in its extent already. */
static bool is_stored(const struct zero_job *job, uint32_t unit)
{
	return job->units[unit].is_written && job->units[unit].is_param_next;
}

/* Does a commit write its parameters? Yes when they changed, or were never written. */
bool extent_needs_write(const struct zero_job *job, const struct zero_subgroup *subgroup)
{
	if (!job_is_nvme(job) || is_stored(job, subgroup->unit))
		return false;
	/* With a pool parameters are in extents, also those of steps that are not committed. */
	return (job_is_ahead(job) && !job_stores_param(job) &&
	        !job->units[subgroup->unit].is_frozen) ||
	       job->units[subgroup->unit].is_written ||
	       !subgroup->places[ZERO_PLANE_PARAM].extent.bytes;
}

/* Nothing is in flight any more that could land there. */
void extents_release_abandoned(struct zero_job *job)
{
	while (job->abandoned_count)
		tier_extent_release(&job->abandoned[--job->abandoned_count]);
}

static void release_param(struct zero_job *job, struct zero_unit *unit)
{
	for (uint32_t i = 0; i < unit->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + i];

		tier_extent_release(&subgroup->places[ZERO_PLANE_PARAM].next);
		subgroup->is_param_next = false;
	}
	unit->is_param_next = false;
}

/* What was reserved and will not be committed, but for what param_write_end() and state_write()
 * were given: that may be committed yet. Nothing may be in flight on it. When the catalog broke,
 * the commit may be in force after a restart: then it is given to nobody. */
void extents_release_next(struct zero_job *job)
{
	extents_release_abandoned(job); /* No commit names them. */
	if (job->zero->frozen)
		return;
	for (uint32_t i = 0; i < job->layout.unit_count && job->units; i++)
		if (!is_stored(job, i))
			release_param(job, &job->units[i]);
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		if (!state_is_stored(&job->subgroups[i]))
			tier_extent_release(&job->subgroups[i].places[ZERO_PLANE_STATE].next);
}

/* The rest: what was written counts no more. */
void extents_release_written(struct zero_job *job)
{
	if (job->zero->frozen)
		return;
	for (uint32_t i = 0; i < job->layout.unit_count && job->units; i++)
		if (is_stored(job, i))
			release_param(job, &job->units[i]);
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		state_void(&job->subgroups[i]);
}

/* The job is no longer in the catalog. */
void extents_release_all(struct zero_job *job)
{
	extents_release_next(job);
	extents_release_written(job);
	ahead_drop(job);
	former_release(job);
	if (job->zero->frozen)
		return;
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			share_release(&job->zero->shares, &job->subgroups[i].places[plane].extent);
}

static uint64_t wanted_bytes(const struct zero_job *job, const struct zero_subgroup *subgroup,
                             uint32_t plane, enum extents_for purpose)
{
	bool is_frozen = job->units[subgroup->unit].is_frozen;
	bool is_param = plane == ZERO_PLANE_PARAM;
	uint64_t bytes = is_param ? job_subgroup_param_bytes(job, subgroup)
	                          : job_subgroup_state_bytes(job, subgroup);
	bool is_wanted = true;

	if (!job_keeps(subgroup, plane))
		return 0;
	if (is_frozen && (purpose == EXTENTS_STEP || purpose == EXTENTS_AHEAD))
		is_wanted = false;
	else if (purpose == EXTENTS_AHEAD)
		is_wanted = is_param ? job_stores_param(job) : !subgroup->memory;
	else if (purpose == EXTENTS_COMMIT && is_param)
		is_wanted = extent_needs_write(job, subgroup);
	else if (purpose == EXTENTS_COMMIT)
		is_wanted = subgroup->memory && !subgroup->is_reset &&
		            (subgroup->is_state_next || (job_is_ahead(job) && !is_frozen));
	return is_wanted ? bytes : 0;
}

/* Which of an extent's kind are written anew together, one bit each: a commit may write parameters
 * alone, a step that is not committed what is streamed alone. */
enum { PARTS_PARAM = 1, PARTS_STREAMED = 2, PARTS_RESIDENT = 4, PARTS_ALL = 7 };

static uint32_t part_of(const struct zero_subgroup *subgroup, uint32_t plane)
{
	if (plane == ZERO_PLANE_PARAM)
		return PARTS_PARAM;
	return subgroup->memory ? PARTS_RESIDENT : PARTS_STREAMED;
}

static uint64_t parts_bytes(const struct zero_job *job, uint32_t parts, enum extents_for purpose)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			if (parts & part_of(&job->subgroups[i], plane))
				bytes += wanted_bytes(job, &job->subgroups[i], plane, purpose);
	return bytes;
}

/* Return: bytes of the extents that extents_reserve() takes. */
uint64_t extents_wanted_bytes(const struct zero_job *job, enum extents_for purpose)
{
	return parts_bytes(job, PARTS_ALL, purpose);
}

static int reserve_one(struct zero_job *job, struct zero_subgroup *subgroup, uint32_t parts,
                       enum extents_for purpose)
{
	for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++) {
		uint64_t bytes = wanted_bytes(job, subgroup, plane, purpose);
		int r;

		if (!bytes || !(parts & part_of(subgroup, plane)))
			continue;
		assert(!subgroup->places[plane].next.bytes);
		r = tier_extent_reserve(job->nvme_tier, plane, bytes,
		                        &subgroup->places[plane].next);
		if (r)
			return r;
	}
	return 0;
}

/* Beside each other, where there is such a place. */
static int reserve_parts(struct zero_job *job, uint32_t parts, enum extents_for purpose)
{
	bool is_whole = purpose == EXTENTS_STEP || purpose == EXTENTS_AHEAD;
	int r = 0;

	tier_extent_aim(job->nvme_tier, parts_bytes(job, parts, purpose), is_whole);
	for (uint32_t i = 0; i < job->subgroup_count && !r; i++)
		r = reserve_one(job, &job->subgroups[i], parts, purpose);
	return r;
}

/* As a whole, or where what is free lies in pieces part by part: such the pieces are, too. */
static int reserve_set(struct zero_job *job, enum extents_for purpose)
{
	int r = reserve_parts(job, PARTS_ALL, purpose);

	if (r != TIER_E_FULL)
		return r;
	extents_release_next(job);
	r = reserve_parts(job, PARTS_STREAMED, purpose);
	if (!r)
		r = reserve_parts(job, PARTS_RESIDENT, purpose);
	if (!r)
		r = reserve_parts(job, PARTS_PARAM, purpose);
	return r;
}

static int full(const struct zero_job *job, const char *what, uint64_t bytes, uint64_t free_bytes,
                struct zi_text *text)
{
	uint64_t held_bytes = snapshot_held_bytes(job->zero, job->nvme_tier);
	struct zi_text snapshots = { "" };

	if (held_bytes)
		zi_text_set(&snapshots, ", snapshots hold up to %s: zctl snapshot rm",
		            zi_format_bytes(held_bytes).chars);
	return err_origin(zi_text_error(
		text, -ENOSPC, "%s of job '%s' needs %s of new space on %s, %s are free%s (%s)",
		what, job->name, zi_format_bytes(bytes).chars, job->nvme_tier->name,
		zi_format_bytes(free_bytes).chars, snapshots.chars,
		tier_paths(job->nvme_tier).chars));
}

/* Room for all that is about to be written. All or nothing. Return: 0; -ENOSPC with figures. */
int extents_reserve(struct zero_job *job, enum extents_for purpose, struct zi_text *text)
{
	static const char *const what[] = { "a step", "a step", "a commit", "a snapshot" };
	uint64_t free_bytes;
	int r;

	if (!job_is_nvme(job) && purpose != EXTENTS_KEEP)
		return 0;
	tier_stripe_weigh(job->nvme_tier);
	free_bytes = tier_extent_free_bytes(job->nvme_tier);
	r = reserve_set(job, purpose);
	if (!r)
		return 0;
	extents_release_next(job);
	if (r != TIER_E_FULL)
		return err_fold(r);
	return err_trace(
		full(job, what[purpose], extents_wanted_bytes(job, purpose), free_bytes, text));
}

/*
 * Where param_write_end() puts a unit's parameters with a pool. What it was given before counts no
 * more. All or nothing. Return: 0; -ENOSPC with figures.
 */
int extents_reserve_unit(struct zero_job *job, uint32_t index, struct zi_text *text)
{
	struct zero_unit *unit = &job->units[index];
	uint64_t free_bytes, bytes = 0;
	int r = 0;

	release_param(job, unit);
	free_bytes = tier_extent_free_bytes(job->nvme_tier);
	for (uint32_t i = 0; i < unit->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + i];
		uint64_t one_bytes = job_subgroup_param_bytes(job, subgroup);

		if (!job_keeps(subgroup, ZERO_PLANE_PARAM))
			continue;

		bytes += one_bytes;
		if (!r)
			r = tier_extent_reserve(job->nvme_tier, ZERO_PLANE_PARAM, one_bytes,
			                        &subgroup->places[ZERO_PLANE_PARAM].next);
	}
	if (!r)
		return 0;
	release_param(job, unit);
	if (r != TIER_E_FULL)
		return err_fold(r);
	return err_trace(full(job, "a unit written", bytes, free_bytes, text));
}

/* See extent.h. */
int extents_reserve_state(struct zero_job *job, struct zero_subgroup *subgroup,
                          struct zi_text *text)
{
	struct zero_place *place = &subgroup->places[ZERO_PLANE_STATE];
	uint64_t bytes = job_subgroup_state_bytes(job, subgroup);
	uint64_t free_bytes = tier_extent_free_bytes(job->nvme_tier);
	int r;

	if (place->next.bytes)
		return 0;
	r = tier_extent_reserve(job->nvme_tier, ZERO_PLANE_STATE, bytes, &place->next);
	if (!r)
		return 0;
	if (r != TIER_E_FULL)
		return err_fold(r);
	return err_trace(full(job, "optimizer state written", bytes, free_bytes, text));
}

/*
 * A path that takes nothing more still has place->next: written there, and failed (@is_tried), or
 * not yet written. A failed write is final for that copy, whatever a second one would say.
 * Return: 0 it lies elsewhere now; TIER_E_FULL nothing has changed.
 */
int extent_replace(struct zero_job *job, struct zero_place *place, uint32_t plane, bool is_tried)
{
	struct tier_extent extent;
	int r;

	if (!tier_member_is_leaving(place->next.member))
		return TIER_E_FULL; /* The only one. */
	if (is_tried && job->abandoned_count == job->abandoned_max)
		return TIER_E_FULL;
	r = tier_extent_reserve(job->nvme_tier, plane, place->next.bytes, &extent);
	if (r)
		return r;
	if (is_tried)
		job->abandoned[job->abandoned_count++] = place->next;
	else
		tier_extent_release(&place->next);
	place->next = extent;
	return 0;
}

/* The former contents of a place that is about to have others. */
static void place_keep(struct zero_place *place)
{
	assert(place->kept_is == ZERO_KEPT_NONE);
	place->kept = place->extent;
	place->kept_index = place->hash_index;
	place->kept_step = place->step;
	place->kept_is = ZERO_KEPT_AHEAD;
	place->extent = (struct tier_extent){ 0 };
}

/* See extent.h. @step: that wrote it. */
void place_advance(struct zero_job *job, struct zero_place *place, int64_t step)
{
	uint32_t next_index = place_next_index(place);

	assert(place->kept_is != ZERO_KEPT_FORMER);
	if (!place->next.bytes)
		return;
	/* No commit named it, unless in the one that broke the catalog. */
	if (place->kept_is == ZERO_KEPT_AHEAD && !job->zero->frozen)
		tier_extent_release(&place->extent);
	else if (place->kept_is == ZERO_KEPT_NONE)
		place_keep(place);
	place->extent = place->next;
	place->hash_index = (uint8_t)next_index;
	place->step = (uint64_t)step;
	place->next = (struct tier_extent){ 0 };
}

/* When the catalog broke, a commit of the other may be in force after a restart: then it is given
 * to nobody. What was committed may be a snapshot's as well. */
void place_fall_back(struct zero_job *job, struct zero_place *place)
{
	if (!place->kept_is)
		return;
	if (!job->zero->frozen && place->kept_is == ZERO_KEPT_FORMER)
		share_release(&job->zero->shares, &place->extent);
	else if (!job->zero->frozen)
		tier_extent_release(&place->extent);
	place->extent = place->kept;
	place->hash_index = place->kept_index;
	place->step = place->kept_step;
	place->kept = (struct tier_extent){ 0 };
	place->kept_is = ZERO_KEPT_NONE;
}

/* See extent.h. When the catalog broke, it may be in force after a restart. */
void place_let_go(struct zero_job *job, struct zero_place *place)
{
	if (place->kept_is != ZERO_KEPT_FORMER)
		return;
	if (!job->zero->frozen)
		share_release(&job->zero->shares, &place->kept);
	place->kept = (struct tier_extent){ 0 };
	place->kept_is = ZERO_KEPT_NONE;
}

/* The catalog has what is in force now. What it had before is free, or kept beside it. */
static void place_commit(struct zero_job *job, struct zero_place *place, bool is_reset)
{
	if (is_reset && !place->next.bytes && !place->kept_is) {
		if (place->extent.bytes)
			place_keep(place);
		place->step = (uint64_t)job->committed_step;
	} else {
		place_advance(job, place, job->committed_step);
	}
	if (!place->kept_is)
		return;
	place->kept_is = ZERO_KEPT_FORMER;
	if (!job->former.is_kept)
		place_let_go(job, place);
}

/* See extent.h. */
void place_move(struct zero_job *job, struct zero_place *place, uint64_t step)
{
	assert(place->kept_is == ZERO_KEPT_NONE);
	if (place->next.bytes)
		place_advance(job, place, (int64_t)step);
	else if (place->extent.bytes)
		place_keep(place);
	if (!place->kept_is)
		return;
	place->kept_is = ZERO_KEPT_FORMER;
	if (!job->former.is_kept)
		place_let_go(job, place);
}

/* The catalog has them: what they replace is free, but for what a snapshot keeps. Precondition:
 * committed_step is theirs. */
void extents_commit(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[i];

		place_commit(job, &subgroup->places[ZERO_PLANE_PARAM], false);
		place_commit(job, &subgroup->places[ZERO_PLANE_STATE], subgroup->is_reset);
		subgroup->is_reset = false;
		subgroup->is_param_next = false;
	}
	extents_release_abandoned(job);
	job->is_stuck = false;
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		job->units[i].is_written = false;
		job->units[i].is_param_next = false;
	}
	state_committed(job);
}
