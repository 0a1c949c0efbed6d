/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit's parameters into memory: where they will be used, from wherever they are. Floor 5, shard
 * thread, but for copy_run().
 *
 * A load goes out subgroup by subgroup, ZERO_FETCH_MAX at a time over the whole job, urgent ones
 * (somebody waits) first. It ends when all of it has come back, with the first error. What is on
 * its way cannot be called back: extents that it reads from are not given back before it has come.
 */
#include "daemon/zero/param/fetch.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/param/quiet.h"
#include "daemon/zero/step/item.h"
#include "daemon/zero/step/item_lend.h"

void fetches_init(struct zero_fetches *fetches)
{
	*fetches = (struct zero_fetches){ 0 };
	zi_list_init(&fetches->urgent);
	zi_list_init(&fetches->waiting);
}

/* Nothing is handed out to it that could go out now. */
bool fetches_have_room(const struct zero_fetches *fetches)
{
	return fetches->busy_count < ZERO_FETCH_MAX && zi_list_is_empty(&fetches->urgent) &&
	       zi_list_is_empty(&fetches->waiting);
}

bool fetches_are_idle(const struct zero_fetches *fetches)
{
	return !fetches->busy_count && zi_list_is_empty(&fetches->urgent) &&
	       zi_list_is_empty(&fetches->waiting);
}

bool fetches_say_late(const struct zero_job *job, uint32_t unit, struct zi_text *ret_text)
{
	for (uint32_t i = 0; job->across && i < ZERO_FETCH_MAX; i++) {
		const struct zero_fetch *fetch = &job->residency->fetches.fetches[i];

		if (!fetch->load || job_keeps(fetch->subgroup, ZERO_PLANE_PARAM) ||
		    (unit != UINT32_MAX && fetch->load->unit != unit))
			continue;
		zi_text_set(ret_text, "parameters of unit '%.60s' have not come from %s",
		            job->layout.units[fetch->load->unit].name,
		            across_name(job, params_source(job, fetch->subgroup)).chars);
		return true;
	}
	return false;
}

static void fetches_pump(struct zero_job *job);

/* One subgroup has come, or cannot. */
static void fetch_end(struct zero_fetch *fetch, int error, const struct zi_text *text)
{
	struct zero_load *load = fetch->load;
	struct zero_job *job = load->job;
	struct zero_fetches *fetches = &job->residency->fetches;

	if (error && !load->error) {
		load->error = error;
		load->text = *text;
	}
	fetch->load = NULL;
	assert(fetches->busy_count > 0);
	assert(load->fetch_count > 0);
	fetches->busy_count--;
	load->fetch_count--;
	fetches_pump(job);
	if (!load->fetch_count && !zi_list_is_linked(&load->link))
		load->done(load);
	quiet_look(job);
}

/* ---- where it comes from ---- */

static void from_store(struct stored *stored)
{
	struct zero_fetch *fetch = container_of(stored, struct zero_fetch, stored);

	fetch->load->job->residency->fetches.read_bytes += stored->read_bytes;
	fetch_end(fetch, stored->error, &stored->text);
}

static void from_afar(struct fetch_far *far)
{
	struct zero_fetch *fetch = container_of(far, struct zero_fetch, far);
	struct zero_job *job = fetch->load->job;

	if (!far->error)
		job->residency->fetches.pulled_bytes +=
			job_subgroup_param_bytes(job, fetch->subgroup);
	fetch_end(fetch, far->error, &far->text);
}

static void copy_run(struct dev_task *task)
{
	struct zero_fetch *fetch = container_of(task, struct zero_fetch, task);
	const struct zero_job *job = fetch->load->job;

	memcpy(fetch->target, fetch->source, job_subgroup_param_bytes(job, fetch->subgroup));
}

static void from_shard(struct dev_task *task)
{
	struct zero_fetch *fetch = container_of(task, struct zero_fetch, task);
	struct zero_job *job = fetch->load->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	fetch_end(fetch, 0, NULL);
	job_settle(job); /* May free the job. */
	zero_drain(zero);
}

/* The slot first: what the item ends may ask where the load is. */
static void from_slot(struct dev_task *task)
{
	struct zero_fetch *fetch = container_of(task, struct zero_fetch, task);
	struct zero_job *job = fetch->load->job;
	struct zero *zero = job->zero;

	item_give_back(fetch->item);
	job_unbusy(job);
	fetch_end(fetch, 0, NULL);
	job_settle(job); /* May free the job. */
	zero_drain(zero);
}

