/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An owner's turn to leave its path: its extents are read, verified and written elsewhere, a few at
 * a time (evacuee.c), and told to the catalog at the step where it stands, a round after the other
 * (evacuate_commit.c). Floor 5, shard thread.
 */
#include "daemon/zero/place/evacuate.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot.h"

static void fill(struct zero *zero);

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

		if (!evacuate_is_leaving(&place->extent))
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

		if (!evacuate_is_leaving(&snapshot->extents[index]) ||
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
		zi_text_set(&text, "%.120s: no room beside %s (%s)", evacuee->what.chars,
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

/* See evacuate.h. */
void evacuate_start(struct zero *zero, struct tier *cpu_tier, struct zero_account *account,
                    uint64_t slot_bytes, const char *whose)
{
	struct zero_evacuation *evacuation = &zero->evacuation;
	struct zi_text why = { "" }, text;

	evacuation->is_stuck = false;
	if (make_staging(zero, cpu_tier, account, slot_bytes, &why)) {
		zi_text_set(&text, "%s cannot leave its path: %s", whose, why.chars);
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
