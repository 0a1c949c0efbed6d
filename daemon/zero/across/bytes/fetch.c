/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls, and a task that has all of them; see fetch.h. Floor 5, shard thread. */
#include "daemon/zero/across/bytes/fetch.h"

#include "common/base/assert.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/job/job.h"

static void release(struct fetch *fetch)
{
	for (uint32_t i = 0; i < fetch->pull_count; i++)
		if (fetch->pulls[i].memory)
			pull_release(&fetch->pulls[i]);
}

static void run(struct dev_task *task)
{
	struct fetch *fetch = container_of(task, struct fetch, task);

	fetch->run(fetch);
}

static void done(struct dev_task *task)
{
	struct fetch *fetch = container_of(task, struct fetch, task);
	struct across *across = fetch->across;
	struct zero_job *job = fetch->job;
	struct zero *zero = job->zero;

	across->task_count--;
	job_unbusy(job);
	release(fetch);
	fetch->is_active = false;
	if (!across->error && !across->is_detached) {
		fetch->ended(fetch, true);
	} else {
		fetch->ended(fetch, false);
		across_go_on(across); /* It may wait for this. */
		job_settle(job);
	}
	zero_drain(zero);
}

static void came(struct pull *pull)
{
	struct fetch *fetch = pull->owner;

	if (pull->error)
		fetch->has_failed = true;
	if (--fetch->pending > 0)
		return;
	if (fetch->has_failed) {
		/* Who tells of it settles the job. */
		release(fetch);
		fetch->is_active = false;
		fetch->ended(fetch, false);
		return;
	}
	fetch->task = (struct dev_task){ .run = run,
		                         .done = done,
		                         .loop = fetch->job->zero->options.loop };
	fetch->across->task_count++;
	job_busy(fetch->job);
	dev_submit(fetch->job->device, &fetch->task);
}

/* Documented in the header. */
void fetch_start(struct fetch *fetch)
{
	assert(!fetch->is_active);
	assert(fetch->pull_count > 0);
	fetch->job = fetch->across->job;
	fetch->is_active = true;
	fetch->has_failed = false;
	fetch->pending = fetch->pull_count;
	for (uint32_t i = 0; i < fetch->pull_count; i++) {
		struct pull *pull = &fetch->pulls[i];

		pull->job = fetch->job;
		pull->owner = fetch;
		pull->memory = NULL;
		pull->done = came;
		pull_start(pull);
	}
}
