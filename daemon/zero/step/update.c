/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What device threads do with one subgroup: tile by tile, so that a tile is verified, computed and
 * hashed while it lies in the cache. Floor 5, any device thread.
 *
 * They read what the shard thread set before dev_submit() and does not change while a task is in
 * flight: the layout, the planes' addresses, the step's scalars, the committed checksums. They
 * write the memory of their own subgroup, its part of the next checksums, and the item's error.
 */
#include "daemon/zero/step/update.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/grad/grads.h"
#include "daemon/zero/grad/spill_write.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/param/write_end.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/item.h"
#include "daemon/zero/step/item_pool.h"
#include "daemon/zero/step/mixed.h"
#include "daemon/zero/step/pipeline.h"
#include "kernels/hash.h"
#include "kernels/optim_hashed.h"

/* One tile of a subgroup, in all planes. */
struct tile {
	uint32_t index;         /* in the subgroup */
	uint64_t element_first; /* in the subgroup */
	uint64_t element_count;
	void *param; /* NULL: not here */
	void *state; /* NULL: not here */
	uint64_t param_bytes, state_bytes;
};

static struct tile tile_of(const struct zero_item *item, uint32_t index)
{
	const struct zero_job *job = item->job;
	uint64_t first = (uint64_t)index * ZI_TILE_ELEMENTS;
	uint64_t count = ZI_MIN((uint64_t)ZI_TILE_ELEMENTS, item->subgroup->element_count - first);
	uint32_t param_width = zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);

	assert(first < item->subgroup->element_count);
	return (struct tile){
		.index = index,
		.element_first = first,
		.element_count = count,
		.param = item->param ? (char *)item->param + first * param_width : NULL,
		.state = item->state ? (char *)item->state + first * job_state_bytes(job) : NULL,
		.param_bytes = count * param_width,
		.state_bytes = count * job_state_bytes(job),
	};
}

static uint64_t *hash_place(const struct zero_item *item, uint32_t plane, bool is_next,
                            uint32_t tile_index)
{
	const struct zero_subgroup *subgroup = item->subgroup;
	const struct zero_place *place = &subgroup->places[plane];
	uint32_t index = is_next ? place_next_index(place) : place->hash_index;

	return &item->job->hashes[plane][index][subgroup->tile_first + tile_index];
}

static uint64_t tile_hash(const struct zero_item *item, const struct tile *tile, uint32_t plane)
{
	const struct zero_job *job = item->job;

	if (plane == ZERO_PLANE_PARAM)
		return kern_hash_tile(tile->param, tile->param_bytes,
		                      zi_dtype_bytes((enum zi_dtype)job->config.param_dtype));
	return kern_hash_tile(tile->state, tile->state_bytes, job_state_bytes(job));
}

/* @hash: of what was read. -EBADMSG: it is not what was written. */
static int tile_compare(struct zero_item *item, const struct tile *tile, uint32_t plane,
                        uint64_t hash)
{
	const struct zero_job *job = item->job;
	const struct zero_subgroup *subgroup = item->subgroup;
	bool is_param = plane == ZERO_PLANE_PARAM;
	const void *bytes = is_param ? tile->param : tile->state;
	uint64_t byte_count = is_param ? tile->param_bytes : tile->state_bytes;
	uint64_t begin = subgroup->places[plane].extent.offset_bytes;

	if (hash == *hash_place(item, plane, false, tile->index))
		return 0;
	begin += (uint64_t)((const char *)bytes -
	                    (is_param ? (const char *)item->param : (const char *)item->state));
	return err_origin(zi_text_error(
		&item->text, -EBADMSG,
		"job '%s': %s of unit '%.60s' %s damaged: %llu bytes at offset %llu of %s do not "
		"match their checksum",
		job->name, is_param ? "parameters" : "optimizer state",
		job->layout.units[subgroup->unit].name, is_param ? "are" : "is",
		(unsigned long long)byte_count, (unsigned long long)begin,
		subgroup->places[plane].extent.member->path));
}

static int tile_verify(struct zero_item *item, const struct tile *tile, uint32_t plane)
{
	return tile_compare(item, tile, plane, tile_hash(item, tile, plane));
}

