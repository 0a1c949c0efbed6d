/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit before the one in force, of a job whose nodes vote about commits (step/votes.h). Floor
 * 5, shard thread.
 *
 *   none ──commit──▶ kept ──all nodes have the new one──▶ none
 *                     │ somebody died before that was known; the daemon was started anew
 *                     └──▶ kept until ranks come: former_settle(), on with the newer or back
 *
 * While it is kept nothing is reserved, so that twice the state suffices. What the catalog has of
 * it stays until the next commit is written over it, or the job comes to rest, also after it was
 * released: rows that name space which is given to others. Nobody goes back to it: all nodes have
 * the newer one, and which of them come, where they have the former one whole they have the newer
 * one whole, as both were divided alike. Where they were not, the rows go before anything is
 * released (former_is_elsewhere()).
 * What others were given since is dropped when it is recovered (recover_former.c).
 */
#include "daemon/zero/place/former.h"

#include <string.h>

#include "common/base/assert.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/owner.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/commit.h"

/* Before ahead_mark() and extents_commit(). */
void former_keep(struct zero_job *job)
{
	assert(!job->former.is_kept);
	if (!job->step.votes) {
		if (!former_is_open(job))
			job->former = (struct zero_former){ .is_named = false };
		return;
	}
	job->former = (struct zero_former){
		.is_kept = job_keeps_former(job),
		.is_stored = job_keeps_former(job),
		.is_named = true,
		.step = job->committed_step,
		.marks = job->committed,
	};
}

/* See former.h. */
void former_release(struct zero_job *job)
{
	if (!job->former.is_kept)
		return;
	job->former.is_kept = false;
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			place_let_go(job, &job->subgroups[i].places[plane]);
}

/* See former.h. */
bool former_is_elsewhere(const struct zero_job *job)
{
	const struct zero_marks *former = &job->former.marks, *present = &job->committed;

	return job->former.is_kept && job->former.step >= 0 &&
	       (former->world != present->world ||
	        memcmp(&former->placement, &present->placement, sizeof(former->placement)) != 0);
}

/* See former.h. */
bool former_is_open(const struct zero_job *job)
{
	return job->former.is_kept || job->former.is_stored;
}

/* See former.h. */
void former_forget(struct zero_job *job, uint64_t number)
{
	assert(!former_is_open(job));
	if (job->committed_step >= 0) {
		for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
			job->blobs[job->blob_index][i].byte_count = 0;
		ahead_set(job, -1,
		          &(struct zero_marks){ .beta1_power = 1.0,
		                                .beta2_power = 1.0,
		                                .blob_index = job->blob_index });
		job_drop_memory(job);
	}
	job->committed.number = number;
	job->former.is_named = false;
}

/* Memory is read anew before it is used. */
static void go_back(struct zero_job *job)
{
	bool is_elsewhere = former_is_elsewhere(job);

	assert(job->former.is_kept);
	assert(!job_is_ahead(job));
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			place_fall_back(job, &job->subgroups[i].places[plane]);
	ahead_set(job, job->former.step, &job->former.marks);
	job->former.is_kept = false;
	owners_go_back(job, is_elsewhere); /* Sets and ranks stay the newer one's: nobody asks. */
	job_unload(job);
}

static void settled(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;
	struct zi_text text = request->text;

	request_end(job);
	if (!request->result && job->former.is_back)
		go_back(job);
	else if (!request->result)
		former_release(job);
	if (!request->result) {
		job->former.is_stored = false;
		job->is_stuck = false; /* What could not move for it may. */
	}
	materialize_settled(job, request->result, &text);
	zero_drain(zero);
}

/* See former.h. */
void former_settle(struct zero_job *job, bool is_back)
{
	assert(former_is_open(job));
	assert(!is_back || job->former.is_kept);
	assert(job->step.phase == ZERO_STEP_NONE);
	job->former.is_back = is_back;
	step_back_submit(job, is_back ? &job->former.marks : &job->committed, settled);
}

static void tidied(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;

	request_end(job);
	if (request->result)
		job->former.is_stuck = true; /* They stay until the next commit: no harm. */
	else
		job->former.is_stored = false;
	evacuate_unlock(job);
	zero_drain(zero);
}

/* See former.h. */
bool former_tidy(struct zero_job *job)
{
	if (!job->former.is_stored || job->former.is_stuck || !evacuate_is_at_rest(job) ||
	    change_check(job->zero, NULL))
		return false;
	evacuate_lock(job);
	step_back_submit(job, &job->committed, tidied);
	return true;
}
