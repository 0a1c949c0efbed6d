/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Materialise: every rank has said what the model is; now its memory appears. Floor 5, shard
 * thread.
 *
 *   gather ─▶ plan (charges) ─▶ build (device threads) ─▶ load (disk) ─▶ catalog ─▶ LIVE
 * A failure anywhere gives everything back and every rank hears the same; the group stays FORMING,
 * so that they may try again. A group that broke meanwhile is noticed between any two of these.
 */
#include "daemon/zero/job/materialize.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/owner.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/agree/agree.h"
#include "daemon/zero/across/agree/commit.h"
#include "daemon/zero/across/agree/heal.h"
#include "daemon/zero/across/bytes/blobs.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/across/sums/grads.h"
#include "daemon/zero/job/delete.h"
#include "daemon/zero/job/forward.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/history.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/materialize_check.h"
#include "daemon/zero/job/memory.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/job/shard.h"
#include "daemon/zero/job/start.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/param/stream.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/owner.h"
#include "daemon/zero/snapshot/load.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/doubt.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/votes.h"

static bool is_wanted(const struct zero_job *job)
{
	return job->group.phase == ZERO_GROUP_FORMING &&
	       job->group.generation == job->materialize_generation;
}

/*
 * Every rank has come, and nothing of the former group is in flight. Nor of a job of the same uid
 * that is being deleted: a job that never committed anything ends with its ranks, and when they are
 * started again at once there is room for it on NVMe only where it was. Another uid's is not waited
 * for: one that makes jobs without end could hold up everybody. A rank may leave meanwhile.
 */
bool materialize_is_due(const struct zero_job *job)
{
	bool is_nvme = job->group.config.offload_optimizer == ZI_OFFLOAD_NVME;

	return job->group.phase == ZERO_GROUP_FORMING && !job->is_materializing &&
	       job->group.rank_count == job->group.local_size && !job->is_deleting &&
	       !job->busy_count && !job_is_ahead(job) && job->step.phase == ZERO_STEP_NONE &&
	       gather_is_full(job, ZERO_GATHER_MATERIALIZE) &&
	       !(job_spans_nodes(job) && across_is_busy(job->zero, job->name)) &&
	       !(is_nvme && delete_is_under_way(job->zero, job->uid));
}

/* See materialize.h. */
void materialize_look(struct zero *zero, const char *name)
{
	struct zero_job *job = job_find(zero, name);

	if (job && materialize_is_due(job))
		job_settle(job);
}

/* See materialize.h. */
const char *materialize_obstacle(const struct zero_job *job)
{
	if (materialize_is_on(job))
		return "memory is still being prepared";
	if (delete_is_under_way(job->zero, job->uid))
		return "the catalog has not forgotten another job of this uid yet, whose space "
		       "may be needed (is its disk slow?)";
	return "what a former start of the job left in flight has not ended";
}

/* See materialize.h. */
bool materialize_is_on(const struct zero_job *job)
{
	return job->is_materializing && is_wanted(job);
}

static void materialize_end(struct zero_job *job, int error, const struct zi_text *text)
{
	bool is_told = is_wanted(job);

	assert(job->is_materializing);
	if (error && job->busy_count) {
		/* Other nodes are given what they asked for, from what is about to go. */
		job->materialize_error = error;
		job->materialize_text = *text;
		return;
	}
	job->is_materializing = false;
	if (error) {
		if (!job->is_stored)
			load_undo(job);
		if (!job->is_stored && is_told && job->layout.unit_count) {
			/* It came from the first rank, who may try again. */
			job->group.ranks[job_first_rank(job)]->layout = job->layout;
			job->layout = (struct zero_layout){ 0 };
		}
		across_forget_start(job);
		job_drop_memory(job);
		start_undo(job);
	} else {
		assert(is_told);
		start_forget(job);
		for_each_rank_here(job, i) {
			stream_drop(job->group.ranks[i]);
			load_forget(job->group.ranks[i]);
		}
		/* Loaded from a snapshot: memory is the only copy from here on. */
		if (!job_is_nvme(job))
			extents_release_all(job);
		job_group_set(job, ZERO_GROUP_LIVE);
	}
	if (is_told)
		gather_complete(job, ZERO_GATHER_MATERIALIZE, error, text);
	job_settle(job);
}

/* See materialize.h. */
void materialize_failed(struct zero_job *job)
{
	struct zi_text text = job->materialize_text;
	int error = job->materialize_error;

	assert(!job->busy_count);
	job->materialize_error = 0;
	materialize_end(job, error, &text);
}

/* What was made is told of; other nodes have made it too, and hear of a failure by the end of the
 * group. */
static void end_made(struct zero_job *job, int error, const struct zi_text *text)
{
	if (error && is_wanted(job) && job->across)
		group_break(job, error, UINT32_MAX, text);
	materialize_end(job, error, text);
}

