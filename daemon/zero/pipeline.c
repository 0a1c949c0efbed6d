/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline: every subgroup in the queue's order (queue.c), read → compute → write, as many at
 * once as there are items and staging slots. Floor 5, shard thread; what runs on device threads is
 * in update.c.
 *
 *   FREE ─▶ READING ─▶ LOADED ─▶ COMPUTING ─▶ WRITING ─▶ FREE
 *                        └── gave way to what is ready ───▶
 * A stage that has nothing to do is passed through. LOADED waits only while its unit is not ready:
 * state is read ahead during forward and backward, and computed when the step's norm is known; in an
 * early update when nobody uses the unit any more, which may come in another order than foretold.
 * Then what was read ahead gives its slot to what is ready, and is read once more.
 *
 * Resident state needs no staging slot and is not read; parameters are written from where they lie,
 * since nothing changes them before the commit. After the first error nothing new begins, and the
 * end is told when nothing is in flight: then, and only then, may space and memory be given back.
 */
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/internal.h"

/* Every moment of an update goes to one cause: computing, else reading, else writing. */
static void tick(struct zero_job *job)
{
	struct zero_pipeline *pipeline = &job->pipeline;
	uint64_t now_ns = zi_clock_now_ns();
	uint64_t elapsed_ns = now_ns - pipeline->ticked_ns;

	pipeline->ticked_ns = now_ns;
	if (!pipeline->is_armed)
		return;
	if (pipeline->computing_count)
		pipeline->cpu_ns += elapsed_ns;
	else if (pipeline->reading_count)
		pipeline->io_read_ns += elapsed_ns;
	else if (pipeline->writing_count)
		pipeline->io_write_ns += elapsed_ns;
	else
		pipeline->cpu_ns += elapsed_ns;
}

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

	assert(stage == ZERO_ITEM_FREE || stage > item->stage);
	if (former)
		(*former)--;
	if (present)
		(*present)++;
	item->stage = stage;
}

static void item_finish(struct zero_item *item)
{
	struct zero_job *job = item->job;

	assert(item->move_count == 0);
	if (item->error && !job->pipeline.error) {
		job->pipeline.error = item->error;
		job->pipeline.text = item->text;
	}
	if (item->is_staged)
		tier_staging_give(job->staging, item->state);
	item->is_staged = false;
	item->state = NULL;
	item->subgroup = NULL;
	item_set(item, ZERO_ITEM_FREE);
	assert(job->pipeline.active_count > 0);
	job->pipeline.active_count--;
}

static void item_compute(struct zero_item *item);
static void item_write(struct zero_item *item);
static void pump(struct zero_job *job);

static void item_fail_io(struct zero_item *item, const struct tier_move *move, int error)
{
	const struct zero_job *job = item->job;
	const struct zero_subgroup *subgroup = item->subgroup;

	if (item->error)
		return;
	item->error = error;
	zi_text_set(&item->text,
	            "job '%s': %s %s of unit '%.60s', subgroup %u, at offset %llu of %s: %s",
	            job->name, move->is_write ? "writing" : "reading",
	            move == &item->moves[ZERO_PLANE_PARAM] ? "parameters" : "optimizer state",
	            job->layout.units[subgroup->unit].name, subgroup->index,
	            (unsigned long long)move->offset_bytes, tier_member_path(move->member),
	            zi_err_name(error));
}

static bool is_ready(const struct zero_item *item)
{
	const struct zero_job *job = item->job;

	return job->pipeline.kind != ZERO_PIPELINE_UPDATE ||
	       job->units[item->subgroup->unit].is_ready;
}

static void item_moved(struct zero_item *item)
{
	if (item->move_count)
		return;
	if (item->error || item->stage == ZERO_ITEM_WRITING) {
		item_finish(item);
		return;
	}
	item_set(item, ZERO_ITEM_LOADED);
	if (is_ready(item))
		item_compute(item);
}

