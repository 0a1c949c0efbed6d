/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that others may have made; see doubt.h. Floor 5, shard thread. */
#include "daemon/zero/step/doubt.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/grad/plan.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/memory.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/step/pipeline.h"

/* Documented in the header, as are all others. */
bool step_doubt(const struct zero_job *job, struct doubt_name *ret_name)
{
	const struct zero_doubt *doubt = &job->doubt;

	if (!doubt->is_on)
		return false;
	*ret_name = (struct doubt_name){ .step = (int64_t)doubt->step.stats.step,
		                         .number = doubt->number,
		                         .line = doubt->step.line };
	return true;
}

void doubt_keep(struct zero_job *job)
{
	struct zero_doubt *doubt = &job->doubt;

	assert(!doubt->is_on);
	assert(job->step.is_asked);
	assert(!job_is_nvme(job));
	doubt->is_on = true;
	doubt->step = job->step;
	doubt->placement = record_placement(job);
	doubt->number = job->committed.number + 1;
}

void doubt_forget(struct zero_job *job)
{
	if (!job->doubt.is_on)
		return;
	job->doubt.is_on = false;
	grads_drop_sums(job);
}

void doubt_over(struct zero_job *job)
{
	doubt_settled_fn settled = job->doubt.settled;

	assert(job->doubt.is_on);
	assert(job->step.phase == ZERO_STEP_NONE);
	job->step.is_settling = false;
	job->former = (struct zero_former){ 0 }; /* The others have let go what was before. */
	doubt_forget(job);
	settled(job, 0, NULL);
}

void step_doubt_settle(struct zero_job *job, bool is_updated, doubt_settled_fn settled)
{
	struct zero_doubt *doubt = &job->doubt;
	struct zi_text text;

	assert(doubt->is_on);
	assert(job->step.phase == ZERO_STEP_NONE);
	assert(job->pipeline.kind == ZERO_PIPELINE_NONE);
	if (!is_updated) {
		doubt_forget(job);
		settled(job, 0, NULL);
		return;
	}
	if (memory_plan_items(job)) {
		zi_text_set(&text, "no memory for a step that other nodes have made");
		settled(job, err_origin(-ENOMEM), &text);
		return;
	}
	doubt->settled = settled;
	job->step = doubt->step;
	job->step.phase = ZERO_STEP_NONE;
	job->step.is_asked = false;
	job->step.is_settling = true;
	step_units_reset(job);
	job_step_set(job, ZERO_STEP_STEPPING);
	pipeline_start(job, ZERO_PIPELINE_UPDATE);
	step_update(job);
}
