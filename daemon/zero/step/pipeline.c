/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline: every subgroup in the queue's order (queue.c), read → compute → write, as many at
 * once as there are items and staging slots. Floor 5, shard thread; what happens to one of them is
 * in item.c, what runs on device threads in update.c.
 *
 *   FREE ─▶ READING ─▶ LOADED ─▶ COMPUTING ─▶ WRITING ─▶ FREE
 *                        └── gave way to what is ready ───▶
 * A stage that has nothing to do is passed through. LOADED waits only while its unit is not ready:
 * state is read ahead during forward and backward, and computed when the step's norm is known; in
 * an early update when nobody uses the unit any more, which may come in another order than
 * foretold. Then what was read ahead gives its slot to what is ready, and is read once more.
 *
 * Resident state needs no staging slot and is not read. Written is what has a new extent:
 * parameters and resident state from where they lie, since nothing changes them before the step
 * ends. After the first error nothing new begins, and the end is told when nothing is in flight:
 * then, and only then, may space and memory be given back.
 */
#include "daemon/zero/step/pipeline.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/param/write_end.h"
#include "daemon/zero/snapshot/snapshot_make.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/item.h"
#include "daemon/zero/step/queue.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/step_end.h"

/* Every moment of an update goes to one cause: computing, else reading, else writing. */
void pipeline_tick(struct zero_job *job)
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
	       (job->queue.begun_count == job->queue.count && !job->pipeline.awaited_count);
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
	else if (kind == ZERO_PIPELINE_STORE)
		write_stored(job, pipeline->error, &text);
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
		assert(!item_is_ready(item));
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
void pipeline_pump(struct zero_job *job)
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
 * LOAD, WRITE, KEEP and STORE run to their end; UPDATE reads ahead, computes what pipeline_ready()
 * names, and everything from pipeline_arm() on. A node may hold nothing. The
 * end is told by materialize_loaded(), commit_written(), snapshot_written(), write_stored(),
 * step_updated(), possibly before this returns.
 */
void pipeline_start(struct zero_job *job, enum zero_pipeline_kind kind)
{
	assert(job->pipeline.kind == ZERO_PIPELINE_NONE);
	job->pipeline = (struct zero_pipeline){
		.kind = kind,
		.is_armed = kind != ZERO_PIPELINE_UPDATE,
		.ticked_ns = zi_clock_now_ns(),
	};
	queue_fill(job, kind, job->step.is_early);
	pipeline_pump(job);
}

static void unit_ready(struct zero_job *job, uint32_t index)
{
	struct zero_unit *unit = &job->units[index];

	assert(!unit->is_ready);
	unit->is_ready = true;
	if (unit->is_frozen)
		return;
	unit->update_count = unit->here_count;
	unit->has_part_waiting = false;
	for (uint32_t i = 0; i < unit->subgroup_count; i++)
		job->subgroups[unit->subgroup_first + i].is_update_due = true;
	if (!job->residency)
		return;
	if (job_stores_param(job))
		unit->write_count = unit->here_count;
	if (job->across)
		(void)residency_void(job, index); /* Nobody has it, and nothing is on its way. */
	else
		residency_freeze(job, index);
}

static void compute_loaded(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->item_count; i++)
		if (job->items[i].stage == ZERO_ITEM_LOADED && item_is_ready(&job->items[i]))
			item_go_on(&job->items[i]);
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
	pipeline_pump(job);
}

/* Every unit is ready, and the update ends when it has ended. */
void pipeline_arm(struct zero_job *job)
{
	assert(job->pipeline.kind == ZERO_PIPELINE_UPDATE);
	assert(!job->pipeline.is_armed);
	pipeline_tick(job);
	job->pipeline.is_armed = true;
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		if (!job->units[i].is_ready)
			unit_ready(job, i);
	queue_ready_all(job);
	params_update(job);
	/* Ranks that have called step() wait for units that an early update has finished, and, over
	 * nodes, for units of which nothing is updated here. Parameters that are written already
	 * are loaded: the next forward's come first. */
	residency_changed(job);
	compute_loaded(job);
	pipeline_pump(job);
}

void pipeline_copy(struct zero_job *job, struct zero_subgroup *subgroup)
{
	assert(job->pipeline.kind == ZERO_PIPELINE_UPDATE && job->pipeline.is_armed);
	assert(job->pipeline.awaited_count > 0);
	job->pipeline.awaited_count--;
	queue_add(job, subgroup);
}

void pipeline_fail(struct zero_job *job, int error, const struct zi_text *text)
{
	if (job->pipeline.kind != ZERO_PIPELINE_UPDATE || !job->pipeline.awaited_count)
		return;
	if (!job->pipeline.error) {
		job->pipeline.error = error;
		job->pipeline.text = *text;
	}
	pipeline_pump(job);
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
