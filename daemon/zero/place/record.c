/* SPDX-License-Identifier: Apache-2.0 */
/* A job as the catalog is told of it. Floor 5, shard thread. */
#include "daemon/zero/place/record.h"

#include <string.h>

#include "common/base/assert.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/job/forward.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/commit.h"

struct catalog_placement record_placement(const struct zero_job *job)
{
	struct catalog_placement placement = {
		.strategy = job->training.strategy,
		.shard_size = job->training.shard_size,
		.node_count = 1,
	};

	assert(job->world > 0);
	if (job->across)
		across_place(job, &placement);
	return placement;
}

/* Documented in the header. */
void record_take_placement(struct zero_job *job, const struct catalog_job *record)
{
	const struct catalog_placement *placement = &record->placement;

	job->world = record->world_size;
	job->here_mask = job_mask_of(job->world);
	if (placement->node_count <= 1)
		return;
	job->here_mask = 0;
	for (uint32_t i = 0; i < job->world; i++)
		job->here_mask |= (uint64_t)(placement->nodes[i] == placement->node) << i;
	job->training.strategy = placement->strategy;
	job->training.shard_size = placement->shard_size;
}

/* See record.h. */
void record_put_marks(struct catalog_job *record, int64_t step, const struct zero_marks *marks)
{
	record->world_size = marks->world;
	record->step = step;
	record->number = marks->number;
	record->line = marks->line;
	record->placement = marks->placement;
	record->update_count = marks->update_count;
	record->beta1_power = marks->beta1_power;
	record->beta2_power = marks->beta2_power;
	scale_put(&marks->scale, record);
}

/* See record.h. */
struct zero_marks record_marks(const struct catalog_job *record, const struct zero_scale *scale,
                               uint32_t blob_index)
{
	return (struct zero_marks){ .update_count = record->update_count,
		                    .beta1_power = record->beta1_power,
		                    .beta2_power = record->beta2_power,
		                    .scale = *scale,
		                    .blob_index = blob_index,
		                    .world = record->world_size,
		                    .number = record->number,
		                    .line = record->line,
		                    .placement = record->placement };
}

/* See record.h. */
void record_put_blobs(const struct zero_job *job, uint32_t index, uint32_t world,
                      struct catalog_job *record, struct catalog_blob *blobs)
{
	for (uint32_t i = 0; i < world; i++) {
		const struct zero_blob *blob = &job->blobs[index][i];

		if (blob->byte_count)
			blobs[record->blob_count++] = (struct catalog_blob){
				.rank = i,
				.bytes = blob->bytes,
				.byte_count = blob->byte_count,
			};
	}
}

/* What is committed, all but extents and blobs. Arrays stay the job's. */
void record_describe(const struct zero_job *job, struct catalog_job *ret_record)
{
	*ret_record = (struct catalog_job){
		.uid = job->uid,
		.config = {
			.param_dtype = job->config.param_dtype,
			.grad_dtype = job->config.grad_dtype,
			.optimizer = job->config.optimizer,
			.schedule = job->config.schedule,
			.offload_optimizer = job->config.offload_optimizer,
			.offload_param = job->config.offload_param,
			.durability = job->config.durability,
		},
		.incarnation_number = job->group.number,
		.set_count = job->layout.set_count,
		.unit_count = job->layout.unit_count,
		.param_count = job->layout.param_count,
		.sets = job->layout.sets,
		.units = job->layout.units,
		.params = job->layout.params,
		.incarnations = job->history.record,
		.incarnation_count = job->history.record_count,
	};
	static_assert(sizeof(job->training) == sizeof(ret_record->training), "as it came");
	record_put_marks(ret_record, job->committed_step, &job->committed);
	if (job->committed_step < 0)
		ret_record->world_size = job->world;
	memcpy(ret_record->training, &job->training, sizeof(job->training));
	forward_put(job->is_stateless, ret_record);
	(void)zi_copy_name(ret_record->name, sizeof(ret_record->name), job->name); /* As long. */
	(void)zi_copy_name(ret_record->incarnation, sizeof(ret_record->incarnation),
	                   job->group.name);
}

/* @place: of @subgroup; @extent: its present or its next one, whose checksums are @hashes. */
struct catalog_extent record_extent(const struct zero_subgroup *subgroup, uint32_t plane,
                                    const struct tier_extent *extent, const uint64_t *hashes,
                                    uint64_t step)
{
	struct catalog_extent record = {
		.unit = subgroup->unit,
		.subgroup = subgroup->index,
		.plane = plane == ZERO_PLANE_STATE ? ZI_PLANE_STATE : ZI_PLANE_PARAM,
		.extent = { .offset_bytes = extent->offset_bytes, .bytes = extent->bytes },
		.step = step,
		.hash_count = extent->bytes ? subgroup->tile_count : 0,
		.hashes = hashes,
	};

	/* All zero lies on no store. */
	if (extent->bytes)
		memcpy(record.store_uuid, extent->member->uuid, sizeof(record.store_uuid));
	return record;
}

/* Where what a commit, or a snapshot, consists of lies. */
static struct catalog_extent committed_extent(const struct zero_job *job,
                                              const struct zero_subgroup *subgroup, uint32_t plane,
                                              enum record_of of, int64_t step)
{
	const struct zero_place *place = &subgroup->places[plane];
	bool is_kept = place->kept_is == (of == RECORD_FORMER ? ZERO_KEPT_FORMER : ZERO_KEPT_AHEAD);
	const struct tier_extent *extent = is_kept ? &place->kept : &place->extent;
	uint32_t which = is_kept ? place->kept_index : place->hash_index;
	uint64_t written = is_kept ? place->kept_step : place->step;

	if (of == RECORD_WRITTEN) {
		extent = &place->next;
		which = place_next_index(place);
		written = (uint64_t)step;
	}
	return record_extent(subgroup, plane, extent,
	                     &job->hashes[plane][which][subgroup->tile_first], written);
}

/* See record.h. */
void record_committed(const struct zero_job *job, enum record_of of, struct catalog_job *record,
                      struct catalog_extent *extents, struct catalog_blob *blobs)
{
	const struct zero_marks *marks = of == RECORD_FORMER ? &job->former.marks : &job->committed;

	assert(of != RECORD_FORMER || job->former.is_kept);
	record->extents = extents;
	record->blobs = blobs;
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			if (job_keeps(&job->subgroups[i], plane))
				extents[record->extent_count++] = committed_extent(
					job, &job->subgroups[i], plane, of, record->step);
	record_put_blobs(job, marks->blob_index, marks->world, record, blobs);
}
