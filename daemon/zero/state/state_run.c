/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer state from and to a window; see state_run.h. Floor 5, shard thread. prepare_run() and
 * subgroup_run() run on device threads. */
#include "daemon/zero/state/state_run.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/warm.h"
#include "kernels/hash.h"

/* ---- device threads ---- */

/* Where a kind lies in a tile, and how wide an element of it is. */
struct section {
	uint64_t offset_bytes; /* for each element of the tile */
	uint32_t width;
};

/* [remainder (not of f32) | first moment f32 | second moment f32]: docs/ARITHMETIC.md. */
static struct section section_of(const struct zero_job *job, enum zi_state_kind kind)
{
	uint32_t remainder_bytes = zi_remainder_bytes((enum zi_dtype)job->config.param_dtype);

	switch (kind) {
	case ZI_STATE_FIRST:
		return (struct section){ remainder_bytes, sizeof(float) };
	case ZI_STATE_SECOND:
		return (struct section){ remainder_bytes + sizeof(float), sizeof(float) };
	case ZI_STATE_REMAINDER:
	case _ZI_STATE_COUNT:
	default:
		return (struct section){ 0, remainder_bytes };
	}
}

/* @place: (@count,) of the section, @values: (@count,) of 32 bits. A remainder of bf16 has 16. */
static void get(const char *place, uint32_t width, char *values, uint64_t count)
{
	if (width == sizeof(int32_t)) {
		memcpy(values, place, count * sizeof(int32_t));
		return;
	}
	for (uint64_t i = 0; i < count; i++) {
		int16_t narrow;
		int32_t wide;

		memcpy(&narrow, place + i * sizeof(narrow), sizeof(narrow));
		wide = narrow;
		memcpy(values + i * sizeof(wide), &wide, sizeof(wide));
	}
}

static void put(char *place, uint32_t width, const char *values, uint64_t count)
{
	if (width == sizeof(int32_t)) {
		memcpy(place, values, count * sizeof(int32_t));
		return;
	}
	for (uint64_t i = 0; i < count; i++) {
		int32_t wide;
		int16_t narrow;

		memcpy(&wide, values + i * sizeof(wide), sizeof(wide));
		narrow = (int16_t)(uint16_t)(uint32_t)wide;
		memcpy(place + i * sizeof(narrow), &narrow, sizeof(narrow));
	}
}

/* The part of a tile that the run has: elements @begin to @end of the unit, @state: of the tile. */
static void tile_run(const struct state_run *run, char *state, uint64_t tile_begin,
                     uint64_t tile_count)
{
	struct section section = section_of(run->job, run->kind);
	uint64_t begin = ZI_MAX(run->first, tile_begin);
	uint64_t end = ZI_MIN(run->first + run->count, tile_begin + tile_count);
	char *place, *values;

	if (run->action == STATE_FOLLOW) {
		memset(state, 0,
		       tile_count *
		               zi_remainder_bytes((enum zi_dtype)run->job->config.param_dtype));
		return;
	}
	if (begin >= end)
		return;
	place = state + tile_count * section.offset_bytes + (begin - tile_begin) * section.width;
	values = (char *)run->window->region.base + (begin - run->first) * sizeof(int32_t);
	if (run->action == STATE_GET)
		get(place, section.width, values, end - begin);
	else
		put(place, section.width, values, end - begin);
}

static void subgroup_run(struct dev_task *task)
{
	struct state_run *run = container_of(task, struct state_run, task);
	const struct zero_job *job = run->job;
	const struct zero_subgroup *subgroup = run->subgroup;
	uint32_t width = job_state_bytes(job);
	char *state = subgroup->memory ? subgroup->memory : run->scratch->region.base;

	if (run->error)
		return;
	if (run->is_zero && !subgroup->memory)
		memset(state, 0, job_subgroup_state_bytes(job, subgroup));
	for (uint32_t i = 0; i < subgroup->tile_count; i++) {
		uint64_t first = (uint64_t)i * ZI_TILE_ELEMENTS;
		uint64_t count =
			ZI_MIN((uint64_t)ZI_TILE_ELEMENTS, subgroup->element_count - first);
		char *tile = state + first * width;

		tile_run(run, tile, subgroup_element(subgroup) + first, count);
		if (run->action != STATE_GET && !subgroup->memory)
			job->hashes[ZERO_PLANE_STATE][run->hash_index][subgroup->tile_first + i] =
				kern_hash_tile(tile, count * width, width);
	}
}

static void prepare_run(struct dev_task *task)
{
	struct state_run *run = container_of(task, struct state_run, task);

	if (run->scratch)
		run->error = tier_segment_build(run->scratch, &run->text);
}

/* ---- shard thread ---- */

