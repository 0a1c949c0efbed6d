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

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/agree/agree.h"
#include "daemon/zero/across/agree/commit.h"
#include "daemon/zero/across/agree/heal.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/job/delete.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/history.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize_build.h"
#include "daemon/zero/job/materialize_check.h"
#include "daemon/zero/job/memory.h"
#include "daemon/zero/job/start.h"
#include "daemon/zero/param/stream.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/snapshot/load.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/doubt.h"
#include "daemon/zero/step/pipeline.h"
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
	return "operations of an older start of the job have not ended";
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
			stream_from_job(job->group.ranks[job_first_rank(job)]);
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

/* Tables and segments are there, or an error says why not. */
void materialize_built(struct zero_job *job, int error, const struct zi_text *text)
{
	struct zi_text why = { "" };

	if (!goes_on(job, error, text))
		return;
	error = memory_finish(job, &why);
	if (!goes_on(job, error, &why))
		return;
	if (heal_is_due(job))
		heal_start(job, healed);
	else
		load(job);
}

static void begin(struct zero_job *job)
{
	doubt_forget(job); /* Nobody else could be asked. */
	materialize_build(job);
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
