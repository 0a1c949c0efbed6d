/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which units lie in a job's pool (residency.h): brought by a demand (somebody waits in an
 * unshard) or by prefetch along the recorded order, each as one contiguous run of slots; gone when
 * room is needed for one that is used sooner. Floor 5, shard thread.
 *
 *   demand     anything that is neither pinned, on its way, nor being updated gives way to it
 *   prefetch   only what is used later gives way to it, and it never waits
 * A demand that finds no room waits for others to reshard. When no rank that waits so could be
 * served even if all the others released everything, none of them ever will: then it is refused.
 *
 * A copy in the pool is of the unit's newest parameters. It is never written back: a step updates
 * it in place and writes new extents beside it, or, when the unit is not here, updates it in
 * staging. Over nodes a copy is of many owners, and void once they have changed theirs.
 */
#include "daemon/zero/param/residency.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/order.h"
#include "common/wire/geometry.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/demand.h"
#include "daemon/zero/param/fetch.h"
#include "daemon/zero/param/pool.h"
#include "daemon/zero/param/room.h"
#include "daemon/zero/param/unit.h"
#include "daemon/zero/param/write_end.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"

static void loaded(struct zero_load *load);

/* An empty pool of @slot_count slots, at least pool_slots_min(). Return: 0; -ENOMEM. */
int residency_new(struct zero_job *job, uint32_t slot_count)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
	uint32_t unit_count = job->layout.unit_count;
	struct zero_residency *residency;
	uint32_t largest = 0, second = 0;

	assert(!job->residency);
	residency = calloc(1, sizeof(*residency));
	if (!residency)
		return err_origin(-ENOMEM);
	job->residency = residency;
	residency->slot_count = slot_count;
	residency->units = calloc(unit_count, sizeof(*residency->units));
	residency->runs = calloc(unit_count, sizeof(*residency->runs));
	if (!residency->units || !residency->runs || zi_order_init(&residency->order, unit_count) ||
	    (job_is_forward_only(job) && zi_order_cycle(&residency->order))) {
		residency_free(job);
		return err_origin(-ENOMEM);
	}
	fetches_init(&residency->fetches);
	for (uint32_t i = 0; i < unit_count; i++) {
		struct zero_residence *residence = &residency->units[i];

		residence->slot_count =
			(uint32_t)(zi_geometry_unit_bytes(job->units[i].padded_count, width,
		                                          job->slot_bytes) /
		                   job->slot_bytes);
		residence->load = (struct zero_load){ .job = job, .unit = i, .done = loaded };
		zi_list_init(&residence->load.link);
		room_note_longest(residence->slot_count, &largest, &second);
	}
	residency->seam = room_seam(slot_count, largest, second, &residency->is_uneven);
	return 0;
}

/* Nothing is on its way. */
void residency_free(struct zero_job *job)
{
	struct zero_residency *residency = job->residency;

	if (!residency)
		return;
	assert(residency->fetches.busy_count == 0);
	job->residency = NULL;
	zi_order_deinit(&residency->order);
	free(residency->units);
	free(residency->runs);
	free(residency);
}

/* ---- where it is ---- */

uint64_t residency_offset(const struct zero_job *job, uint32_t unit)
{
	const struct zero_residence *residence = residence_of(job, unit);

	assert(residence->presence != ZERO_ABSENT);
	return residence->slot_first * job->slot_bytes;
}

/* Return: the unit's newest parameters in the pool, or NULL. */
void *residency_param(const struct zero_job *job, uint32_t unit)
{
	if (residence_of(job, unit)->presence != ZERO_RESIDENT)
		return NULL;
	return (char *)job->param->region.base + residency_offset(job, unit);
}

/* Somebody may yet use what is read ahead. */
static bool is_live(const struct zero_job *job)
{
	bool is_ending = job->group.error && !job->group.is_left;

	return job->group.phase == ZERO_GROUP_LIVE && !is_ending && !job->residency->is_stopped &&
	       !job->zero->is_stopping && (!job->across || across_talks(job));
}

/* What could not be had a moment ago is not asked for again and again. */
static bool is_prefetchable(const struct zero_job *job, uint32_t unit)
{
	return !residence_of(job, unit)->has_failed && residency_is_loadable(job, unit);
}

/* Return: false when there is no room, and nothing has changed. */
static bool load_begin(struct zero_job *job, uint32_t unit, uint64_t soonest, bool is_urgent)
{
	struct zero_residence *residence = residence_of(job, unit);
	struct zero_room room;

	assert(residence->presence == ZERO_ABSENT);
	if (!pool_find_room(job, unit, soonest, UINT64_MAX, true, &room))
		return false;
	pool_insert(job, unit, &room);
	residence->is_prefetched = !is_urgent;
	residence->has_failed = false;
	residence->load.target = (char *)job->param->region.base + residency_offset(job, unit);
	fetch_load(&residence->load, is_urgent);
	return true;
}