/* @hash: of what is about to be written, if it is. */
static void tile_record(const struct zero_item *item, const struct tile *tile, uint32_t plane,
                        uint64_t hash)
{
	if (item->subgroup->places[plane].next.bytes)
		*hash_place(item, plane, true, tile->index) = hash;
}

static void tile_record_plane(const struct zero_item *item, const struct tile *tile, uint32_t plane)
{
	/* What a rank wrote between steps may be in its extent already, and not here. */
	bool is_here = plane == ZERO_PLANE_PARAM ? tile->param : tile->state;

	if (is_here && item->subgroup->places[plane].next.bytes)
		tile_record(item, tile, plane, tile_hash(item, tile, plane));
}

/* The run of parameters with its first element. */
static const struct zero_stretch *tile_stretches(const struct zero_item *item,
                                                 const struct tile *tile)
{
	const struct zero_subgroup *subgroup = item->subgroup;

	return stretches_find(item->job, subgroup->unit,
	                      subgroup_element(subgroup) + tile->element_first);
}

/* All of it is of one group, which is not frozen: the common case. */
static bool tile_is_plain(const struct zero_item *item, const struct tile *tile)
{
	const struct zero_stretch *stretch = tile_stretches(item, tile);

	return !stretch_is_frozen(stretch) && stretch->end >= subgroup_element(item->subgroup) +
	                                                              tile->element_first +
	                                                              tile->element_count;
}

/* [remainder (not of f32) | exp_avg f32 | exp_avg_sq f32 (of two moments)]. @ret_hashes: NULL, or
 * of both sides of the step, of a plain tile. */
static void tile_step(const struct zero_item *item, const struct tile *tile,
                      struct kern_optim_hashes *ret_hashes)
{
	const struct zero_job *job = item->job;
	const struct zero_subgroup *subgroup = item->subgroup;
	uint64_t remainder_bytes =
		tile->element_count * zi_remainder_bytes((enum zi_dtype)job->config.param_dtype);
	bool has_second = zi_optimizer_moments((enum zi_optimizer)job->config.optimizer) == 2;
	enum zi_dtype grad_dtype =
		job->step.is_pass1 ? job_sum_dtype(job) : (enum zi_dtype)job->config.grad_dtype;
	uint64_t grad_offset = tile->element_first * zi_dtype_bytes(grad_dtype);
	uint64_t moment_bytes = tile->element_count * sizeof(float);
	char *moments = (char *)tile->state + remainder_bytes;
	const void *grads[ZI_WORLD_MAX];
	/* The one scalar that is not the same for all units. */
	float average = set_of(job, subgroup->unit)->factor;
	struct kern_optim_scalars scalars;
	uint32_t rank_count = 1;
	struct kern_optim_run run;

	if (job->step.is_pass1)
		grads[0] = (char *)item->sum + grad_offset;
	else
		rank_count = grad_sources(job, subgroup, grad_offset, grads);
	run = (struct kern_optim_run){
		.param = tile->param,
		.remainder = remainder_bytes ? tile->state : NULL,
		.exp_avg = (float *)(void *)moments,
		.exp_avg_sq = has_second ? (float *)(void *)(moments + moment_bytes) : NULL,
		.grads = grads,
		.rank_count = rank_count,
		.is_reduced = job->step.is_pass1,
		.element_count = tile->element_count,
		.param_dtype = (enum zi_dtype)job->config.param_dtype,
		.grad_dtype = grad_dtype,
	};
	if (!tile_is_plain(item, tile)) {
		assert(!ret_hashes);
		mixed_step(&run, tile_stretches(item, tile),
		           subgroup_element(subgroup) + tile->element_first, job->step.scalars,
		           average);
		return;
	}
	scalars = job->step.scalars[tile_stretches(item, tile)->group];
	scalars.average = average;
	if (ret_hashes)
		kern_optim_step_hashed(&run, &scalars, ret_hashes);
	else
		kern_optim_step(&run, &scalars);
}

/* State that came from the disk: verified, computed and hashed in one pass. When it was damaged the
 * step has been made on it, as it has on the tiles before; none of it is written, and all that the
 * job has in memory is read anew from the committed extents (step_undo()). */
