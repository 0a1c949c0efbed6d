/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One subgroup on its way through the pipeline: where its state and parameters are, what is read
 * and written, and its stages. Floor 5, shard thread; what runs on device threads is in update.c,
 * which subgroup comes next in pipeline.c.
 *
 *   FREE ─▶ READING ─▶ LOADED ─▶ COMPUTING ─▶ WRITING ─▶ FREE
 *              ▲          │
 *              └──────────┘ with a pool: the parameters are not in it
 * With a pool it is known only when the update comes to a subgroup where its parameters are:
 * item_pool.h. What another node updates, and this one stores as well, is pulled from there instead
 * of read.
 */
#include "daemon/zero/step/item.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/grad/grads.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/param/unit.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/item_fail.h"
#include "daemon/zero/step/item_pool.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/queue.h"
#include "daemon/zero/step/update.h"
#include "daemon/zero/step/warm.h"

static uint32_t *stage_count(struct zero_pipeline *pipeline, enum zero_item_stage stage)
{
	switch (stage) {
	case ZERO_ITEM_READING:
		return &pipeline->reading_count;
	case ZERO_ITEM_COMPUTING:
		return &pipeline->computing_count;
	case ZERO_ITEM_WRITING:
		return &pipeline->writing_count;
	case ZERO_ITEM_FREE:
	case ZERO_ITEM_LOADED:
	default:
		return NULL;
	}
}

/* The one function that changes an item's stage. */
static void item_set(struct zero_item *item, enum zero_item_stage stage)
{
	struct zero_pipeline *pipeline = &item->job->pipeline;
	uint32_t *former = stage_count(pipeline, item->stage);
	uint32_t *present = stage_count(pipeline, stage);

	assert(stage == ZERO_ITEM_FREE || stage > item->stage ||
	       (item->stage == ZERO_ITEM_LOADED && stage == ZERO_ITEM_READING));
	if (former)
		(*former)--;
	if (present)
		(*present)++;
	item->stage = stage;
}

/* Is the state in the slot that of the step under way, or of a step that leaves it as it was? */
static bool is_worth_keeping(const struct zero_item *item)
{
	const struct zero_job *job = item->job;

	if (!item->is_staged || item->error || job->pipeline.error)
		return false;
	if (item->stage == ZERO_ITEM_LOADED)
		return (job->step.is_skipped || job->step.is_discarding) && !item->is_state_zero;
	return item->stage == ZERO_ITEM_WRITING && !job->pipeline.is_aborted;
}

void item_finish(struct zero_item *item)
{
	struct zero_job *job = item->job;

	assert(item->move_count == 0);
	if (item->error && !job->pipeline.error) {
		job->pipeline.error = item->error;
		job->pipeline.text = item->text;
	}
	if (is_worth_keeping(item))
		warm_keep(item->subgroup, item->slot);
	else if (item->slot)
		tier_staging_give(job->staging, item->slot);
	item->slot = NULL;
	(void)item_leave_pool(item); /* Who waits for room hears of the end of all. */
	item->is_staged = false;
	item->state = NULL;
	item->param = NULL;
	item->sum = NULL;
	item->subgroup = NULL;
	item_set(item, ZERO_ITEM_FREE);
	assert(job->pipeline.active_count > 0);
	job->pipeline.active_count--;
}

static void item_write(struct zero_item *item);

bool item_is_ready(const struct zero_item *item)
{
	const struct zero_job *job = item->job;

	return job->pipeline.kind != ZERO_PIPELINE_UPDATE ||
	       job->units[item->subgroup->unit].is_ready;
}

static void param_written(struct zero_job *job, uint32_t index);

/* All of it is written, or it failed. */
static void item_end(struct zero_item *item)
{
	struct zero_job *job = item->job;
	struct zero_subgroup *subgroup = item->subgroup;
	bool is_counted = !item->error && job_stores_param(job) && !job->pipeline.is_aborted &&
	                  job->pipeline.kind == ZERO_PIPELINE_UPDATE;

	item_finish(item);
	if (!is_counted)
		return;
	subgroup->is_param_next = true;
	param_written(job, subgroup->unit);
}

