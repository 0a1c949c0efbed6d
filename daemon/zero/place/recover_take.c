/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job out of its rows. What cannot be right, or is not here, becomes the job's refusal with its
 * sentence: nothing of it is overwritten, and the daemon goes on. Floor 5, shard thread.
 */
#include "daemon/zero/place/recover_take.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "daemon/zero/job/forward.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/param/stream.h"
#include "daemon/zero/place/owner.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/place/recover_layout.h"
#include "daemon/zero/place/recover_row.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/scale.h"

static int damaged(struct zero_job *job, const char *what)
{
	zi_text_set(&job->refusal_text,
	            "job '%s' is damaged (%s): nothing of it is overwritten; see the daemon's log",
	            job->name, what);
	job->refusal = -EUCLEAN;
	return err_origin(-EUCLEAN);
}

/* Nothing is wrong with it but that its store is not here. */
static int absent(struct zero_job *job, const char *what)
{
	zi_text_set(&job->refusal_text,
	            "job '%s' is kept as it is, but %s: give zinfd its store again (an [nvme NAME] "
	            "section, or --size with --user) and restart it",
	            job->name, what);
	job->refusal = -ENODEV;
	return err_origin(-ENODEV);
}

static int take_layout(struct zero_job *job, const struct catalog_job *stored)
{
	struct zi_text text = { "" };
	int r;

	if (layout_check(&job->layout, &text))
		return damaged(job, text.chars);
	if (!recover_believes(job, stored))
		return damaged(job, "a layout larger than its extents");
	r = layout_build(job, &text);
	if (!r && sets_build(job))
		r = err_origin(
			zi_text_error(&text, -ENOMEM, "no memory for its data-parallel groups"));
	if (!r) {
		owners_build(job);
		return 0;
	}
	job->refusal = r;
	zi_text_set(&job->refusal_text, "job '%s' is kept as it is, but not loaded: %s", job->name,
	            text.chars);
	return err_trace(r);
}

/* Names, numbers, configuration and layout. The layout changes hands. */
static int take_record(struct zero_job *job, struct catalog_job *stored)
{
	struct zero_scale scale = { 0 };
	struct zero_marks marks;
	bool is_scale_sound = scale_get(stored, &scale) == 0;

	job->config = (struct zi_job_config){
		.param_dtype = stored->config.param_dtype,
		.grad_dtype = stored->config.grad_dtype,
		.optimizer = stored->config.optimizer,
		.schedule = stored->config.schedule,
		.offload_optimizer = stored->config.offload_optimizer,
		.offload_param = stored->config.offload_param,
		.durability = stored->config.durability,
	};
	static_assert(sizeof(job->training) == sizeof(stored->training), "as it came");
	memcpy(&job->training, stored->training, sizeof(job->training));
	job->is_stateless = forward_is_stateless(stored);
	record_take_placement(job, stored);
	job->group.number = stored->incarnation_number;
	job->stored_number = stored->incarnation_number;
	(void)zi_copy_name(job->group.name, sizeof(job->group.name), stored->incarnation);
	job->history = (struct zero_history){
		.names = zi_steal(stored->incarnations),
		.count = stored->incarnation_count,
		.capacity = stored->incarnation_count,
	};
	marks = record_marks(stored, &scale, 0);
	ahead_set(job, stored->step, &marks);
	if (!zi_dtype_is_trained(stored->config.param_dtype, ZI_DTYPE_F32))
		return damaged(job, "param_dtype");
	if (!zi_dtype_is_trained(stored->config.param_dtype, stored->config.grad_dtype))
		return damaged(job, "grad_dtype");
	if (!stored->config.optimizer || stored->config.optimizer >= _ZI_OPTIMIZER_COUNT)
		return damaged(job, "optimizer");
	if (job->training.strategy >= _ZI_STRATEGY_COUNT)
		return damaged(job, "strategy");
	if (!is_scale_sound)
		return damaged(job, "loss scale");
	job->is_training_known = true;
	job->layout = (struct zero_layout){
		.sets = zi_steal(stored->sets),
		.units = zi_steal(stored->units),
		.params = zi_steal(stored->params),
		.set_count = stored->set_count,
		.unit_count = stored->unit_count,
		.param_count = stored->param_count,
	};
	stream_charge_job(job);
	return err_trace(take_layout(job, stored));
}

/* A path of a tier is not here. */
static int missing(struct zero_job *job, const struct tier_member *member)
{
	zi_text_set(&job->refusal_text,
	            "job '%s' is kept as it is, but a part of it lies on %s of %s, which was not "
	            "there when zinfd started: give it that path again and restart it",
	            job->name, member->path, member->tier->name);
	job->refusal = -ENODEV;
	return err_origin(-ENODEV);
}

/* @is_load: from a snapshot that holds it, and goes on doing so. @row_count: counts those that the
 * job is to have. */