static void recorded(struct catalog_request *request);

/* A job the catalog does not know; then an incarnation it does not know; then done. */
static void record(struct zero_job *job)
{
	bool is_known = job->is_stored && job->stored_number == job->group.number;
	struct zi_text text;
	int r;

	if (!is_known) {
		r = history_record(&job->history, job->stored_number);
		if (r) {
			zi_text_set(&text, "no memory for the names of job '%s'", job->name);
			end_made(job, r, &text);
			return;
		}
		request_submit(job, job->is_stored ? CATALOG_JOB_INCARNATION : CATALOG_JOB_CREATE,
		               recorded);
		return;
	}
	r = memory_hand_out(job);
	if (r)
		zi_text_set(&text, "handing memory of job '%s' to its ranks: %s", job->name,
		            zi_err_name(r));
	end_made(job, r, &text);
}

static void recorded(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;

	request_end(job);
	if (!request->result) {
		job->is_stored = true;
		job->stored_number = job->record.incarnation_number;
	}
	if (!request->result && is_wanted(job))
		record(job);
	else
		end_made(job, request->result ? request->result : -ECANCELED, &request->text);
	zero_drain(zero);
}

/* What other nodes hold has come, or nothing more comes. */
static void whole(struct zero_job *job)
{
	if (is_wanted(job))
		record(job);
	else
		materialize_end(job, -ECANCELED, &job->group.text);
}

/* Nobody goes back to what was before. */
static void released(struct zero_job *job, int error, const struct zi_text *text)
{
	if (error)
		end_made(job, error, text);
	else if (!is_wanted(job))
		materialize_end(job, -ECANCELED, &job->group.text);
	else
		params_load(job, whole);
}

/* All nodes say whether they have made it: it is there on all, or on none. */
static void voted(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct zi_text why = { "" };

	if (!error && is_wanted(job)) {
		error = agree_refusal(job, round, &why);
		text = &why;
	} else if (!error) {
		error = -ECANCELED;
	}
	if (error)
		materialize_end(job, error, text);
	else
		heal_release(job, released);
}

static void healed(struct zero_job *job, int error, const struct zi_text *text);

/* Memory is there, or is not. */
static void made(struct zero_job *job, int error, const struct zi_text *text)
{
	struct round_vote vote = { .error = 0 };

	if (error && is_wanted(job) && heal_is_due(job)) {
		heal_refuse(job, error, text, healed);
	} else if (is_wanted(job) && job->across) {
		if (error)
			round_vote_refuse(&vote, error, text);
		across_vote(job, ROUND_MADE, &vote, voted);
	} else if (error) {
		materialize_end(job, error, text);
	} else {
		record(job);
	}
}

/* True when it goes on; otherwise it has ended. */
static bool goes_on(struct zero_job *job, int error, const struct zi_text *text)
{
	if (!error && is_wanted(job))
		return true;
	made(job, error ? error : -ECANCELED, text);
	return false;
}

/* The LOAD pipeline has ended. */
void materialize_loaded(struct zero_job *job, int error, const struct zi_text *text)
{
	if (!error)
		job->is_loaded = true;
	if (goes_on(job, error, text))
		made(job, 0, NULL);
}

static void load(struct zero_job *job)
{
	if (!job->is_loaded)
		pipeline_start(job, ZERO_PIPELINE_LOAD);
	else
		made(job, 0, NULL);
}

/* What this node is to have of what was committed is here. */
static void healed(struct zero_job *job, int error, const struct zi_text *text)
{
	if (goes_on(job, error, text))
		load(job);
}

static void built(struct zero_job *job)
{
	struct zi_text text = { "" };
	int error = 0;

	for (uint32_t i = 0; i < job->build_count && !error; i++) {
		error = job->builds[i].error;
		text = job->builds[i].text;
	}
	if (!goes_on(job, error, &text))
		return;
	error = memory_finish(job, &text);
	if (!goes_on(job, error, &text))
		return;
	if (heal_is_due(job))
		heal_start(job, healed);
	else
		load(job);
}

static void build_run(struct dev_task *task)
{
	struct zero_build *build = container_of(task, struct zero_build, task);

	build->error = tier_segment_build(build->segment, &build->text);
}

static void build_done(struct dev_task *task)
{
	struct zero_job *job = container_of(task, struct zero_build, task)->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	assert(job->build_pending > 0);
	if (--job->build_pending == 0)
		built(job);
	zero_drain(zero);
}

/* The layout comes from the first rank: all others have the same. */
static void take_layout(struct zero_job *job)
{
	struct zero_rank *first = job->group.ranks[job_first_rank(job)];

	job->layout = first->layout;
	first->layout = (struct zero_layout){ 0 };
	stream_drop(first);
}

