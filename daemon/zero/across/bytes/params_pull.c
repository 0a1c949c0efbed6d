/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of what other nodes update: said, heard, and copied into the plane; see params.h.
 * Floor 5; shard thread, but for take_run(). */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/bytes/params_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/param/unit.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"

/* ---- what is said ---- */

/* Documented in a header, as are all that are not static. */
uint32_t params_pieces(const struct params *params, const struct zero_subgroup *subgroup)
{
	uint64_t slot_bytes = params->across->slot_bytes;

	return (uint32_t)((job_subgroup_param_bytes(params->job, subgroup) + slot_bytes - 1) /
	                  slot_bytes);
}

/* Return: false, somebody has no room. */
static bool say_note(struct params *params, uint32_t index)
{
	struct across *across = params->across;
	const struct zero_subgroup *subgroup = &params->job->subgroups[index];
	struct params_subgroup *mine = &params->subgroups[index];
	struct talk_entry entry = { .kind = TALK_READY,
		                    .what = PARAMS_READY,
		                    .unit = subgroup->unit,
		                    .subgroup = subgroup->index,
		                    .micro = mine->made };

	for (uint64_t rest = mine->untold; rest; rest &= rest - 1) {
		uint32_t node = (uint32_t)__builtin_ctzll(rest);

		if (across_room(across, node) <= ACROSS_RESERVE)
			continue;
		across_say(across, node, &entry);
		mine->untold &= ~(1ull << node);
	}
	return !mine->untold;
}

void params_say(struct across *across)
{
	struct params *params = across->params;

	if (!params || across->error || across->is_detached || across->phase != ACROSS_TALKING)
		return;
	while (params->note_said != params->note_put) {
		if (!say_note(params, params->notes[params->note_said % params->subgroup_count]))
			return;
		params->note_said++;
	}
}

void params_tell(struct params *params, uint32_t index)
{
	const struct zero_subgroup *subgroup = &params->job->subgroups[index];
	struct params_subgroup *mine = &params->subgroups[index];

	/* Who takes it has come to this one, and so had the one before. */
	assert(!mine->untold || params->across->error);
	mine->made = params->numbers[subgroup->unit];
	mine->untold = params_way_of(params, subgroup)->takers;
	if (mine->untold && !params->across->error) {
		assert(params->note_put - params->note_said < params->subgroup_count);
		params->notes[params->note_put++ % params->subgroup_count] = index;
		params_say(params->across);
	}
	serve_more(params->across); /* Who was sooner waits for it. */
}

/* ---- what comes ---- */

static void take_next(struct params *params);

/* All is here, or what is not will not come. The job may end with it. */
static void over(struct params *params)
{
	struct zero_job *job = params->job;
	gather_go_fn loaded = params->loaded;

	params->loaded = NULL;
	if (loaded)
		loaded(job);
	else
		step_go_to_commit(job);
}

void params_go_on(struct params *params)
{
	/* Others may take their time after a load: nothing waits for them. */
	if (!params->wait_count && (params->loaded || !params->give_count))
		over(params);
}

static void given_up(struct zi_post *post)
{
	struct params *params = container_of(post, struct params, given_up);
	struct across *across = params->across;
	struct zero_job *job = params->job;
	struct zero *zero = job->zero;
	bool is_loading = params->loaded;
	struct zi_text text = across->text;

	if (!across->error)
		zi_text_set(&text, "the ranks of job '%s' have left", across->name);
	pipeline_fail(job, across->error ? across->error : -ECANCELED, &text);
	across->task_count--;
	job_unbusy(job);
	across_go_on(across); /* It may wait for this. */
	over(params);
	if (!is_loading)
		job_settle(job);
	zero_drain(zero);
}

/* From the loop, since whoever waits may end the job. */
static void give_up(struct params *params)
{
	if ((!params->wait_count && !params->give_count) || params->active_count ||
	    params->is_given_up)
		return;
	params->is_given_up = true;
	params->across->task_count++;
	job_busy(params->job);
	zi_loop_post(params->across->zero->options.loop, &params->given_up, given_up);
}

void params_over(struct across *across)
{
	if (across->params)
		give_up(across->params);
}

static void take_run(struct fetch *fetch)
{
	struct params_take *take = container_of(fetch, struct params_take, fetch);

	memcpy(take->target, take->pull.memory, take->pull.bytes);
}