static void fetch_copy(struct zero_fetch *fetch, const void *source, dev_task_fn done)
{
	struct zero_job *job = fetch->load->job;

	fetch->source = source;
	fetch->task =
		(struct dev_task){ .run = copy_run, .done = done, .loop = job->zero->options.loop };
	job_busy(job);
	dev_submit(job->device, &fetch->task);
}

/* From the store. Of a unit that is being written what is in no slot any more is there, unless its
 * writing failed. */
static void fetch_stored(struct zero_fetch *fetch)
{
	const struct zero_job *job = fetch->load->job;
	const struct zero_pipeline *pipeline = &job->pipeline;

	fetch->stored.subgroup = fetch->subgroup;
	fetch->stored.target = fetch->target;
	fetch->stored.done = from_store;
	if (job->units[fetch->load->unit].write_count && pipeline->error)
		stored_fail(&fetch->stored, pipeline->error, &pipeline->text);
	else
		stored_read(&fetch->stored);
}

/* The one place that knows where parameters are. */
static void fetch_from(struct zero_fetch *fetch)
{
	struct zero_job *job = fetch->load->job;

	if (!job_keeps(fetch->subgroup, ZERO_PLANE_PARAM)) {
		fetch->far = (struct fetch_far){ .subgroup = fetch->subgroup,
			                         .target = fetch->target,
			                         .done = from_afar };
		fetch_far_begin(&fetch->far);
	} else if (job_stores_param(job)) {
		fetch->item = item_lend(fetch->subgroup);
		if (fetch->item)
			fetch_copy(fetch, fetch->item->param, from_slot);
		else
			fetch_stored(fetch);
	} else {
		assert(job->shard);
		fetch_copy(fetch, job_subgroup_param(job, fetch->subgroup), from_shard);
	}
}

static void fetch_begin(struct zero_fetch *fetch, struct zero_load *load)
{
	struct zero_job *job = load->job;
	const struct zero_unit *unit = &job->units[load->unit];
	struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + load->next_index];

	fetch->load = load;
	fetch->subgroup = subgroup;
	fetch->target = (char *)load->target + job_subgroup_param_begin(job, subgroup);
	load->next_index++;
	load->fetch_count++;
	job->residency->fetches.busy_count++;
	fetch_from(fetch);
}

/* ---- loads ---- */

static struct zero_fetch *free_fetch(struct zero_fetches *fetches)
{
	for (uint32_t i = 0; i < ZERO_FETCH_MAX; i++)
		if (!fetches->fetches[i].load)
			return &fetches->fetches[i];
	return NULL;
}

static struct zero_load *first_load(const struct zero_fetches *fetches)
{
	const struct zi_list *list =
		zi_list_is_empty(&fetches->urgent) ? &fetches->waiting : &fetches->urgent;

	return zi_list_is_empty(list) ? NULL : container_of(list->next, struct zero_load, link);
}

/* Hands out what fits. */
static void fetches_pump(struct zero_job *job)
{
	struct zero_fetches *fetches = &job->residency->fetches;
	struct zero_fetch *fetch;
	struct zero_load *load;

	while ((load = first_load(fetches)) && (fetch = free_fetch(fetches))) {
		if (load->next_index + 1 == job->units[load->unit].subgroup_count)
			zi_list_remove(&load->link);
		fetch_begin(fetch, load);
	}
	if (job->zero->options.engine)
		tier_move_kick(job->zero->options.engine);
}

/*
 * fetch_load() - bring a unit
 * @load: ->job, ->unit, ->target and ->done are set, and stay until it is done
 *
 * `done` runs once, never from here; the unit's extents must not be released before.
 */
void fetch_load(struct zero_load *load, bool is_urgent)
{
	struct zero_fetches *fetches = &load->job->residency->fetches;

	load->error = 0;
	load->next_index = 0;
	load->fetch_count = 0;
	load->is_urgent = is_urgent;
	zi_list_push_back(is_urgent ? &fetches->urgent : &fetches->waiting, &load->link);
	fetches_pump(load->job);
}

/* Somebody waits for it now. */
void fetch_urge(struct zero_load *load)
{
	if (load->is_urgent)
		return;
	load->is_urgent = true;
	if (!zi_list_is_linked(&load->link))
		return; /* All of it is on its way. */
	zi_list_remove(&load->link);
	zi_list_push_back(&load->job->residency->fetches.urgent, &load->link);
}

/* Nobody wants it any more: nothing more of it goes out. Return: true when nothing is on its way
 * either; it is over then, and `done` will not run. */
bool fetch_drop(struct zero_load *load)
{
	zi_list_remove(&load->link);
	return load->fetch_count == 0;
}