static int prepare(struct zero_job *job, struct zi_text *text)
{
	const struct zero_layout *first = &job->layout; /* The first rank's: whose groups count. */
	uint64_t come_mask = job->group.gather_masks[ZERO_GATHER_MATERIALIZE]; /* All have come. */
	bool is_new;
	int r;

	/* Again: it may have been stored by a former start, after these ranks came. */
	r = materialize_check_stored(job->group.ranks[__builtin_ctzll(come_mask)], text);
	if (r)
		return err_trace(r);
	r = start_keep(job);
	if (r) {
		zi_text_set(text, "no memory for the job's tables");
		return err_trace(r);
	}
	job_drop_incarnation(job);
	if (job_is_nvme(job)) {
		/* Its resident share may be another one now, as what it owns may. */
		shard_drop(job);
		job->state = tier_segment_unref(job->state);
		for (uint32_t i = 0; i < job->subgroup_count; i++)
			job->subgroups[i].memory = NULL;
	}
	job_unload(job);
	forward_take_config(job);
	static_assert(ZI_IO_WEIGHT_MAX <= NVME_FLOW_WEIGHT_MAX, "what was checked is allowed");
	static_assert(ZI_IO_WEIGHT_DEFAULT == NVME_FLOW_WEIGHT_DEFAULT, "0 is the same to both");
	if (job->flow)
		(void)nvme_flow_weigh(job->flow, job->config.io_weight);
	if (job_has_pool(job))
		job_drop_param(job); /* It may have had all of them in memory before. */
	job->world = job->group.world_size;
	job->here_mask = come_mask;
	assert(job_spans_nodes(job) || job->here_mask == job_mask_of(job->world));
	is_new = !job->units;
	if (!job->layout.unit_count)
		take_layout(job);
	else
		first = &job->group.ranks[job_first_rank(job)]->layout;
	if (first != &job->layout)
		r = layout_take_sets(&job->layout, first);
	if (is_new && !r)
		r = materialize_check_bytes(job, text);
	if (is_new && !r && !load_is_due(job)) /* What begins with a snapshot is as that is. */
		r = layout_check_params(&job->layout, text);
	if (is_new && !r)
		r = layout_build(job, text);
	if (!r)
		r = stretches_build(job, first, text); /* What is frozen has no gradient. */
	if (!r)
		r = sets_build(job);
	if (r == -ENOMEM)
		zi_text_set(text, "no memory for the job's tables");
	if (r)
		return err_trace(r);
	owners_build(job);
	if (is_new && load_is_due(job))
		r = load_adopt(job, text);
	else
		scale_resume(job); /* Its ranks may ask for another one than before. */
	if (!r)
		r = memory_plan(job, text);
	if (!r && job->across)
		r = grads_open(job, text);
	if (!r && job->across)
		r = params_open(job, text);
	if (!r && job->across)
		r = blobs_open(job, text);
	return err_trace(r);
}

static void begin(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r;

	doubt_forget(job); /* Nobody else could be asked. */
	r = prepare(job, &text);

	if (r) {
		made(job, r, &text);
		return;
	}
	if (!job->build_count) {
		built(job); /* Forward only, all of it is in memory. */
		return;
	}
	job->build_pending = job->build_count;
	for (uint32_t i = 0; i < job->build_count; i++) {
		job->builds[i].task = (struct dev_task){ .run = build_run,
			                                 .done = build_done,
			                                 .loop = job->zero->options.loop };
		job_busy(job);
		dev_submit(job->device, &job->builds[i].task);
	}
}

/* See materialize.h. */
void materialize_settled(struct zero_job *job, int error, const struct zi_text *text)
{
	if (goes_on(job, error, text))
		begin(job);
}

/* Of a job with two commits the one in force is found first; whoever is refused finds both there
 * the next time. */
static void settle(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r;

	if (job_spans_nodes(job)) {
		job->votes->resume(job); /* Others may have two where this node has one. */
		return;
	}
	r = materialize_check_nodes(job, &text);
	if (r)
		made(job, r, &text);
	else if (job->votes && job->votes->resume && former_is_open(job))
		job->votes->resume(job);
	else if (!former_is_open(job))
		begin(job);
	else
		former_settle(job, false);
}

/* The other nodes have the same model, or not. */
static void agreed(struct zero_job *job, int error, const struct zi_text *text)
{
	if (error || !is_wanted(job))
		materialize_end(job, error ? error : -ECANCELED, text);
	else
		settle(job);
}

/* Precondition: materialize_is_due(). Ends in materialize_end(), possibly before this returns. */
void materialize_start(struct zero_job *job)
{
	assert(materialize_is_due(job));
	job->is_materializing = true;
	job->materialize_generation = job->group.generation;
	if (job_spans_nodes(job) && !job->votes)
		job->votes = &commit_votes;
	else if (!job_spans_nodes(job) && job->votes == &commit_votes)
		job->votes = NULL;
	if (job_spans_nodes(job))
		model_agree(job, agreed);
	else
		settle(job);
}
