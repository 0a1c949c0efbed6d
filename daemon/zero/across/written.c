/* SPDX-License-Identifier: Apache-2.0 */
/* Written parameters from another node; see written.h. Floor 5, shard thread. */
#include "daemon/zero/across/written.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/job/job.h"

static void next(struct across_written *written, struct across_copy *copy);

static void end_one(struct across_written *written)
{
	struct zero_job *job = written->job;

	assert(written->active_count > 0);
	if (--written->active_count == 0)
		written->go_on(job);
}

static void copy_run(struct dev_task *task)
{
	struct across_copy *copy = container_of(task, struct across_copy, task);

	memcpy(copy->target, copy->pull.memory, copy->pull.bytes);
}

static void copy_done(struct dev_task *task)
{
	struct across_copy *copy = container_of(task, struct across_copy, task);
	struct zero_job *job = copy->pull.job;
	struct zero *zero = job->zero;

	copy->across->task_count--;
	job_unbusy(job);
	pull_release(&copy->pull);
	if (copy->across->error)
		across_go_on(copy->across); /* It may wait for this. */
	next(&copy->across->written, copy);
	zero_drain(zero);
}

static void came(struct pull *pull)
{
	struct across_copy *copy = container_of(pull, struct across_copy, pull);

	if (pull->error) {
		end_one(&copy->across->written);
		return;
	}
	copy->task = (struct dev_task){ .run = copy_run,
		                        .done = copy_done,
		                        .loop = pull->job->zero->options.loop };
	copy->across->task_count++;
	job_busy(pull->job);
	dev_submit(pull->job->device, &copy->task);
}

/* The next piece of the unit; none is left, or there is nobody any more to have it from. */
static void next(struct across_written *written, struct across_copy *copy)
{
	struct zero_job *job = written->job;
	uint64_t bytes = job_param_bytes(job, job->units[written->unit].padded_count);
	uint64_t slot_bytes = copy->across->slot_bytes, begin = written->piece * slot_bytes;

	if (begin >= bytes || copy->across->error) {
		end_one(written);
		return;
	}
	copy->target = (char *)job_unit_param(job, written->unit) + begin;
	copy->pull = (struct pull){
		.job = job,
		.node = written->node,
		.what = PULL_WRITTEN,
		.unit = written->unit,
		.number = copy->across->write_count,
		.piece = written->piece++,
		.bytes = ZI_MIN(bytes - begin, slot_bytes),
		.done = came,
	};
	pull_start(&copy->pull);
}

/* Documented in the header, as are the others. */
uint32_t written_count(struct zero_job *job)
{
	return ++job->across->write_count;
}

void written_pull(struct zero_job *job, uint32_t unit, uint32_t root, gather_go_fn go_on)
{
	struct across *across = job->across;
	struct across_written *written = &across->written;

	assert(!written->active_count);
	written->job = job;
	written->unit = unit;
	written->node = job->meeting.nodes[root];
	written->piece = 0;
	written->go_on = go_on;
	written->active_count = ZI_COUNT_OF(written->copies);
	for (uint32_t i = 0; i < ZI_COUNT_OF(written->copies); i++) {
		written->copies[i].across = across;
		next(written, &written->copies[i]);
	}
}

void written_serve(struct zero_job *job)
{
	job->across->written_count = job->across->write_count;
	serve_more(job->across);
}
