/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit's parameters from the store into memory: read where they will be used, no copy between,
 * and verified on device threads. Floor 5, shard thread, but for fetch_run().
 *
 * A load goes out subgroup by subgroup, ZERO_FETCH_MAX at a time over the whole job, urgent ones
 * (somebody waits) first. It ends when all of it has come back, with the first error. What is on
 * its way cannot be called back: extents that it reads from are not given back before it has come.
 */
#include "daemon/zero/param/fetch.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "kernels/hash.h"

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

static void fetch_fail_io(struct zero_fetch *fetch, int error)
{
	const struct zero_job *job = fetch->load->job;

	fetch->error = error;
	zi_text_set(&fetch->text,
	            "job '%s': reading parameters of unit '%.60s', subgroup %u, at offset %llu of "
	            "%s: %s",
	            job->name, job->layout.units[fetch->subgroup->unit].name,
	            fetch->subgroup->index, (unsigned long long)fetch->move.offset_bytes,
	            fetch->move.member->path, zi_err_name(error));
}

static void fetches_pump(struct zero_job *job);

/* One subgroup has come back, or could not go out. */
static void fetch_end(struct zero_fetch *fetch)
{
	struct zero_load *load = fetch->load;
	struct zero_job *job = load->job;
	struct zero_fetches *fetches = &job->residency->fetches;

	if (fetch->error && !load->error) {
		load->error = fetch->error;
		load->text = fetch->text;
	}
	fetch->load = NULL;
	assert(fetches->busy_count > 0);
	assert(load->fetch_count > 0);
	fetches->busy_count--;
	load->fetch_count--;
	fetches_pump(job);
	if (load->fetch_count || zi_list_is_linked(&load->link))
		return;
	load->done(load);
}

static int tile_check(struct zero_fetch *fetch, uint32_t index, const char *bytes, uint64_t count)
{
	const struct zero_job *job = fetch->load->job;
	uint64_t begin = fetch->move.offset_bytes + (uint64_t)(bytes - (char *)fetch->target);
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);

	if (kern_hash_tile(bytes, count, width) == fetch->hashes[index])
		return 0;
	return err_origin(zi_text_error(
		&fetch->text, -EBADMSG,
		"job '%s': parameters of unit '%.60s' are damaged: %llu bytes at offset %llu of %s "
		"do not match their checksum",
		job->name, job->layout.units[fetch->subgroup->unit].name, (unsigned long long)count,
		(unsigned long long)begin, fetch->move.member->path));
}

/* What was read is verified, what was never written is zero. */
static void fetch_run(struct dev_task *task)
{
	struct zero_fetch *fetch = container_of(task, struct zero_fetch, task);
	const struct zero_job *job = fetch->load->job;
	uint64_t left_bytes = job_subgroup_param_bytes(job, fetch->subgroup);
	uint64_t tile_bytes =
		(uint64_t)ZI_TILE_ELEMENTS * zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
	char *bytes = fetch->target;

	if (!fetch->is_stored) {
		memset(bytes, 0, left_bytes);
		return;
	}
	for (uint32_t i = 0; i < fetch->subgroup->tile_count && !fetch->error; i++) {
		uint64_t count = ZI_MIN(tile_bytes, left_bytes);

		fetch->error = tile_check(fetch, i, bytes, count);
		bytes += count;
		left_bytes -= count;
	}
}

static void fetch_ran(struct dev_task *task)
{
	struct zero_fetch *fetch = container_of(task, struct zero_fetch, task);
	struct zero_job *job = fetch->load->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	fetch_end(fetch);
	job_settle(job); /* May free the job. */
	zero_drain(zero);
}

static void fetch_verify(struct zero_fetch *fetch)
{
	struct zero_job *job = fetch->load->job;

	fetch->task = (struct dev_task){ .run = fetch_run,
		                         .done = fetch_ran,
		                         .loop = job->zero->options.loop };
	job_busy(job);
	dev_submit(job->device, &fetch->task);
}

static void fetch_moved(struct tier_move *move)
{
	struct zero_fetch *fetch = container_of(move, struct zero_fetch, move);
	struct zero_job *job = fetch->load->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	if (move->result) {
		fetch_fail_io(fetch, move->result);
		fetch_end(fetch);
	} else {
		job->residency->fetches.read_bytes += move->bytes;
		job->read_bytes += move->bytes;
		fetch_verify(fetch);
	}
	job_settle(job); /* May free the job. */
	zero_drain(zero);
}

/* Where the unit's newest parameters lie: the committed ones, or those of the commit to come. */
static const struct tier_extent *source_of(const struct zero_subgroup *subgroup,
                                           uint64_t hashes[ZERO_FETCH_TILES])
{
	struct zero_job *job = subgroup->job;
	const struct zero_place *place = &subgroup->places[ZERO_PLANE_PARAM];
	bool is_next = job->units[subgroup->unit].is_param_next;
	uint32_t index = is_next ? place_next_index(place) : place->hash_index;
	const struct tier_extent *extent = is_next ? &place->next : &place->extent;

	assert(subgroup->tile_count <= ZERO_FETCH_TILES);
	memcpy(hashes, &job->hashes[ZERO_PLANE_PARAM][index][subgroup->tile_first],
	       subgroup->tile_count * sizeof(*hashes));
	return extent;
}

static void fetch_begin(struct zero_fetch *fetch, struct zero_load *load)
{
	struct zero_job *job = load->job;
	const struct zero_unit *unit = &job->units[load->unit];
	struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + load->next_index];
	const struct tier_extent *extent;
	int r;

	*fetch = (struct zero_fetch){
		.load = load,
		.subgroup = subgroup,
		.target = (char *)load->target + (subgroup->param_offset - unit->param_offset),
	};
	load->next_index++;
	load->fetch_count++;
	job->residency->fetches.busy_count++;
	extent = source_of(subgroup, fetch->hashes);
	fetch->is_stored = extent->bytes > 0;
	if (!fetch->is_stored) {
		fetch_verify(fetch);
		return;
	}
	fetch->move = (struct tier_move){ .member = extent->member,
		                          .offset_bytes = extent->offset_bytes,
		                          .buffer = fetch->target,
		                          .bytes = extent->bytes,
		                          .flow = job->flow,
		                          .tally = &job->account->tally,
		                          .done = fetch_moved };
	job_busy(job);
	r = tier_move_submit(job->zero->options.engine, &fetch->move);
	if (!r)
		return;
	/* Told as a read that failed, where every other one is: on the way back. */
	job_unbusy(job);
	fetch_fail_io(fetch, r);
	fetch_verify(fetch);
}

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
	tier_move_kick(job->zero->options.engine);
}

/*
 * fetch_load() - read a unit
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
