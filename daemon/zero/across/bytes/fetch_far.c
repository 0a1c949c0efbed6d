/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters from another node; see fetch_far.h. Floor 5, shard thread, but for copy_run(). */
#include "daemon/zero/across/bytes/fetch_far.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

static uint64_t piece_begin(const struct fetch_far *far)
{
	return far->piece * far->across->slot_bytes;
}

static void copy_run(struct dev_task *task)
{
	struct fetch_far *far = container_of(task, struct fetch_far, task);

	if (!far->error)
		memcpy((char *)far->target + piece_begin(far), far->pull.memory, far->pull.bytes);
}

static bool next(struct fetch_far *far);

static void copied(struct dev_task *task)
{
	struct fetch_far *far = container_of(task, struct fetch_far, task);
	struct zero_job *job = far->subgroup->job;
	struct across *across = far->across;
	struct zero *zero = job->zero;
	bool has_ended;

	if (!far->error)
		pull_release(&far->pull);
	far->piece++;
	if (across)
		across->task_count--;
	if (across && (across->error || across->is_detached))
		across_go_on(across); /* It may wait for this. */
	has_ended = far->error || !next(far);
	job_unbusy(job); /* The pull counts, if there is one. */
	if (has_ended)
		far->done(far);
	job_settle(job);
	zero_drain(zero);
}

/* Also what has failed is told from there: on the way back nothing of the talk is under way. */
static void submit(struct fetch_far *far)
{
	struct zero_job *job = far->subgroup->job;

	far->task = (struct dev_task){ .run = copy_run,
		                       .done = copied,
		                       .loop = job->zero->options.loop };
	if (far->across)
		far->across->task_count++;
	job_busy(job);
	dev_submit(job->device, &far->task);
}

static void came(struct pull *pull)
{
	struct fetch_far *far = container_of(pull, struct fetch_far, pull);

	if (pull->error) {
		far->error = pull->error;
		far->text = pull->text;
	}
	submit(far);
}

static void fail(struct fetch_far *far)
{
	const struct zero_job *job = far->subgroup->job;

	far->error = err_origin(-EPIPE);
	zi_text_set(&far->text, "parameters of unit '%.60s' are on other nodes, and these are gone",
	            job->layout.units[far->subgroup->unit].name);
}

/* The next piece; false: there is none, or nobody any more to have it from. */
static bool next(struct fetch_far *far)
{
	struct zero_job *job = far->subgroup->job;
	uint64_t bytes = job_subgroup_param_bytes(job, far->subgroup), begin;

	begin = piece_begin(far);
	if (begin >= bytes)
		return false;
	if (!across_talks(job)) {
		fail(far);
		return false;
	}
	far->pull = (struct pull){
		.job = job,
		.node = params_source(job, far->subgroup),
		.what = PULL_PARAM,
		.unit = far->subgroup->unit,
		.subgroup = far->subgroup->index,
		.number = params_number(job, far->subgroup->unit),
		.piece = far->piece,
		.bytes = ZI_MIN(bytes - begin, far->across->slot_bytes),
		.done = came,
	};
	pull_start(&far->pull);
	return true;
}

/* Documented in the header. */
void fetch_far_begin(struct fetch_far *far)
{
	struct zero_job *job = far->subgroup->job;

	assert(!far->subgroup->is_here);
	assert(far->done);
	far->error = 0;
	far->piece = 0;
	far->across = job->across;
	if (far->across && next(far))
		return;
	if (!far->error)
		fail(far);
	submit(far);
}
