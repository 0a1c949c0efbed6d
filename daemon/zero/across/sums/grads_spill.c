/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over nodes that go to the store; see grads_spill.h. Floor 5, shard thread. */
#include "daemon/zero/across/sums/grads_spill.h"

#include "common/base/assert.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/grad/spill_write.h"
#include "daemon/zero/job/job.h"

/* Nodes talk, and the step will be, as far as is known: else slots are lost with it
 * (spill_lose()). */
static bool is_going_on(const struct zero_job *job)
{
	return job->step.phase == ZERO_STEP_STEPPING && !job->pipeline.error && job->across &&
	       job->across->grads && !job->across->error && !job->across->is_detached;
}

/* Documented in a header, as are all that are not static. */
void grads_spill_more(struct zero_job *job)
{
	if (!is_going_on(job))
		return;
	grads_finish(job->across->grads);
	grads_take(job->across->grads);
}

bool grads_spill_begin(struct zero_subgroup *subgroup)
{
	if (!spill_is_due(subgroup) || subgroup->spill_slot)
		return true;
	return is_going_on(subgroup->job) && spill_have(subgroup);
}

/* What it is held for may be over. */
static void settle(struct grads *grads, struct zero_subgroup *subgroup)
{
	const struct grads_subgroup *mine =
		&grads->subgroups[job_subgroup_index(grads->job, subgroup)];

	if (!mine->pieces_left && !mine->gives_left && !mine->takes_left && !mine->is_stored)
		spill_give(subgroup);
}

static void stored(struct zero_subgroup *subgroup)
{
	struct zero_job *job = subgroup->job;
	struct grads *grads;

	if (!is_going_on(job)) {
		if (job->step.phase != ZERO_STEP_STEPPING)
			spill_give(subgroup);
		job_settle(job);
		return;
	}
	grads = job->across->grads;
	grads->subgroups[job_subgroup_index(job, subgroup)].is_stored = false;
	settle(grads, subgroup);
	grads_waited(grads);
}

void grads_spill_made(struct grads *grads, struct zero_subgroup *subgroup)
{
	if (!subgroup->spill_slot)
		return;
	if (subgroup->is_here) {
		grads->subgroups[job_subgroup_index(grads->job, subgroup)].is_stored = true;
		grads->wait_count++;
		spill_store(subgroup, stored);
	} else {
		settle(grads, subgroup);
	}
}

void grads_spill_given(struct grads *grads, struct zero_subgroup *subgroup)
{
	if (subgroup->spill_slot)
		settle(grads, subgroup);
}