static void take_ended(struct fetch *fetch, bool is_whole)
{
	struct params_take *take = container_of(fetch, struct params_take, fetch);
	struct params *params = take->params;
	struct params_subgroup *mine =
		&params->subgroups[job_subgroup_index(params->job, take->subgroup)];
	uint32_t unit = take->subgroup->unit;

	assert(params->active_count > 0);
	params->active_count--;
	if (!is_whole) {
		give_up(params);
		return;
	}
	take_next(params);
	assert(mine->pieces_left > 0);
	if (--mine->pieces_left)
		return;
	mine->made = mine->said;
	params->wait_count--;
	if (!params->loaded)
		unit_updated(params->job, unit);
	params_go_on(params);
}

static void start(struct params *params, struct params_take *take, uint32_t piece)
{
	const struct zero_job *job = params->job;
	const struct zero_subgroup *subgroup = take->subgroup;
	uint64_t slot_bytes = params->across->slot_bytes, begin = piece * slot_bytes;

	take->params = params;
	take->target = (char *)job_subgroup_param(job, subgroup) + begin;
	take->pull = (struct pull){
		.node = params_way_of(params, subgroup)->source,
		.what = PULL_PARAM,
		.unit = subgroup->unit,
		.subgroup = subgroup->index,
		.number = params->numbers[subgroup->unit],
		.piece = piece,
		.bytes = ZI_MIN(job_subgroup_param_bytes(job, subgroup) - begin, slot_bytes),
	};
	take->fetch = (struct fetch){ .across = params->across,
		                      .run = take_run,
		                      .ended = take_ended,
		                      .pulls = &take->pull,
		                      .pull_count = 1 };
	params->active_count++;
	fetch_start(&take->fetch);
}

/* To the pipeline, which pulls and writes them when it is pumped. */
static void copy_next(struct params *params)
{
	struct zero_job *job = params->job;

	while (params->ready_taken != params->ready_put && !params->across->error) {
		uint32_t index = params->ready[params->ready_taken % params->subgroup_count];

		if (params->subgroups[index].said > params->numbers[job->subgroups[index].unit])
			break;
		params->ready_taken++;
		pipeline_copy(job, &job->subgroups[index]);
	}
}

void params_copied(struct zero_job *job, const struct zero_subgroup *subgroup)
{
	struct params *params = job->across ? job->across->params : NULL;
	struct params_subgroup *mine;

	if (!params || job->across->error)
		return; /* Of a talk that is over. */
	mine = &params->subgroups[job_subgroup_index(job, subgroup)];
	mine->made = mine->said;
	mine->pieces_left = 0;
	assert(params->wait_count > 0);
	params->wait_count--;
	params_go_on(params);
}

/* Pieces of those that can be pulled, in their order, once this node has come so far itself: its
 * ranks have used the former values until then. */
static void take_next(struct params *params)
{
	struct zero_job *job = params->job;

	if (params_are_kept(job)) {
		copy_next(params);
		return;
	}
	for (uint32_t i = 0; i < PARAMS_DEPTH && params->ready_taken != params->ready_put; i++) {
		struct params_take *take = &params->takes[i];
		uint32_t index = params->ready[params->ready_taken % params->subgroup_count];
		uint32_t piece = params->ready_piece;

		if (fetch_is_active(&take->fetch))
			continue;
		if (params->subgroups[index].said > params->numbers[job->subgroups[index].unit] ||
		    params->across->error)
			return;
		take->subgroup = &job->subgroups[index];
		if (++params->ready_piece == params_pieces(params, take->subgroup)) {
			params->ready_taken++;
			params->ready_piece = 0;
		}
		start(params, take, piece);
	}
}

/* Return: false, it cannot be. */
static bool is_sane(const struct params *params, const struct talk_entry *entry)
{
	const struct zero_job *job = params->job;
	const struct zero_subgroup *subgroup;
	const struct params_subgroup *mine;

	if (entry->unit >= params->unit_count ||
	    entry->subgroup >= job->units[entry->unit].subgroup_count || !params_are_whole(job))
		return false;
	subgroup = across_subgroup(job, entry);
	mine = &params->subgroups[job_subgroup_index(job, subgroup)];
	return params_way_of(params, subgroup)->source == entry->node && mine->said == mine->made &&
	       entry->micro == mine->said + 1 && entry->micro <= params->numbers[entry->unit] + 1;
}