static void move_end(struct zero_item *item, struct tier_move *move)
{
	struct zero_job *job = item->job;
	struct zero *zero = job->zero;

	tick(job);
	job_unbusy(job);
	assert(item->move_count > 0);
	item->move_count--;
	if (move->result)
		item_fail_io(item, move, move->result);
	else if (move->is_write)
		job->pipeline.write_bytes += move->bytes;
	else
		job->pipeline.read_bytes += move->bytes;
	item_moved(item);
	pump(job);
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

static void item_move(struct zero_item *item, uint32_t plane, bool is_write, void *buffer,
                      const struct tier_extent *extent)
{
	struct zero_job *job = item->job;
	struct tier_move *move = &item->moves[plane];
	int r;

	assert(extent->bytes > 0);
	*move = (struct tier_move){
		.member = extent->member,
		.is_write = is_write,
		.offset_bytes = extent->offset_bytes,
		.buffer = buffer,
		.bytes = extent->bytes,
		.done = plane == ZERO_PLANE_PARAM ? param_moved : state_moved,
	};
	r = tier_move_submit(job->zero->options.engine, move);
	if (r) {
		item_fail_io(item, move, r);
		return;
	}
	item->move_count++;
	job_busy(job);
}

/* ---- computing ---- */

static void unit_updated(struct zero_job *job, uint32_t index)
{
	struct zero_unit *unit = &job->units[index];

	assert(unit->update_count > 0);
	if (--unit->update_count)
		return;
	/* Parameters are there, and gradients are no longer needed. */
	unit->held_mask = 0;
	ops_retry(job);
}

static void item_computed(struct dev_task *task)
{
	struct zero_item *item = container_of(task, struct zero_item, task);
	struct zero_job *job = item->job;
	struct zero *zero = job->zero;

	tick(job);
	job_unbusy(job);
	/* Nothing new begins, and units of an aborted step are nobody's. */
	if (item->error || job->pipeline.error || job->pipeline.is_aborted) {
		item_finish(item);
	} else {
		if (job->pipeline.kind == ZERO_PIPELINE_UPDATE)
			unit_updated(job, item->subgroup->unit);
		item_write(item);
	}
	pump(job);
	zero_drain(zero);
}

static void item_compute(struct zero_item *item)
{
	static const dev_task_fn runs[] = {
		[ZERO_PIPELINE_LOAD] = load_run,
		[ZERO_PIPELINE_UPDATE] = update_run,
		[ZERO_PIPELINE_WRITE] = hash_run,
		[ZERO_PIPELINE_KEEP] = keep_run,
	};
	struct zero_job *job = item->job;

	item_set(item, ZERO_ITEM_COMPUTING);
	item->task = (struct dev_task){
		.run = runs[job->pipeline.kind],
		.done = item_computed,
		.loop = job->zero->options.loop,
	};
	job_busy(job);
	dev_submit(job->device, &item->task);
}

static void item_write(struct zero_item *item)
{
	const struct zero_job *job = item->job;
	const struct zero_subgroup *subgroup = item->subgroup;
	enum zero_pipeline_kind kind = job->pipeline.kind;

	item_set(item, ZERO_ITEM_WRITING);
	if (kind == ZERO_PIPELINE_KEEP || (job_is_nvme(job) && kind != ZERO_PIPELINE_LOAD)) {
		item_move(item, ZERO_PLANE_PARAM, true, item_param(item),
		          &subgroup->places[ZERO_PLANE_PARAM].next);
		if (kind != ZERO_PIPELINE_WRITE)
			item_move(item, ZERO_PLANE_STATE, true, item->state,
			          &subgroup->places[ZERO_PLANE_STATE].next);
	}
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
	if (is_load && param->bytes)
		item_move(item, ZERO_PLANE_PARAM, false, item_param(item), param);
	if (item->state && !item->is_state_zero && (is_load || item->is_staged))
		item_move(item, ZERO_PLANE_STATE, false, item->state, state);
	item_moved(item);
}

/* False when it must wait for a staging slot. */
static bool item_begin(struct zero_item *item, struct zero_subgroup *subgroup)
{
	struct zero_job *job = item->job;
	bool is_update = job->pipeline.kind == ZERO_PIPELINE_UPDATE;
	void *slot = NULL;

	if (is_update && !subgroup->memory) {
		slot = tier_staging_take(job->staging);
		if (!slot)
			return false;
	}
	item->subgroup = subgroup;
	item->is_staged = slot != NULL;
	item->state = slot ? slot : subgroup->memory;
	if (job->pipeline.kind == ZERO_PIPELINE_WRITE)
		item->state = NULL;
	item->is_state_zero =
		subgroup->is_reset || !subgroup->places[ZERO_PLANE_STATE].extent.bytes;
	item->error = 0;
	queue_take(job); /* Before anything of it can end. */
	job->pipeline.active_count++;
	item_read(item);
	return true;
}

static struct zero_item *free_item(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->item_count; i++)
		if (job->items[i].stage == ZERO_ITEM_FREE)
			return &job->items[i];
	return NULL;
}

static bool is_stopped(const struct zero_job *job)
{
	return job->pipeline.error || job->pipeline.is_aborted ||
	       job->queue.begun_count == job->queue.count;
}

/* Items that wait for an update which will not come. */
static void drop_loaded(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->item_count; i++)
		if (job->items[i].stage == ZERO_ITEM_LOADED)
			item_finish(&job->items[i]);
}

