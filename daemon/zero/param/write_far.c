/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part of what another one's rank has written; see write_far.h. Floor 5, shard thread, but
 * for build_run(). */
#include "daemon/zero/param/write_far.h"

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/bytes/written.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

static void pulled(struct zero_job *job)
{
	job->write_far.done(job, 0, NULL);
}

static void pull(struct zero_job *job)
{
	struct write_far *far = &job->write_far;
	void *base = job->write_source ? job->write_source->region.base : NULL;

	written_pull(job, far->unit, far->root, base, pulled);
}

static void build_run(struct dev_task *task)
{
	struct zero_job *job = container_of(task, struct zero_job, write_task);

	job->write_far.error = tier_segment_build(job->write_source, &job->write_far.text);
}

static void built(struct dev_task *task)
{
	struct zero_job *job = container_of(task, struct zero_job, write_task);
	struct write_far *far = &job->write_far;
	struct zero *zero = job->zero;

	job_unbusy(job);
	if (!far->error && across_talks(job))
		pull(job);
	else
		far->done(job, far->error ? far->error : -ECANCELED, &far->text);
	job_settle(job);
	zero_drain(zero);
}

/* Documented in the header. */
void write_far_gather(struct zero_job *job, uint32_t unit, uint32_t root, write_gathered_fn done)
{
	uint64_t bytes = job_param_bytes(job, job->units[unit].padded_count);
	struct write_far *far = &job->write_far;
	int r;

	assert(!job->write_source);
	*far = (struct write_far){ .unit = unit, .root = root, .done = done };
	if (!job_stores_param(job) || !job->units[unit].kept_count) {
		pull(job);
		return;
	}
	r = tier_segment_charge(job->cpu_tier, &job->account->account, "zinf-write",
	                        zi_align_up(bytes, job->slot_bytes), TIER_PAGES_SMALL, &far->text,
	                        &job->write_source);
	if (r) {
		done(job, r, &far->text);
		return;
	}
	job->write_task = (struct dev_task){ .run = build_run,
		                             .done = built,
		                             .loop = job->zero->options.loop };
	job_busy(job);
	dev_submit(job->device, &job->write_task);
}
