/* SPDX-License-Identifier: Apache-2.0 */
/* See part.h. */
#include "daemon/zero/param/part.h"

#include "common/base/assert.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/step/queue.h"

bool part_has(const struct zero_op *op, uint32_t index)
{
	uint32_t run;

	if (!op->part_run)
		return true;
	run = index / op->part_run;
	return run < ZI_PART_BITS && op->part[run / 64] >> run % 64 & 1;
}

/* Over nodes updates come from elsewhere: such a job has no parts. */
bool part_is_updated(const struct zero_job *job, const struct zero_op *op)
{
	const struct zero_unit *unit = &job->units[op->unit];

	assert(unit->update_count > 0);
	if (!op->part_run || job->across)
		return false;
	for (uint32_t i = 0; i < unit->subgroup_count; i++)
		if (job->subgroups[unit->subgroup_first + i].is_update_due && part_has(op, i))
			return false;
	return true;
}

static bool is_wanted(const void *arg, const struct zero_subgroup *subgroup)
{
	const struct zero_op *op = arg;

	return subgroup->unit == op->unit && part_has(op, subgroup->index);
}

void part_prefer(struct zero_job *job, struct zero_op *op)
{
	if (op->is_preferred || job->pipeline.kind != ZERO_PIPELINE_UPDATE)
		return;
	op->is_preferred = true;
	queue_prefer(job, is_wanted, op);
}
