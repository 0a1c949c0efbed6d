/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters from the store into memory: read where they will be used, no copy between, and
 * verified on device threads; see stored.h. Floor 5, shard thread, but for stored_run().
 */
#include "daemon/zero/param/stored.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "kernels/hash.h"

static const char *what(const struct stored *stored)
{
	return stored->plane == ZERO_PLANE_STATE ? "optimizer state" : "parameters";
}

/* Bytes of an element. */
static uint32_t width_of(const struct stored *stored)
{
	const struct zero_job *job = stored->subgroup->job;

	return stored->plane == ZERO_PLANE_STATE
	               ? job_state_bytes(job)
	               : zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
}

static void fail_io(struct stored *stored, int error)
{
	const struct zero_job *job = stored->subgroup->job;

	stored->error = error;
	zi_text_set(&stored->text,
	            "job '%s': reading %s of unit '%.60s', subgroup %u, at offset %llu of "
	            "%s: %s",
	            job->name, what(stored), job->layout.units[stored->subgroup->unit].name,
	            stored->subgroup->index, (unsigned long long)stored->move.offset_bytes,
	            stored->move.member->path, zi_err_name(error));
}

static int tile_check(struct stored *stored, uint32_t index, const char *bytes, uint64_t count)
{
	const struct zero_job *job = stored->subgroup->job;
	uint64_t begin = stored->move.offset_bytes + (uint64_t)(bytes - (char *)stored->target);

	if (kern_hash_tile(bytes, count, width_of(stored)) == stored->hashes[index])
		return 0;
	return err_origin(zi_text_error(
		&stored->text, -EBADMSG,
		"job '%s': %s of unit '%.60s' %s damaged: %llu bytes at offset %llu of %s "
		"do not match their checksum",
		job->name, what(stored), job->layout.units[stored->subgroup->unit].name,
		stored->plane == ZERO_PLANE_STATE ? "is" : "are", (unsigned long long)count,
		(unsigned long long)begin, stored->move.member->path));
}

/* What was read is verified, what was never written is zero. */
static void stored_run(struct dev_task *task)
{
	struct stored *stored = container_of(task, struct stored, task);
	uint64_t left_bytes = (uint64_t)stored->subgroup->element_count * width_of(stored);
	uint64_t tile_bytes = (uint64_t)ZI_TILE_ELEMENTS * width_of(stored);
	char *bytes = stored->target;

	if (!stored->is_stored) {
		memset(bytes, 0, left_bytes);
		return;
	}
	for (uint32_t i = 0; i < stored->subgroup->tile_count && !stored->error; i++) {
		uint64_t count = ZI_MIN(tile_bytes, left_bytes);

		stored->error = tile_check(stored, i, bytes, count);
		bytes += count;
		left_bytes -= count;
	}
}

static void ended(struct stored *stored)
{
	struct zero_job *job = stored->subgroup->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	stored->done(stored);
	job_settle(job); /* May free the job. */
	zero_drain(zero);
}

static void ran(struct dev_task *task)
{
	ended(container_of(task, struct stored, task));
}

static void verify(struct stored *stored)
{
	struct zero_job *job = stored->subgroup->job;

	stored->task = (struct dev_task){ .run = stored_run,
		                          .done = ran,
		                          .loop = job->zero->options.loop };
	dev_submit(job->device, &stored->task);
}

static void moved(struct tier_move *move)
{
	struct stored *stored = container_of(move, struct stored, move);
	struct zero_job *job = stored->subgroup->job;

	if (move->result) {
		fail_io(stored, move->result);
		ended(stored);
		return;
	}
	stored->read_bytes = move->bytes;
	job->read_bytes += move->bytes;
	verify(stored);
}

/* Where they lie: the committed ones, or those of the commit to come. */
static const struct tier_extent *source_of(const struct stored *stored,
                                           uint64_t hashes[STORED_TILES])
{
	const struct zero_subgroup *subgroup = stored->subgroup;
	struct zero_job *job = subgroup->job;
	const struct zero_place *place = &subgroup->places[stored->plane];
	bool is_param = stored->plane == ZERO_PLANE_PARAM;
	bool is_next = is_param
	                       ? job->units[subgroup->unit].is_param_next || subgroup->is_param_next
	                       : state_is_stored(subgroup);
	uint32_t index = is_next ? place_next_index(place) : place->hash_index;
	const struct tier_extent *extent = is_next ? &place->next : &place->extent;

	assert(subgroup->tile_count <= STORED_TILES);
	memcpy(hashes, &job->hashes[stored->plane][index][subgroup->tile_first],
	       subgroup->tile_count * sizeof(*hashes));
	return extent;
}

/* Documented in the header. */
void stored_read(struct stored *stored)
{
	struct zero_job *job = stored->subgroup->job;
	const struct tier_extent *extent = source_of(stored, stored->hashes);
	int r;

	stored->error = 0;
	stored->read_bytes = 0;
	stored->is_stored = extent->bytes > 0;
	job_busy(job);
	if (!stored->is_stored) {
		verify(stored);
		return;
	}
	stored->move = (struct tier_move){ .member = extent->member,
		                           .offset_bytes = extent->offset_bytes,
		                           .buffer = stored->target,
		                           .bytes = extent->bytes,
		                           .flow = job->flow,
		                           .is_urgent = true,
		                           .tally = &job->account->tally,
		                           .done = moved };
	r = tier_move_submit(job->zero->options.engine, &stored->move);
	if (!r)
		return;
	/* Told as a read that failed, where every other one is: on the way back. */
	fail_io(stored, r);
	verify(stored);
}

/* Documented in the header. */
void stored_fail(struct stored *stored, int error, const struct zi_text *text)
{
	assert(error);
	stored->error = error;
	stored->text = *text;
	stored->read_bytes = 0;
	stored->is_stored = true;
	job_busy(stored->subgroup->job);
	verify(stored);
}