static int take_extent(struct zero_job *job, const struct catalog_extent *stored, bool is_load,
                       uint32_t *row_count)
{
	struct zero_subgroup *subgroup = recover_subgroup(job, stored);
	bool is_state = stored->plane == ZI_PLANE_STATE;
	uint32_t plane = is_state ? ZERO_PLANE_STATE : ZERO_PLANE_PARAM;
	struct tier_extent extent;

	if (!subgroup || (!is_state && stored->plane != ZI_PLANE_PARAM))
		return damaged(job, "an extent of no subgroup");
	if (!job_keeps(subgroup, plane) && is_load)
		return 0; /* It is whole, and another node takes that. */
	if (!job_keeps(subgroup, plane))
		return damaged(job, "an extent of what another node holds");
	++*row_count;
	if (!stored->extent.bytes)
		return 0; /* All zero. */
	if (is_state && is_load && job->is_stateless)
		return 0; /* It stays the snapshot's alone. */
	extent = recover_place(job->zero, stored);
	if (!extent.member)
		return absent(job,
		              "its state lies on a store that the configuration does not name");
	if (!extent.member->store)
		return missing(job, extent.member);
	if (job->nvme_tier && job->nvme_tier != extent.member->tier)
		return absent(job, "it lies on stores that are no longer of one stripe");
	if (subgroup->places[plane].extent.bytes)
		return damaged(job, "a subgroup with two extents of one plane");
	if (stored->extent.bytes != (is_state ? job_subgroup_state_bytes(job, subgroup)
	                                      : job_subgroup_param_bytes(job, subgroup)) ||
	    stored->hash_count != subgroup->tile_count)
		return damaged(job, "an extent of the wrong length");
	job->nvme_tier = extent.member->tier;
	if (is_load)
		share_hold(&job->zero->shares, &extent);
	else if (share_claim(&job->zero->shares, &extent, recover_digest(stored)))
		return damaged(job, "an extent outside its store, or in use twice");
	subgroup->places[plane].extent = extent;
	subgroup->places[plane].step = stored->step;
	memcpy(&job->hashes[plane][0][subgroup->tile_first], stored->hashes,
	       stored->hash_count * sizeof(uint64_t));
	return 0;
}

static int take_blob(struct zero_job *job, const struct catalog_blob *stored)
{
	int r = recover_blob(job, job->blob_index, stored);

	return r == -EUCLEAN ? damaged(job, "a resume blob") : err_trace(r);
}

/* Twice its state, as when it was made: without that it could not step. */
static int take_charge(struct zero_job *job)
{
	uint64_t bytes = job->here_elements * job_state_bytes(job) +
	                 job_param_bytes(job, job->kept_elements);
	struct zi_text why = { "" };
	int r;

	r = tier_charge_take(&job->nvme_charge, job->nvme_tier, &job->account->account, 2 * bytes,
	                     &why);
	if (!r)
		return 0;
	job->refusal = r == TIER_E_QUOTA ? -EDQUOT : -ENOSPC;
	zi_text_set(&job->refusal_text, "job '%s' needs twice its state: %s", job->name, why.chars);
	return err_origin(job->refusal);
}

/*
 * Of one node of several: parameters of what others hold are here where it has rows of them, of all
 * or of none. Which ranks trained what is a start's, and known of the job's first one alone: with
 * sets that are named, what the node holds is what it has rows of, too. None can be lost unseen
 * (the catalog counts them).
 */
static int take_had(struct zero_job *job, const struct catalog_job *stored)
{
	uint8_t *had = calloc(job->subgroup_count, sizeof(*had));

	if (!had)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < job->subgroup_count && !job->layout.set_count; i++)
		had[i] = job->subgroups[i].is_here ? OWNER_HOLDS : 0;
	for (uint32_t i = 0; i < stored->extent_count; i++) {
		const struct zero_subgroup *subgroup = recover_subgroup(job, &stored->extents[i]);
		bool is_state = stored->extents[i].plane == ZI_PLANE_STATE;

		if (subgroup && !is_state)
			had[job_subgroup_index(job, subgroup)] |= OWNER_KEEPS;
		else if (subgroup && job->layout.set_count)
			had[job_subgroup_index(job, subgroup)] |= OWNER_HOLDS;
	}
	owners_take(job, had);
	free(had);
	if (job->kept_count != job->here_count && job->kept_count != job->subgroup_count)
		return damaged(job, "parameters of other nodes without an extent");
	return 0;
}

/* See recover_take.h. */
int recover_state(struct zero_job *job, const struct catalog_job *stored, bool is_load)
{
	uint32_t row_count = 0;
	int r;

	r = share_reserve(&job->zero->shares, stored->extent_count);
	if (!r && stored->placement.node_count > 1 && !is_load)
		r = take_had(job, stored);
	for (uint32_t i = 0; i < stored->extent_count && !r; i++)
		r = take_extent(job, &stored->extents[i], is_load, &row_count);
	for (uint32_t i = 0; i < stored->blob_count && !r; i++)
		if (!is_load || (stored->blobs[i].rank < job->world &&
		                 job->here_mask >> stored->blobs[i].rank & 1))
			r = take_blob(job, &stored->blobs[i]);
	for (uint32_t i = 0; i < job->subgroup_count && !r; i++)
		if (job->subgroups[i].is_kept &&
		    !job->subgroups[i].places[ZERO_PLANE_PARAM].extent.bytes)
			r = damaged(job, "parameters without an extent");
	/* State that was never written has a row as well: none missing can pass for it. */
	if (!r && row_count != job->here_count + job->kept_count)
		r = damaged(job, "optimizer state without an extent");
	/* A node of several may hold nothing of a small model. */
	if (!r && !job->nvme_tier && job->zero->options.nvme_tier_count)
		job->nvme_tier = &job->zero->options.nvme_tiers[job_roomiest(
			job->zero->options.nvme_tiers, job->zero->options.nvme_tier_count)];
	if (!r && !job->nvme_tier)
		r = absent(job, "its state is on nvme, and no nvme tier is configured");
	return err_trace(r);
}

/* See recover_take.h. */
int recover_take(struct zero_job *job, struct catalog_job *stored, bool is_load)
{
	int r;

	if (stored->damage.chars[0])
		return damaged(job, stored->damage.chars);
	job->nvme_tier = NULL; /* The one its extents lie on. */
	r = take_record(job, stored);
	if (!r)
		r = recover_state(job, stored, is_load);
	if (!r)
		r = take_charge(job);
	return err_trace(r);
}
