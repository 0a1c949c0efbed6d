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

static void fail_io(struct stored *stored, int error)
{
	const struct zero_job *job = stored->subgroup->job;

	stored->error = error;
	zi_text_set(&stored->text,
	            "job '%s': reading parameters of unit '%.60s', subgroup %u, at offset %llu of "
	            "%s: %s",
	            job->name, job->layout.units[stored->subgroup->unit].name,
	            stored->subgroup->index, (unsigned long long)stored->move.offset_bytes,
	            stored->move.member->path, zi_err_name(error));
}

static int tile_check(struct stored *stored, uint32_t index, const char *bytes, uint64_t count)
{
	const struct zero_job *job = stored->subgroup->job;
	uint64_t begin = stored->move.offset_bytes + (uint64_t)(bytes - (char *)stored->target);
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);

	if (kern_hash_tile(bytes, count, width) == stored->hashes[index])
		return 0;
	return err_origin(zi_text_error(
		&stored->text, -EBADMSG,
		"job '%s': parameters of unit '%.60s' are damaged: %llu bytes at offset %llu of %s "
		"do not match their checksum",
		job->name, job->layout.units[stored->subgroup->unit].name,
		(unsigned long long)count, (unsigned long long)begin, stored->move.member->path));
}

/* What was read is verified, what was never written is zero. */
static void stored_run(struct dev_task *task)
{
	struct stored *stored = container_of(task, struct stored, task);
	const struct zero_job *job = stored->subgroup->job;
	uint64_t left_bytes = job_subgroup_param_bytes(job, stored->subgroup);
	uint64_t tile_bytes =
		(uint64_t)ZI_TILE_ELEMENTS * zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
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

/* Where the unit's newest parameters lie: the committed ones, or those of the commit to come. */
static const struct tier_extent *source_of(const struct zero_subgroup *subgroup,
                                           uint64_t hashes[STORED_TILES])
{
	struct zero_job *job = subgroup->job;
	const struct zero_place *place = &subgroup->places[ZERO_PLANE_PARAM];
	bool is_next = job->units[subgroup->unit].is_param_next;
	uint32_t index = is_next ? place_next_index(place) : place->hash_index;
	const struct tier_extent *extent = is_next ? &place->next : &place->extent;

	assert(subgroup->tile_count <= STORED_TILES);
	memcpy(hashes, &job->hashes[ZERO_PLANE_PARAM][index][subgroup->tile_first],
	       subgroup->tile_count * sizeof(*hashes));
	return extent;
}

/* Documented in the header. */
void stored_read(struct stored *stored)
{
	struct zero_job *job = stored->subgroup->job;
	const struct tier_extent *extent = source_of(stored->subgroup, stored->hashes);
	int r;

	assert(stored->subgroup->is_here);
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