/* See item.h. */
void item_moved(struct zero_item *item)
{
	if (item->move_count)
		return;
	if (item->error || item->stage == ZERO_ITEM_WRITING) {
		item_end(item);
		return;
	}
	item_set(item, ZERO_ITEM_LOADED);
	if (item_is_ready(item))
		item_go_on(item);
}

static void param_moved(struct tier_move *move);
static void state_moved(struct tier_move *move);
static void sum_moved(struct tier_move *move);

static void item_move_by(struct zero_item *item, struct tier_move *move, bool is_write,
                         void *buffer, const struct tier_extent *extent, tier_move_fn done)
{
	struct zero_job *job = item->job;
	int r;

	assert(extent->bytes > 0);
	*move = (struct tier_move){
		.member = extent->member,
		.is_write = is_write,
		.offset_bytes = extent->offset_bytes,
		.buffer = buffer,
		.bytes = extent->bytes,
		.flow = job->flow,
		.tally = &job->account->tally,
		.done = done,
	};
	r = tier_move_submit(job->zero->options.engine, move);
	if (r) {
		item_fail_io(item, move, r);
		return;
	}
	item->move_count++;
	job_busy(job);
}

static void item_move(struct zero_item *item, uint32_t plane, bool is_write, void *buffer,
                      const struct tier_extent *extent)
{
	item_move_by(item, &item->moves[plane], is_write, buffer, extent,
	             plane == ZERO_PLANE_PARAM ? param_moved : state_moved);
}

/* A failed write is final for that copy: the same bytes go to another path. */
static bool item_rewrite(struct zero_item *item, const struct tier_move *move)
{
	struct zero_job *job = item->job;
	uint32_t plane =
		move == &item->moves[ZERO_PLANE_PARAM] ? ZERO_PLANE_PARAM : ZERO_PLANE_STATE;
	struct zero_place *place = &item->subgroup->places[plane];

	if (!move->is_write || item->error || job->pipeline.error || job->pipeline.is_aborted)
		return false;
	if (extent_replace(job, place, plane, true))
		return false;
	item_move(item, plane, true, move->buffer, &place->next);
	return true;
}

static void move_end(struct zero_item *item, struct tier_move *move)
{
	struct zero_job *job = item->job;
	struct zero *zero = job->zero;

	pipeline_tick(job);
	job_unbusy(job);
	assert(item->move_count > 0);
	item->move_count--;
	if (!move->result && move->is_write)
		job->pipeline.write_bytes += move->bytes;
	else if (!move->result)
		job->pipeline.read_bytes += move->bytes;
	else if (!item_rewrite(item, move))
		item_fail_io(item, move, move->result);
	item_moved(item);
	pipeline_pump(job);
	zero_drain(zero);
}

static void param_moved(struct tier_move *move)
{
	move_end(container_of(move, struct zero_item, moves[ZERO_PLANE_PARAM]), move);
}

static void state_moved(struct tier_move *move)
{
	move_end(container_of(move, struct zero_item, moves[ZERO_PLANE_STATE]), move);
}

static void sum_moved(struct tier_move *move)
{
	move_end(container_of(move, struct zero_item, sum_move), move);
}

/* ---- computing ---- */

/* The unit's parameters of this step are in the store, should somebody want them from there. */
static void param_written(struct zero_job *job, uint32_t index)
{
	struct zero_unit *unit = &job->units[index];

	assert(unit->write_count > 0);
	params_stored(job);
	if (--unit->write_count)
		return;
	unit->is_param_next = true;
	residency_changed(job);
	params_stored(job);
}

static void item_computed(struct dev_task *task)
{
	struct zero_item *item = container_of(task, struct zero_item, task);
	struct zero_job *job = item->job;
	struct zero *zero = job->zero;
	bool was_pooled = item->is_pooled;
	bool is_room;

	pipeline_tick(job);
	job_unbusy(job);
	is_room = item_leave_pool(item);
	if (was_pooled)
		item->param = item_slot_param(item); /* update_run() has copied them there. */
	/* Nothing new begins, and units of an aborted step are nobody's. */
	if (item->error || job->pipeline.error || job->pipeline.is_aborted) {
		item_finish(item);
	} else {
		item_write(item);
	}
	if (is_room)
		residency_changed(job);
	pipeline_pump(job);
	zero_drain(zero);
}