/* See state_run.h, as are the others. */
bool state_has_kind(const struct zero_job *job, enum zi_state_kind kind)
{
	uint32_t moments = zi_optimizer_moments((enum zi_optimizer)job->config.optimizer);

	if (job->is_stateless)
		return false;
	switch (kind) {
	case ZI_STATE_REMAINDER:
		return zi_remainder_bytes((enum zi_dtype)job->config.param_dtype) > 0;
	case ZI_STATE_FIRST:
		return moments >= 1;
	case ZI_STATE_SECOND:
		return moments >= 2;
	case _ZI_STATE_COUNT:
	default:
		return false;
	}
}

bool state_is_stored(const struct zero_subgroup *subgroup)
{
	return subgroup->is_state_next && !subgroup->memory;
}

void state_void(struct zero_subgroup *subgroup)
{
	if (state_is_stored(subgroup) && !subgroup->job->zero->frozen)
		tier_extent_release(&subgroup->places[ZERO_PLANE_STATE].next);
	subgroup->is_state_next = false;
}

static struct zero_subgroup *subgroup_at(const struct state_run *run, uint32_t index)
{
	return &run->job->subgroups[run->job->units[run->unit].subgroup_first + index];
}

static bool is_change(const struct state_run *run)
{
	return run->action != STATE_GET;
}

/* Nothing was ever stored of it, or what was counts as zero since the parameters were written. */
static bool is_zero(const struct zero_subgroup *subgroup)
{
	return !state_is_stored(subgroup) &&
	       (subgroup->is_reset || !subgroup->places[ZERO_PLANE_STATE].extent.bytes);
}

/* It goes through scratch memory: FOLLOW leaves zero as it is. */
static bool needs_scratch(const struct state_run *run, const struct zero_subgroup *subgroup)
{
	return !subgroup->memory && (run->action != STATE_FOLLOW || !is_zero(subgroup));
}

/* Who asked for a change is gone: what was written will not be committed. */
static bool is_over(const struct state_run *run)
{
	const struct zero_group *group = &run->job->group;

	if (run->error || run->is_void)
		return true;
	return is_change(run) &&
	       (group->phase != ZERO_GROUP_LIVE || group->generation != run->generation);
}

static void run_end(struct state_run *run)
{
	struct zero_job *job = run->job;

	run->scratch = tier_segment_unref(run->scratch);
	run->window = tier_segment_unref(run->window);
	if (is_change(run) && is_over(run))
		extents_release_next(job); /* What was reserved and not written. */
	job_unbusy(job);
	run->done(run);
}

/* The subgroup's state is the run's now, and goes to the store with the next commit. */
static void subgroup_take(struct state_run *run)
{
	struct zero_subgroup *subgroup = run->subgroup;

	if (!is_change(run))
		return;
	warm_drop(subgroup);
	subgroup->is_state_next = job_is_nvme(run->job);
	subgroup->is_reset = false;
	run->job->units[run->unit].is_state_written = true;
}

static void run_next(struct state_run *run);

static void end_step(struct state_run *run)
{
	struct zero_job *job = run->job;
	struct zero *zero = job->zero;

	run_next(run);
	if (job->zero->options.engine)
		tier_move_kick(job->zero->options.engine);
	job_settle(job); /* May free the job. */
	zero_drain(zero);
}

static void fail_write(struct state_run *run, int error)
{
	const struct zero_job *job = run->job;

	run->error = error;
	zi_text_set(
		&run->text,
		"job '%s': writing optimizer state of unit '%.60s', subgroup %u, at offset %llu "
		"of %s: %s",
		job->name, job->layout.units[run->unit].name, run->subgroup->index,
		(unsigned long long)run->move.offset_bytes, run->move.member->path,
		zi_err_name(error));
}

static void written(struct tier_move *move);

/* Return: it is on its way; else it failed. */
static bool write_submit(struct state_run *run)
{
	struct zero_job *job = run->job;
	const struct tier_extent *extent = &run->subgroup->places[ZERO_PLANE_STATE].next;
	int r;

	run->move = (struct tier_move){ .member = extent->member,
		                        .is_write = true,
		                        .offset_bytes = extent->offset_bytes,
		                        .buffer = run->scratch->region.base,
		                        .bytes = extent->bytes,
		                        .flow = job->flow,
		                        .tally = &job->account->tally,
		                        .done = written };
	r = tier_move_submit(job->zero->options.engine, &run->move);
	if (r)
		fail_write(run, r);
	return !r;
}

static void written(struct tier_move *move)
{
	struct state_run *run = container_of(move, struct state_run, move);
	struct zero_job *job = run->job;
	struct zero_place *place = &run->subgroup->places[ZERO_PLANE_STATE];

	if (!move->result) {
		job->write_bytes += move->bytes;
		subgroup_take(run);
	} else if (extent_replace(job, place, ZERO_PLANE_STATE, true) || !write_submit(run)) {
		/* A failed write is final for that copy, and there is no other path. */
		fail_write(run, move->result);
	} else {
		tier_move_kick(job->zero->options.engine);
		return;
	}
	end_step(run);
}

