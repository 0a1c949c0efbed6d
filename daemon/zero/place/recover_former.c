/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit before the one in force, from the catalog. Floor 5, before the loop runs.
 *
 * Its rows stay when it is released, so they may name space that others were given and have
 * committed, or that a step has written on. Hence all that is in force claims its space first, and
 * a former commit of which anything meets another's claim, or cannot be what the job had, is
 * dropped: that is no damage, as nobody goes back to what was released. One that meets nothing is
 * held until ranks come and it is known what stays (former.c).
 *
 * Where two of them meet, of two jobs, the one that was committed later has the space: it was given
 * that when the other one had been released.
 */
#include "daemon/zero/place/recover_former.h"
#include "daemon/zero/place/record.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/recover_row.h"
#include "daemon/zero/place/share.h"

/* Beside those of what is in force. */
#define KEPT_INDEX 1u

static bool is_same(const struct tier_extent *one, const struct tier_extent *other)
{
	return one->member == other->member && one->offset_bytes == other->offset_bytes &&
	       one->bytes == other->bytes;
}

/* The commit in force has it as well, and says the same about it. */
static bool is_shared(const struct zero_job *job, const struct zero_subgroup *subgroup,
                      uint32_t plane, const struct tier_extent *extent,
                      const struct catalog_extent *stored)
{
	const struct zero_place *place = &subgroup->places[plane];

	return is_same(&place->extent, extent) && place->step == stored->step &&
	       !memcmp(&job->hashes[plane][place->hash_index][subgroup->tile_first], stored->hashes,
	               stored->hash_count * sizeof(stored->hashes[0]));
}

static void keep(struct zero_place *place, const struct tier_extent *extent, uint64_t step)
{
	place->kept = *extent;
	place->kept_is = ZERO_KEPT_FORMER;
	place->kept_index = KEPT_INDEX;
	place->kept_step = step;
}

/* Return: false where it cannot be had any more. Precondition: keep_nothing(). */
static bool take_extent(struct zero_job *job, const struct catalog_extent *stored)
{
	struct zero_subgroup *subgroup = recover_subgroup(job, stored);
	bool is_state = stored->plane == ZI_PLANE_STATE;
	uint32_t plane = is_state ? ZERO_PLANE_STATE : ZERO_PLANE_PARAM;
	struct tier_extent extent = { 0 };
	struct zero_place *place;

	if (!subgroup || subgroup->places[plane].kept.bytes)
		return false;
	/* One that was divided otherwise says by its rows what the node held. */
	if (is_state && former_is_elsewhere(job))
		subgroup->is_former_here = true;
	else if (is_state && !subgroup->is_here)
		return false;
	place = &subgroup->places[plane];
	if (!stored->extent.bytes) {
		place->kept_step = stored->step;
		return is_state; /* All zero; parameters are never. */
	}
	extent = recover_place(job->zero, stored);
	if (!extent.member || !extent.member->store || extent.member->tier != job->nvme_tier)
		return false;
	if (stored->extent.bytes != (is_state ? job_subgroup_state_bytes(job, subgroup)
	                                      : job_subgroup_param_bytes(job, subgroup)) ||
	    stored->hash_count != subgroup->tile_count)
		return false;
	if (is_shared(job, subgroup, plane, &extent, stored)) {
		place->kept_is = ZERO_KEPT_NONE;
		return true;
	}
	if (share_claim(&job->zero->shares, &extent, recover_digest(stored)))
		return false;
	keep(place, &extent, stored->step);
	memcpy(&job->hashes[plane][KEPT_INDEX][subgroup->tile_first], stored->hashes,
	       stored->hash_count * sizeof(uint64_t));
	return true;
}

/* Until a row says otherwise: what is in force came with the newer commit, and goes with that. */
static void keep_nothing(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++) {
			struct zero_place *place = &job->subgroups[i].places[plane];

			if (place->extent.bytes)
				keep(place, &(struct tier_extent){ 0 }, 0);
		}
}

/* Of one that was divided alike. Parameters of what other nodes hold are all here, or none. */
static bool has_all_rows(const struct zero_job *job, const struct catalog_job *stored)
{
	uint32_t state_count = 0;

	for (uint32_t i = 0; i < stored->extent_count; i++)
		state_count += stored->extents[i].plane == ZI_PLANE_STATE;
	return state_count == job->here_count &&
	       (stored->extent_count == _ZERO_PLANE_COUNT * job->here_count ||
	        stored->extent_count == job->here_count + job->subgroup_count);
}

/* Return: whether all of it is here. */
static bool take_extents(struct zero_job *job, const struct catalog_job *stored)
{
	keep_nothing(job);
	/* Before the first commit there is nothing, and nothing is what is kept then. */
	if (stored->step < 0 && !stored->extent_count)
		return true;
	if (!former_is_elsewhere(job) && !has_all_rows(job, stored))
		return false;
	for (uint32_t i = 0; i < stored->extent_count; i++)
		if (!take_extent(job, &stored->extents[i]))
			return false;
	return true;
}

/* Return: 0; -EUCLEAN one cannot be; -ENOMEM. */
static int take_blobs(struct zero_job *job, const struct catalog_job *stored)
{
	int r = 0;

	for (uint32_t i = 0; i < stored->blob_count && !r; i++)
		r = recover_blob(job, KEPT_INDEX, &stored->blobs[i]);
	return err_trace(r);
}

static int recover_former(struct zero_job *job, const struct catalog_job *stored)
{
	struct zero_scale scale = { 0 };
	bool is_sound = !scale_get(stored, &scale) && !stored->damage.chars[0];
	int r;

	assert(job->zero->shares.is_recovering);
	assert(job->blob_index != KEPT_INDEX);
	job->former = (struct zero_former){
		.is_stored = true,
		.step = stored->step,
		.marks = record_marks(stored, &scale, KEPT_INDEX),
	};
	if (!is_sound)
		return 0;
	r = share_reserve(&job->zero->shares, stored->extent_count);
	if (r)
		return err_trace(r);
	/* Whatever was taken before something was missing goes with it. */
	job->former.is_kept = true;
	r = take_extents(job, stored) ? take_blobs(job, stored) : -EUCLEAN;
	if (r)
		former_release(job);
	return r == -ENOMEM ? err_trace(r) : 0;
}

/* The newest first. */
static int compare_stamps(const void *one, const void *other)
{
	uint64_t mine = ((const struct recovered_former *)one)->record->stamp;
	uint64_t others = ((const struct recovered_former *)other)->record->stamp;

	return mine < others ? 1 : mine > others ? -1 : 0;
}

/* Documented in the header, as are the others. */
int recover_former_later(struct recovered_formers *formers, struct zero_job *job,
                         struct catalog_job *stored)
{
	struct recovered_former *items =
		reallocarray(formers->items, formers->count + 1, sizeof(*items));

	if (!items)
		return err_origin(-ENOMEM);
	formers->items = items;
	items[formers->count++] =
		(struct recovered_former){ .job = job, .record = zi_steal(stored->former) };
	return 0;
}

int recover_formers(const struct recovered_formers *formers)
{
	int r = 0;

	if (formers->count)
		qsort(formers->items, formers->count, sizeof(*formers->items), compare_stamps);
	for (uint32_t i = 0; i < formers->count && !r; i++)
		r = recover_former(formers->items[i].job, formers->items[i].record);
	return err_trace(r);
}

void recover_formers_free(struct recovered_formers *formers)
{
	for (uint32_t i = 0; i < formers->count; i++)
		(void)catalog_job_free(formers->items[i].record);
	free(formers->items);
	*formers = (struct recovered_formers){ .items = NULL };
}