static int tile_step_verified(struct zero_item *item, const struct tile *tile)
{
	struct kern_optim_hashes hashes;
	int r;

	assert(job_is_nvme(item->job));
	tile_step(item, tile, &hashes);
	r = tile_compare(item, tile, ZERO_PLANE_STATE, hashes.state_before);
	if (r)
		return err_trace(r);
	tile_record(item, tile, ZERO_PLANE_STATE, hashes.state);
	tile_record(item, tile, ZERO_PLANE_PARAM, hashes.param);
	return 0;
}

/* Out of the pool, for what is written: item_pool.h. */
static void tile_copy(const struct zero_item *item, const struct tile *tile)
{
	uint64_t offset = (uint64_t)((char *)tile->param - (char *)item->param);

	memcpy((char *)item_slot_param(item) + offset, tile->param, tile->param_bytes);
}

/* The step of one subgroup. Only what came from the disk is verified. */
void update_run(struct dev_task *task)
{
	struct zero_item *item = container_of(task, struct zero_item, task);
	bool is_read = item->is_staged && !item->is_state_zero;

	for (uint32_t i = 0; i < item->subgroup->tile_count; i++) {
		struct tile tile = tile_of(item, i);
		bool is_hashed = is_read && tile_is_plain(item, &tile);

		if (item->is_param_read)
			item->error = tile_verify(item, &tile, ZERO_PLANE_PARAM);
		if (item->is_sum_read && !item->error)
			item->error = spill_verify(item->subgroup, item->sum, i, &item->text);
		if (is_hashed && !item->error)
			item->error = tile_step_verified(item, &tile);
		else if (is_read && !item->error)
			item->error = tile_verify(item, &tile, ZERO_PLANE_STATE);
		if (item->error)
			return;
		if (!is_hashed) {
			if (item->is_staged && !is_read)
				memset(tile.state, 0, tile.state_bytes);
			tile_step(item, &tile, NULL);
			tile_record_plane(item, &tile, ZERO_PLANE_STATE);
			tile_record_plane(item, &tile, ZERO_PLANE_PARAM);
		}
		if (item->is_pooled)
			tile_copy(item, &tile);
	}
}

/* What was read at materialize is verified; what was never written is zero. With a pool there are
 * no parameters to load. */
void load_run(struct dev_task *task)
{
	struct zero_item *item = container_of(task, struct zero_item, task);
	bool has_param = item->param && item->subgroup->places[ZERO_PLANE_PARAM].extent.bytes > 0;

	for (uint32_t i = 0; i < item->subgroup->tile_count; i++) {
		struct tile tile = tile_of(item, i);

		if (has_param)
			item->error = tile_verify(item, &tile, ZERO_PLANE_PARAM);
		else if (tile.param)
			memset(tile.param, 0, tile.param_bytes);
		if (!item->error && tile.state && !item->is_state_zero)
			item->error = tile_verify(item, &tile, ZERO_PLANE_STATE);
		else if (tile.state)
			memset(tile.state, 0, tile.state_bytes);
		if (item->error)
			return;
	}
}

/* What a commit or a snapshot writes: parameters, and state that is in memory alone. */
void hash_run(struct dev_task *task)
{
	struct zero_item *item = container_of(task, struct zero_item, task);

	for (uint32_t i = 0; i < item->subgroup->tile_count; i++) {
		struct tile tile = tile_of(item, i);

		tile_record_plane(item, &tile, ZERO_PLANE_PARAM);
		tile_record_plane(item, &tile, ZERO_PLANE_STATE);
	}
}

/* With a pool: what param_write_end() was given becomes the unit's parameters, and its state zero
 * unless it is kept; at a commit, parameters that were never written are zero. */
void store_run(struct dev_task *task)
{
	struct zero_item *item = container_of(task, struct zero_item, task);
	const struct zero_job *job = item->job;
	const struct zero_subgroup *subgroup = item->subgroup;
	bool is_given = job->pipeline.kind == ZERO_PIPELINE_STORE;

	if (is_given)
		write_copy(job, subgroup, item->param);
	else if (item->param)
		memset(item->param, 0, job_subgroup_param_bytes(job, subgroup));
	if (subgroup->memory && is_given && !job->write_keeps)
		memset(subgroup->memory, 0, job_subgroup_state_bytes(job, subgroup));
	hash_run(task);
}