static void pipeline_end(struct zero_job *job)
{
	struct zero_pipeline *pipeline = &job->pipeline;
	enum zero_pipeline_kind kind = pipeline->kind;
	struct zi_text text = pipeline->text;

	assert(!pipeline->reading_count && !pipeline->computing_count && !pipeline->writing_count);
	pipeline->kind = ZERO_PIPELINE_NONE;
	job->read_bytes += pipeline->read_bytes;
	job->write_bytes += pipeline->write_bytes;
	if (pipeline->is_aborted)
		step_drained(job);
	else if (kind == ZERO_PIPELINE_LOAD)
		materialize_loaded(job, pipeline->error, &text);
	else if (kind == ZERO_PIPELINE_UPDATE)
		step_updated(job, pipeline->error, &text);
	else if (kind == ZERO_PIPELINE_KEEP)
		snapshot_written(job, pipeline->error, &text);
	else
		commit_written(job, pipeline->error, &text);
}

/* What was read ahead, and is wanted last, gives way. Return: true when there was such an item. */
static bool give_way(struct zero_job *job)
{
	struct zero_item *last = NULL;

	for (uint32_t i = 0; i < job->item_count; i++) {
		struct zero_item *item = &job->items[i];

		if (item->stage != ZERO_ITEM_LOADED)
			continue;
		assert(!is_ready(item));
		if (!last ||
		    job->units[item->subgroup->unit].place > job->units[last->subgroup->unit].place)
			last = item;
	}
	if (!last)
		return false;
	queue_return(job, last->subgroup);
	item_finish(last);
	return true;
}

/* Return: false when nothing can begin now. */
static bool begin_next(struct zero_job *job)
{
	bool is_ready = false;
	struct zero_subgroup *subgroup = queue_peek(job, &is_ready);
	struct zero_item *item = free_item(job);

	if (!subgroup)
		return false;
	if (item && item_begin(item, subgroup))
		return true;
	return is_ready && give_way(job);
}

/* Begins what can begin; ends the pipeline when all has ended. The job may be gone afterwards. */
static void pump(struct zero_job *job)
{
	struct zero_pipeline *pipeline = &job->pipeline;

	/* Each turn begins one, or makes room for one that is ready: bounded by both. */
	while (!is_stopped(job) && begin_next(job))
		;
	if (job->zero->options.engine)
		tier_move_kick(job->zero->options.engine);
	if (pipeline->error || pipeline->is_aborted)
		drop_loaded(job);
	if (!is_stopped(job) || pipeline->active_count)
		return;
	if (pipeline->is_armed || pipeline->error || pipeline->is_aborted)
		pipeline_end(job);
}

/*
 * LOAD, WRITE and KEEP run to their end; UPDATE reads ahead, computes what pipeline_ready() names,
 * and everything from pipeline_arm() on. The end is told by materialize_loaded(), commit_written(),
 * snapshot_written(), step_updated(), possibly before this returns.
 */
void pipeline_start(struct zero_job *job, enum zero_pipeline_kind kind)
{
	assert(job->pipeline.kind == ZERO_PIPELINE_NONE);
	assert(job->subgroup_count > 0);
	job->pipeline = (struct zero_pipeline){
		.kind = kind,
		.is_armed = kind != ZERO_PIPELINE_UPDATE,
		.ticked_ns = zi_clock_now_ns(),
	};
	queue_fill(job, kind, job->step.is_early);
	pump(job);
}

static void unit_ready(struct zero_job *job, uint32_t index)
{
	struct zero_unit *unit = &job->units[index];

	assert(!unit->is_ready);
	unit->is_ready = true;
	unit->update_count = unit->subgroup_count;
}

static void compute_loaded(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->item_count; i++)
		if (job->items[i].stage == ZERO_ITEM_LOADED && is_ready(&job->items[i]))
			item_compute(&job->items[i]);
}

/* Gradients of @unit are complete, and nobody uses its parameters any more. The job may be gone
 * afterwards, if an error was met. */
void pipeline_ready(struct zero_job *job, uint32_t unit)
{
	assert(job->pipeline.kind == ZERO_PIPELINE_UPDATE);
	assert(job->step.is_early && !job->pipeline.is_armed);
	unit_ready(job, unit);
	queue_ready(job, unit);
	compute_loaded(job);
	pump(job);
}

/* Every unit is ready, and the update ends when it has ended. */
void pipeline_arm(struct zero_job *job)
{
	assert(job->pipeline.kind == ZERO_PIPELINE_UPDATE);
	assert(!job->pipeline.is_armed);
	tick(job);
	job->pipeline.is_armed = true;
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		if (!job->units[i].is_ready)
			unit_ready(job, i);
	queue_ready_all(job);
	compute_loaded(job);
	pump(job);
}

/* Nothing new begins, what is in flight is drained. Return: true when nothing is. */
bool pipeline_abort(struct zero_job *job)
{
	if (job->pipeline.kind == ZERO_PIPELINE_NONE)
		return true;
	job->pipeline.is_aborted = true;
	drop_loaded(job);
	if (job->pipeline.active_count)
		return false;
	job->pipeline.kind = ZERO_PIPELINE_NONE;
	job->read_bytes += job->pipeline.read_bytes;
	return true;
}