int params_heard(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct params *params = across->params;
	uint32_t index;

	if (across->is_detached)
		return 0;
	if (!params || !is_sane(params, entry))
		return err_origin(zi_text_error(
			text, -EPROTO,
			"node %u says that parameters of unit %u (subgroup %u, number %u) can be "
			"pulled: it cannot be",
			entry->node, entry->unit, entry->subgroup, entry->micro));
	index = params->job->units[entry->unit].subgroup_first + entry->subgroup;
	params->subgroups[index].said = entry->micro;
	params->ready[params->ready_put++ % params->subgroup_count] = index;
	take_next(params);
	if (params_are_kept(params->job) && params->job->pipeline.kind != ZERO_PIPELINE_NONE)
		pipeline_pump(params->job);
	return 0;
}

/* ---- what is waited for ---- */

/* All units that change have a number more. @is_update: an unshard waits for what is to come, and
 * those that are frozen whole stay. */
static void begin(struct params *params, bool is_update)
{
	struct zero_job *job = params->job;

	assert(!params->wait_count);
	assert(!params->give_count || params->across->error);
	for (uint32_t i = 0; i < params->unit_count; i++)
		params->numbers[i] += !is_update || !job->units[i].is_frozen;
	for (uint32_t i = 0; i < params->subgroup_count && params_are_whole(job); i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];

		if (is_update && job->units[subgroup->unit].is_frozen)
			continue;
		if (!is_update && params_are_kept(job)) {
			/* Each has its own. */
			params->subgroups[i].made = params->numbers[subgroup->unit];
			params->subgroups[i].said = params->numbers[subgroup->unit];
			continue;
		}
		if (subgroup->is_here) {
			params->subgroups[i].gives_left =
				params_pieces(params, subgroup) *
				(uint32_t)__builtin_popcountll(
					params_way_of(params, subgroup)->takers);
			params->give_count += params->subgroups[i].gives_left > 0;
			continue;
		}
		params->subgroups[i].pieces_left = params_pieces(params, subgroup);
		params->wait_count++;
		job->units[subgroup->unit].update_count += is_update;
		if (!params_are_kept(job))
			continue;
		job->units[subgroup->unit].write_count++;
		job->pipeline.awaited_count++;
	}
}

void params_update(struct zero_job *job)
{
	struct params *params = job->across ? job->across->params : NULL;

	if (!params)
		return;
	begin(params, true);
	if (job->across->error)
		params_over(job->across);
	else
		take_next(params);
}

void params_load(struct zero_job *job, gather_go_fn go_on)
{
	struct params *params = job->across->params;

	begin(params, false);
	params->loaded = go_on;
	for (struct zero_subgroup *subgroup = params_are_kept(job) ? NULL
	                                                           : job_subgroup_here(job, 0);
	     subgroup; subgroup = job_subgroup_here(job, job_subgroup_index(job, subgroup) + 1))
		params_tell(params, job_subgroup_index(job, subgroup));
	if (job->across->error)
		params_over(job->across);
	else
		take_next(params);
	if (!params->wait_count)
		params_go_on(params);
}

bool params_are_there(const struct zero_job *job)
{
	const struct params *params = job->across ? job->across->params : NULL;

	return !params || (!params->wait_count && !params->give_count) || params->is_given_up;
}

bool params_say_late(const struct zero_job *job, uint32_t unit, struct zi_text *ret_text)
{
	const struct params *params = job->across ? job->across->params : NULL;

	for (uint32_t i = 0; i < job->subgroup_count && !params_are_there(job); i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];

		if (!params->subgroups[i].pieces_left ||
		    (unit != UINT32_MAX && unit != subgroup->unit))
			continue;
		zi_text_set(ret_text, "parameters of unit '%.60s' have not come from %.120s",
		            job->layout.units[subgroup->unit].name,
		            across_name(job, params_source(job, subgroup)).chars);
		return true;
	}
	if (params_are_there(job) || unit != UINT32_MAX)
		return false;
	zi_text_set(ret_text, "%u parts of the parameters have not been taken by other nodes",
	            params->give_count);
	return true;
}