/* To where it was given room, or elsewhere if that path takes nothing more since. */
static bool write_begin(struct state_run *run)
{
	struct zero_place *place = &run->subgroup->places[ZERO_PLANE_STATE];

	if (tier_member_is_leaving(place->next.member))
		(void)extent_replace(run->job, place, ZERO_PLANE_STATE, false); /* If it can. */
	return write_submit(run);
}

static void computed(struct dev_task *task)
{
	struct state_run *run = container_of(task, struct state_run, task);
	struct zero_job *job = run->job;

	if (!run->error && is_change(run) && !run->subgroup->memory && write_begin(run)) {
		tier_move_kick(job->zero->options.engine);
		return;
	}
	if (!run->error && run->subgroup->memory)
		subgroup_take(run);
	end_step(run);
}

static void compute(struct state_run *run)
{
	run->task = (struct dev_task){ .run = subgroup_run,
		                       .done = computed,
		                       .loop = run->job->zero->options.loop };
	dev_submit(run->job->device, &run->task);
}

/* An error goes the same way: the run never ends in here, as its caller goes on with the job. */
static void came(struct stored *stored)
{
	struct state_run *run = container_of(stored, struct state_run, stored);

	if (stored->error) {
		run->error = stored->error;
		run->text = stored->text;
	}
	compute(run);
}

/* The next subgroup, or the end. */
static void run_next(struct state_run *run)
{
	struct zero_subgroup *subgroup = NULL;

	while (!is_over(run) && run->next_index < run->end_index && !subgroup) {
		subgroup = subgroup_at(run, run->next_index++);
		if (run->action == STATE_FOLLOW && is_zero(subgroup) && !subgroup->memory)
			subgroup = NULL; /* Zero stays zero. */
	}
	if (!subgroup) {
		run_end(run);
		return;
	}
	run->subgroup = subgroup;
	run->is_zero = is_zero(subgroup);
	run->hash_index = place_next_index(&subgroup->places[ZERO_PLANE_STATE]);
	if (subgroup->memory || run->is_zero) {
		compute(run);
		return;
	}
	run->stored = (struct stored){ .subgroup = subgroup,
		                       .plane = ZERO_PLANE_STATE,
		                       .target = run->scratch->region.base,
		                       .done = came };
	stored_read(&run->stored);
}

static void prepared(struct dev_task *task)
{
	end_step(container_of(task, struct state_run, task));
}

/* Room for what is written. All or nothing. */
static int reserve(struct state_run *run, struct zi_text *text)
{
	int r = 0;

	for (uint32_t i = run->next_index; i < run->end_index && !r; i++)
		if (needs_scratch(run, subgroup_at(run, i)))
			r = extents_reserve_state(run->job, subgroup_at(run, i), text);
	if (r)
		extents_release_next(run->job);
	return err_trace(r);
}

static int charge_scratch(struct state_run *run, struct zi_text *text)
{
	struct zero_job *job = run->job;
	uint64_t bytes = 0;

	for (uint32_t i = run->next_index; i < run->end_index; i++)
		if (needs_scratch(run, subgroup_at(run, i)))
			bytes = ZI_MAX(bytes, job_subgroup_state_bytes(job, subgroup_at(run, i)));
	if (!bytes)
		return 0;
	return err_trace(tier_segment_charge(job->cpu_tier, &job->account->account, "zinf-state",
	                                     zi_align_up(bytes, ZI_STORE_ALIGN_BYTES),
	                                     TIER_PAGES_SMALL, text, &run->scratch));
}

/* See state_run.h. */
int state_run_start(struct state_run *run, struct zi_text *text)
{
	struct zero_job *job = run->job;
	int r;

	assert(run->count > 0);
	assert(run->first + run->count <= job->units[run->unit].padded_count);
	assert(!run->scratch);
	run->error = 0;
	run->generation = job->group.generation;
	run->next_index = (uint32_t)(run->first / ZI_SUBGROUP_ELEMENTS);
	run->end_index = (uint32_t)((run->first + run->count - 1) / ZI_SUBGROUP_ELEMENTS) + 1;
	r = charge_scratch(run, text);
	if (!r && is_change(run))
		r = reserve(run, text);
	if (r) {
		run->scratch = tier_segment_unref(run->scratch);
		run->window = tier_segment_unref(run->window);
		return err_trace(r);
	}
	run->task = (struct dev_task){ .run = prepare_run,
		                       .done = prepared,
		                       .loop = job->zero->options.loop };
	job_busy(job);
	dev_submit(job->device, &run->task);
	return 0;
}
