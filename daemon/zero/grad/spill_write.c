/* SPDX-License-Identifier: Apache-2.0 */
/* From a slot to the store; see spill_write.h. */
#include "daemon/zero/grad/spill_write.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/grad/spill_space.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/pipeline.h"
#include "kernels/hash.h"

/* ---- checksums ---- */

static uint64_t tile_bytes(const struct zero_subgroup *subgroup, uint32_t tile)
{
	uint64_t first = (uint64_t)tile * ZI_TILE_ELEMENTS;

	return ZI_MIN((uint64_t)ZI_TILE_ELEMENTS, subgroup->element_count - first) *
	       zi_dtype_bytes((enum zi_dtype)subgroup->job->config.grad_dtype);
}

/* @sum: of the whole subgroup. */
static uint64_t tile_hash(const struct zero_subgroup *subgroup, const void *sum, uint32_t tile,
                          uint64_t *ret_offset_bytes)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)subgroup->job->config.grad_dtype);

	*ret_offset_bytes = (uint64_t)tile * ZI_TILE_ELEMENTS * width;
	return kern_hash_tile((const char *)sum + *ret_offset_bytes, tile_bytes(subgroup, tile),
	                      width);
}

/* See spill_write.h, as for all that are not static. */
void spill_hash(const struct zero_subgroup *subgroup, const void *sum)
{
	uint64_t *hashes = subgroup->job->spill->hashes + subgroup->tile_first;
	uint64_t offset_bytes;

	for (uint32_t i = 0; i < subgroup->tile_count; i++)
		hashes[i] = tile_hash(subgroup, sum, i, &offset_bytes);
}

int spill_verify(const struct zero_subgroup *subgroup, const void *sum, uint32_t tile,
                 struct zi_text *text)
{
	const struct zero_job *job = subgroup->job;
	const struct tier_extent *extent = &subgroup->sum_place.next;
	uint64_t offset_bytes;

	if (tile_hash(subgroup, sum, tile, &offset_bytes) ==
	    job->spill->hashes[subgroup->tile_first + tile])
		return 0;
	return err_origin(zi_text_error(
		text, -EBADMSG,
		"job '%s': gradients of unit '%.60s' are damaged: %llu bytes at offset %llu of %s "
		"do not match their checksum",
		job->name, job->layout.units[subgroup->unit].name,
		(unsigned long long)tile_bytes(subgroup, tile),
		(unsigned long long)(extent->offset_bytes + offset_bytes), extent->member->path));
}

/* ---- writing ---- */

static bool is_lost(const struct zero_job *job)
{
	return job->pipeline.error || job->step.phase != ZERO_STEP_STEPPING;
}

/* The step ends with it, as when reading ahead fails. */
static void fail(struct zero_subgroup *subgroup, const struct tier_move *move, int error)
{
	struct zero_job *job = subgroup->job;

	if (is_lost(job))
		return;
	job->pipeline.error = error;
	zi_text_set(&job->pipeline.text,
	            "job '%s': writing gradients of unit '%.60s', subgroup %u, at offset %llu of "
	            "%s: %s",
	            job->name, job->layout.units[subgroup->unit].name, subgroup->index,
	            (unsigned long long)move->offset_bytes, move->member->path, zi_err_name(error));
}

static void written(struct tier_move *move);

/* False: it failed at once. */
static bool submit(struct zero_subgroup *subgroup)
{
	struct zero_spill_slot *slot = subgroup->spill_slot;
	const struct tier_extent *extent = &subgroup->sum_place.next;
	struct zero_job *job = subgroup->job;
	int r;

	assert(extent->bytes > 0);
	slot->move = (struct tier_move){
		.member = extent->member,
		.is_write = true,
		.offset_bytes = extent->offset_bytes,
		.buffer = slot->memory,
		.bytes = extent->bytes,
		.flow = job->flow,
		.tally = &job->account->tally,
		.done = written,
	};
	r = tier_move_submit(job->zero->options.engine, &slot->move);
	if (r) {
		fail(subgroup, &slot->move, r);
		return false;
	}
	job_busy(job);
	return true;
}

/* A failed write is final for that copy: the same bytes go to another path. */
static bool rewrite(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;

	if (is_lost(job) || extent_replace(job, &subgroup->sum_place, ZERO_LANE_SUM, true))
		return false;
	return submit(subgroup);
}

/* Of what is in a slot; after an error the pipeline ends the step. */
static void end(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;
	bool is_failed = job->pipeline.error && job->step.phase == ZERO_STEP_STEPPING;

	if (is_failed)
		spill_abort(job);
	subgroup->spill_slot->is_busy = false;
	subgroup->spill_slot->ended(subgroup); /* The job may be gone, but not while it steps. */
	if (is_failed)
		pipeline_pump(job);
}

static void written(struct tier_move *move)
{
	struct zero_spill_slot *slot = container_of(move, struct zero_spill_slot, move);
	struct zero_subgroup *subgroup = slot->subgroup;
	struct zero_job *job = subgroup->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	if (!move->result) {
		job->pipeline.write_bytes += move->bytes;
	} else if (rewrite(subgroup)) {
		tier_move_kick(job->zero->options.engine);
		return;
	} else {
		fail(subgroup, move, move->result);
	}
	end(subgroup);
	zero_drain(zero);
}

void spill_write(struct zero_subgroup *subgroup, spill_ended_fn ended)
{
	struct zero_job *job = subgroup->job;

	subgroup->spill_slot->is_busy = true;
	subgroup->spill_slot->ended = ended;
	if (submit(subgroup))
		tier_move_kick(job->zero->options.engine);
	else
		end(subgroup);
}

static void hash_run(struct dev_task *task)
{
	const struct zero_spill_slot *slot = container_of(task, struct zero_spill_slot, task);

	spill_hash(slot->subgroup, slot->memory);
}

static void hash_done(struct dev_task *task)
{
	struct zero_spill_slot *slot = container_of(task, struct zero_spill_slot, task);
	struct zero_job *job = slot->subgroup->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	if (is_lost(job))
		end(slot->subgroup);
	else
		spill_write(slot->subgroup, slot->ended);
	zero_drain(zero);
}

void spill_store(struct zero_subgroup *subgroup, spill_ended_fn ended)
{
	struct zero_spill_slot *slot = subgroup->spill_slot;
	struct zero_job *job = subgroup->job;

	slot->is_busy = true;
	slot->ended = ended;
	slot->task = (struct dev_task){
		.run = hash_run,
		.done = hash_done,
		.loop = job->zero->options.loop,
	};
	job_busy(job);
	dev_submit(job->device, &slot->task);
}