/* May its newest parameters be brought now? */
bool residency_is_loadable(const struct zero_job *job, uint32_t index)
{
	const struct zero_unit *unit = &job->units[index];

	/* What is not written yet is lent by who writes it; to this node. */
	if (unit->update_count || (job->across && unit->write_count))
		return false;
	return residence_of(job, index)->presence == ZERO_ABSENT && !unit->is_copying &&
	       !quiet_is_on(job);
}

bool residency_say_late(const struct zero_op *op, struct zi_text *ret_text)
{
	const struct zero_job *job = op->rank->job;

	if (!job->residency || !job->across)
		return false;
	return (op->opcode == ZI_OP_UNSHARD || op->opcode == ZERO_OP_WRITE_BEGIN) &&
	       fetches_say_late(job, op->unit, ret_text);
}

/* After its step() a rank's next use is of parameters that are not there before the update. */
bool residency_is_between(const struct zero_job *job, uint32_t rank)
{
	return job->step.phase == ZERO_STEP_STEPPING &&
	       (job->group.gather_masks[ZERO_GATHER_STEP] >> rank & 1);
}

/* ---- demands ---- */

/*
 * residency_demand() - a rank waits for a unit
 * @op: UNSHARD, in its rank's list; the unit is at the rank's step
 *
 * Return: 0 it is here; RESIDENCY_E_WAIT; -ENOSPC it will never be, with figures in op->text.
 */
int residency_demand(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	struct zero_residency *residency = job->residency;
	struct zero_residence *residence = &residency->units[op->unit];
	bool is_first = !op->has_waited;

	if (residence->presence == ZERO_RESIDENT)
		return 0;
	op->has_waited = true;
	if (residence->presence == ZERO_LOADING) {
		residency->late_count += is_first;
		fetch_urge(&residence->load);
		return RESIDENCY_E_WAIT;
	}
	residency->miss_count += is_first;
	if (!residency_is_loadable(job, op->unit) || load_begin(job, op->unit, 0, true))
		return RESIDENCY_E_WAIT;
	return demand_is_hopeless(job) ? demand_refuse(job, op) : RESIDENCY_E_WAIT;
}

static uint32_t leading_rank(const struct zero_job *job)
{
	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (job->group.ranks[i])
			return i;
	return 0;
}

/* The unit of @op is here and becomes this rank's; ->offset_bytes says where. */
void residency_take(struct zero_op *op)
{
	struct zero_rank *rank = op->rank;
	struct zero_job *job = rank->job;
	struct zero_residency *residency = job->residency;
	struct zero_residence *residence = &residency->units[op->unit];

	assert(residence->presence == ZERO_RESIDENT);
	residency->hit_count += !op->has_waited;
	residence->pinned_mask |= 1ull << rank->number;
	residence->is_prefetched = false;
	op->offset_bytes = residency_offset(job, op->unit);
	zi_order_use(&residency->order, op->unit, rank->number == leading_rank(job),
	             &rank->order_place);
}

/* The rank has no use of the unit any more. */
void residency_release(struct zero_rank *rank, uint32_t unit)
{
	struct zero_residence *residence = residence_of(rank->job, unit);

	assert(residence->pinned_mask >> rank->number & 1);
	residence->pinned_mask &= ~(1ull << rank->number);
}

/* The rank has left, and said that it uses nothing any more. (What one that died had pinned stays:
 * its process may be there yet, and the pool goes with the group.) */
void residency_forget(const struct zero_rank *rank)
{
	struct zero_job *job = rank->job;

	for (uint32_t i = 0; job->residency && i < job->layout.unit_count; i++)
		job->residency->units[i].pinned_mask &= ~(1ull << rank->number);
}

/* A rank's step is over. */
void residency_step(struct zero_rank *rank)
{
	struct zero_job *job = rank->job;

	zi_order_step(&job->residency->order, rank->number == leading_rank(job),
	              &rank->order_place);
}

/* It has been discarded. */
void residency_step_discarded(struct zero_rank *rank)
{
	struct zero_job *job = rank->job;

	zi_order_discard(&job->residency->order, rank->number == leading_rank(job),
	                 &rank->order_place);
}

/* ---- prefetch ---- */