static void item_compute(struct zero_item *item)
{
	static const dev_task_fn runs[] = {
		[ZERO_PIPELINE_LOAD] = load_run,   [ZERO_PIPELINE_UPDATE] = update_run,
		[ZERO_PIPELINE_WRITE] = hash_run,  [ZERO_PIPELINE_KEEP] = hash_run,
		[ZERO_PIPELINE_STORE] = store_run,
	};
	struct zero_job *job = item->job;
	bool is_zeroing = job_stores_param(job) && job->pipeline.kind == ZERO_PIPELINE_WRITE;

	item_set(item, ZERO_ITEM_COMPUTING);
	item->task = (struct dev_task){
		.run = is_zeroing      ? store_run
		       : item->is_copy ? hash_run
		                       : runs[job->pipeline.kind],
		.done = item_computed,
		.loop = job->zero->options.loop,
	};
	job_busy(job);
	dev_submit(job->device, &item->task);
}

/* The sum of gradients, as item_has_param(): it is there once the unit is ready. */
static bool sum_is_here(struct zero_item *item)
{
	const struct zero_job *job = item->job;
	const struct zero_subgroup *subgroup = item->subgroup;
	uint64_t param_bytes = job_stores_param(job) ? job_subgroup_param_bytes(job, subgroup) : 0;

	if (item->sum || job->pipeline.kind != ZERO_PIPELINE_UPDATE || !job->step.is_pass1)
		return true;
	if (!subgroup->is_sum_stored) {
		item->sum = grad_sum_at(job, subgroup);
		return true;
	}
	item->sum = (char *)item_slot_param(item) + param_bytes;
	item->is_sum_read = true;
	return false;
}

/* What is wanted when the item is to be computed, and not before. */
static void item_fetch(struct zero_item *item, bool has_param, bool has_sum)
{
	if (!has_param)
		item_move(item, ZERO_PLANE_PARAM, false, item->param,
		          &item->subgroup->places[ZERO_PLANE_PARAM].extent);
	if (!has_sum)
		item_move_by(item, &item->sum_move, false, item->sum,
		             &item->subgroup->sum_place.next, sum_moved);
}

/* An item is LOADED and may be computed. */
void item_go_on(struct zero_item *item)
{
	bool has_param = item->is_copy || item_has_param(item);
	bool has_sum = item->is_copy || sum_is_here(item);

	if (has_param && has_sum) {
		item_compute(item);
		return;
	}
	item_set(item, ZERO_ITEM_READING);
	item_fetch(item, has_param, has_sum);
	item_moved(item);
}

/* To where it was given room, or elsewhere if that path takes nothing more since. */
static void item_put(struct zero_item *item, uint32_t plane, void *buffer)
{
	struct zero_job *job = item->job;
	struct zero_place *place = &item->subgroup->places[plane];

	if (tier_member_is_leaving(place->next.member) &&
	    extent_replace(job, place, plane, false) && place->next.member->error)
		item_fail_room(item, place->next.member);
	else
		item_move(item, plane, true, buffer, &place->next);
}

static void item_write(struct zero_item *item)
{
	const struct zero_place *places = item->subgroup->places;
	enum zero_pipeline_kind kind = item->job->pipeline.kind;

	item_set(item, ZERO_ITEM_WRITING);
	item->move_count++; /* Who hears of it may borrow it (item_lend.h): it is not over yet. */
	if (kind == ZERO_PIPELINE_UPDATE) {
		item->subgroup->is_update_due = false;
		unit_updated(item->job, item->subgroup->unit);
		if (!item->is_copy)
			params_updated(item->job, item->subgroup);
	}
	if (kind != ZERO_PIPELINE_LOAD) {
		if (places[ZERO_PLANE_PARAM].next.bytes && item->param)
			item_put(item, ZERO_PLANE_PARAM, item->param);
		if (places[ZERO_PLANE_STATE].next.bytes && item->state)
			item_put(item, ZERO_PLANE_STATE, item->state);
	}
	item->move_count--;
	item_moved(item);
}

/* ---- reading ---- */

