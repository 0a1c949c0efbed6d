/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs without their state; see lost.h. */
#include "daemon/zero/job/lost.h"

#include <string.h>

#include "common/base/assert.h"
#include "daemon/zero/job/delete.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/step/commit.h"

/* See lost.h. */
void lost_keep(struct zero_job *job, int64_t step)
{
	struct zero *zero = job->zero;

	assert(!job->is_lost);
	assert(step >= 0);
	if (zero->lost_count >= zero->options.jobs_max) {
		job_delete_later(job);
		return;
	}
	job->is_lost = true;
	job->lost_step = step;
	zi_list_remove(&job->jobs_link);
	zi_list_push_back(&zero->lost, &job->jobs_link);
	zero->job_count--;
	zero->lost_count++;
}

/* See lost.h. */
struct zero_job *lost_find(struct zero *zero, const char *name)
{
	zi_list_for_each(link, &zero->lost) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (strcmp(job->name, name) == 0)
			return job;
	}
	return NULL;
}

/* See lost.h. */
void lost_take_back(struct zero_job *job)
{
	struct zero *zero = job->zero;

	assert(job->is_lost);
	job->is_lost = false;
	zi_list_remove(&job->jobs_link);
	zi_list_push_back(&zero->jobs, &job->jobs_link);
	zero->job_count++;
	zero->lost_count--;
}

static void rows_deleted(struct catalog_request *request)
{
	struct zero_job *job = container_of(request, struct zero_job, request);
	struct zero *zero = job->zero;

	request_end(job);
	/* On failure the request that needs the name fails as well. */
	if (!request->result)
		job->is_stored = false;
	zero_drain(zero);
}

/* See lost.h. */
void lost_end(struct zero *zero, const char *name, uint32_t uid)
{
	struct zero_job *job = lost_find(zero, name);

	if (!job)
		return;
	if (job->uid == uid) {
		lost_take_back(job);
		job_delete(job);
		return;
	}
	/* Busy: its rows are being deleted for an earlier job of that name. */
	if (job->is_stored && !job->busy_count)
		request_submit(job, CATALOG_JOB_DELETE, rows_deleted);
}