/* What is used next and not here, within as many uses as the pool can hold. */
static bool next_wanted(const struct zero_job *job, uint32_t *ret_unit)
{
	const struct zero_residency *residency = job->residency;
	const struct zi_order *order = &residency->order;
	uint64_t slots = 0;

	for (uint32_t ahead = 0; ahead < order->count && slots < residency->slot_count; ahead++)
		for (uint32_t i = 0; i < job->group.world_size; i++) {
			const struct zero_rank *rank = job->group.ranks[i];
			uint32_t unit;

			if (!rank || residency_is_between(job, i))
				continue;
			unit = zi_order_ahead(order, rank->order_place, ahead);
			if (unit == ZI_ORDER_NONE)
				continue;
			if (is_prefetchable(job, unit)) {
				*ret_unit = unit;
				return true;
			}
			slots += residency->units[unit].slot_count;
		}
	return false;
}

/* Reads ahead while the disk has nothing better to do. */
void residency_pump(struct zero_job *job)
{
	struct zero_residency *residency = job->residency;
	uint32_t unit;

	while (is_live(job) && fetches_have_room(&residency->fetches) && next_wanted(job, &unit)) {
		/* It must not cost what is used sooner. */
		uint64_t distance = pool_distance(job, unit);

		if (!load_begin(job, unit, distance + 1, false))
			return;
	}
}

/* Somebody says that the unit is used soon. */
void residency_hint(struct zero_job *job, uint32_t unit)
{
	/* Of what is known, all but the next two uses gives way to a word like that. */
	if (is_live(job) && is_prefetchable(job, unit))
		(void)load_begin(job, unit, 2, false); /* No room: it was a hint. */
}

/* Room, or a unit, has come: who waits is looked at first. */
void residency_changed(struct zero_job *job)
{
	ops_retry(job);
	if (job->residency)
		residency_pump(job);
}

/* ---- loads ---- */

/* Those who wait for this unit, before anyone else can take its place. */
static void tell_waiting(struct zero_job *job, const struct zero_load *load)
{
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		struct zero_rank *rank = job->group.ranks[i];

		if (!rank)
			continue;
		zi_list_for_each_safe(link, &rank->ops) {
			struct zero_op *op = container_of(link, struct zero_op, link);

			if (op->opcode != ZI_OP_UNSHARD || op->unit != load->unit)
				continue;
			if (load->error) {
				op->text = load->text;
				op_complete(op, load->error);
			} else {
				unit_try_unshard(op);
			}
		}
	}
}

/* What nobody wants any more has come. */
void residency_void_came(struct zero_job *job)
{
	struct zero_residency *residency = job->residency;

	assert(residency->void_count > 0);
	if (--residency->void_count)
		return;
	/* Both wait for it, so that nothing is read from an extent that is given back. */
	if (job->write_source && job->pipeline.kind == ZERO_PIPELINE_NONE)
		write_go_on(job);
	step_go_to_commit(job);
}

static void loaded(struct zero_load *load)
{
	struct zero_job *job = load->job;
	struct zero_residence *residence = residence_of(job, load->unit);

	assert(residence->presence == ZERO_LOADING);
	if (residence->is_void) {
		/* It has changed meanwhile. */
		pool_evict(job, load->unit);
		residency_changed(job);
		residency_void_came(job);
		return;
	}
	residence->has_failed = load->error;
	if (load->error)
		pool_evict(job, load->unit);
	else
		residence->presence = ZERO_RESIDENT;
	/* An error that nobody waits for is met again by who needs the unit. */
	tell_waiting(job, load);
	residency_changed(job);
}

/* ---- when parameters change ---- */

/* A step's update of the unit begins: what is here is updated in place, what is on its way comes
 * too late. */
void residency_freeze(struct zero_job *job, uint32_t unit)
{
	struct zero_residence *residence = residence_of(job, unit);

	residence->has_failed = false;
	if (residence->presence != ZERO_LOADING || residence->is_void)
		return;
	if (fetch_drop(&residence->load)) {
		pool_evict(job, unit);
		return;
	}
	residence->is_void = true;
	job->residency->void_count++;
}

/* The unit is about to be written anew, elsewhere. Precondition: nobody pins it. Return: false when
 * something that nobody wants is still being read; write_go_on() follows. */
bool residency_void(struct zero_job *job, uint32_t unit)
{
	residency_freeze(job, unit);
	if (residence_of(job, unit)->presence == ZERO_RESIDENT)
		pool_evict(job, unit);
	return job->residency->void_count == 0;
}

/* Nothing is loaded any more; what is on its way is void when it comes. Return: true when nothing
 * is. */
bool residency_stop(struct zero_job *job)
{
	if (!job->residency)
		return true;
	job->residency->is_stopped = true;
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		residency_freeze(job, i);
	return job->residency->fetches.busy_count == 0;
}