static void item_read(struct zero_item *item)
{
	const struct zero_job *job = item->job;
	const struct zero_subgroup *subgroup = item->subgroup;
	const struct tier_extent *param = &subgroup->places[ZERO_PLANE_PARAM].extent;
	const struct tier_extent *state = &subgroup->places[ZERO_PLANE_STATE].extent;
	bool is_load = job->pipeline.kind == ZERO_PIPELINE_LOAD;

	item_set(item, ZERO_ITEM_READING);
	if (is_load && item->param && param->bytes)
		item_move(item, ZERO_PLANE_PARAM, false, item->param, param);
	else if (item_is_ready(item))
		item_fetch(item, item_has_param(item), sum_is_here(item));
	if (item->state && !item->is_state_zero && !item->is_warm && (is_load || item->is_staged))
		item_move(item, ZERO_PLANE_STATE, false, item->state, state);
	item_moved(item);
}

static void copy_came(struct fetch_far *far)
{
	struct zero_item *item = container_of(far, struct zero_item, far);
	struct zero_job *job = item->job;

	job_busy(job); /* Which may end with it otherwise: who calls this settles it. */
	pipeline_tick(job);
	assert(item->move_count > 0);
	item->move_count--;
	if (far->error) {
		item->error = far->error;
		item->text = far->text;
	} else {
		params_copied(job, item->subgroup);
	}
	item_moved(item);
	pipeline_pump(job);
	job_unbusy(job);
}

/* It is there to be pulled. */
static void item_pull(struct zero_item *item)
{
	item_set(item, ZERO_ITEM_READING);
	item->far = (struct fetch_far){ .subgroup = item->subgroup,
		                        .target = item->param,
		                        .done = copy_came };
	item->move_count++;
	fetch_far_begin(&item->far);
}

/* Without a pool they stay where they are; with one a WRITE or STORE makes them in staging, and an
 * update looks for them when it comes to it. NULL also: param_write_end() has stored them, and a
 * WRITE is about the state alone. */
static void *param_place(const struct zero_item *item)
{
	const struct zero_job *job = item->job;

	if (!job_stores_param(job))
		return job_subgroup_param(job, item->subgroup);
	if (job->pipeline.kind == ZERO_PIPELINE_STORE ||
	    (job->pipeline.kind == ZERO_PIPELINE_WRITE &&
	     !job->units[item->subgroup->unit].is_param_next))
		return item->slot;
	return NULL;
}

/* False when it must wait for a staging slot. */
bool item_begin(struct zero_item *item, struct zero_subgroup *subgroup)
{
	struct zero_job *job = item->job;
	bool is_update = job->pipeline.kind == ZERO_PIPELINE_UPDATE;
	bool is_write = job->pipeline.kind == ZERO_PIPELINE_WRITE ||
	                job->pipeline.kind == ZERO_PIPELINE_STORE;
	void *warm = is_update ? warm_claim(subgroup) : NULL;
	void *slot = warm;

	bool is_copy = is_update && job_keeps_copy(subgroup);
	bool has_sum = is_update && job->step.is_pass1 && subgroup->is_sum_stored && !is_copy;

	if (!slot && ((is_update && !subgroup->memory) || has_sum ||
	              (job_stores_param(job) && (is_update || is_write)))) {
		slot = warm_slot(job);
		if (!slot)
			return false;
	}
	item->subgroup = subgroup;
	item->slot = slot;
	item->is_copy = is_copy;
	item->param = is_copy ? slot : param_place(item);
	item->is_pooled = false;
	item->is_param_read = false;
	item->sum = NULL;
	item->is_sum_read = false;
	item->is_staged = is_update && !subgroup->memory && !is_copy;
	item->is_warm = warm != NULL;
	item->state = item->is_staged ? slot : subgroup->memory;
	if (is_write &&
	    (!subgroup->places[ZERO_PLANE_STATE].next.bytes || state_is_stored(subgroup)))
		item->state = NULL;
	item->is_state_zero =
		subgroup->is_reset || !subgroup->places[ZERO_PLANE_STATE].extent.bytes;
	item->error = 0;
	queue_take(job); /* Before anything of it can end. */
	job->pipeline.active_count++;
	if (is_copy)
		item_pull(item);
	else
		item_read(item);
	return true;
}
