/* SPDX-License-Identifier: Apache-2.0 */
/* See start.h. What is given back was allocated before: going back cannot fail. */
#include "daemon/zero/job/start.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/set.h"
#include "daemon/zero/place/owner.h"
#include "daemon/zero/step/scale.h"

static int keep_names(const struct zero_job *job, struct zero_layout *named)
{
	int r;

	named->unit_count = job->layout.unit_count;
	named->units = calloc(named->unit_count, sizeof(*named->units));
	if (!named->units)
		return err_origin(-ENOMEM);
	r = layout_take_sets(named, &job->layout);
	if (r)
		layout_free(named);
	return err_trace(r);
}

/* Documented in the header, as are the others. */
int start_keep(struct zero_job *job)
{
	struct zero_start *start = &job->before;
	int r;

	assert(!start->is_kept);
	if (!job->is_stored || !job->units)
		return 0;
	assert(job->world > 0);
	r = keep_names(job, &start->named);
	start->sets = calloc(job->set_count, sizeof(*start->sets));
	start->had = calloc(job->subgroup_count, sizeof(*start->had));
	if (!r && (!start->sets || !start->had))
		r = err_origin(-ENOMEM);
	if (r) {
		start_forget(job);
		return err_trace(r);
	}
	memcpy(start->sets, job->sets, job->set_count * sizeof(*start->sets));
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		start->had[i] = (uint8_t)((job->subgroups[i].is_here ? OWNER_HOLDS : 0) |
		                          (job->subgroups[i].is_kept ? OWNER_KEEPS : 0));
	start->is_kept = true;
	start->config = job->config;
	start->training = job->training;
	start->is_training_known = job->is_training_known;
	start->world = job->world;
	start->here_mask = job->here_mask;
	start->set_count = job->set_count;
	return 0;
}

void start_undo(struct zero_job *job)
{
	struct zero_start *start = &job->before;

	if (!start->is_kept)
		return;
	job->config = start->config;
	if (job->flow)
		(void)nvme_flow_weigh(job->flow, job->config.io_weight);
	job->training = start->training;
	job->is_training_known = start->is_training_known;
	job->world = start->world;
	job->here_mask = start->here_mask;
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		job->layout.units[i].member_set = start->named.units[i].member_set;
	free(job->layout.sets);
	job->layout.sets = zi_steal(start->named.sets);
	job->layout.set_count = start->named.set_count;
	free(job->sets);
	job->sets = zi_steal(start->sets);
	job->set_count = start->set_count;
	owners_build(job);
	owners_take(job, start->had);
	scale_resume(job);
	start_forget(job);
}

void start_forget(struct zero_job *job)
{
	struct zero_start *start = &job->before;

	layout_free(&start->named);
	free(start->sets);
	free(start->had);
	*start = (struct zero_start){ 0 };
}
