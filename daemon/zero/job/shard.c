/* SPDX-License-Identifier: Apache-2.0 */
/* A node's own parameters; see shard.h. Floor 5, shard thread. */
#include "daemon/zero/job/shard.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/bytes/lent.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/memory.h"

/* Documented in the header, as are the others. */
int shard_plan(struct zero_job *job, struct zi_text *text)
{
	uint64_t bytes = job_param_bytes(job, job->here_elements);
	uint64_t lent = lent_bytes(job);

	if (lent)
		return err_trace(memory_plan_segment(job, "zinf-lent", lent, memory_pages(lent),
		                                     &job->lent, text));
	if (!job_has_pool(job) || job_stores_param(job) || job->shard || !bytes)
		return 0;
	return err_trace(memory_plan_segment(job, "zinf-shard", bytes, memory_pages(bytes),
	                                     &job->shard, text));
}

void shard_place(struct zero_job *job)
{
	uint64_t offset = 0;

	if (!job->shard)
		return;
	for_each_subgroup_here(job, subgroup) {
		subgroup->shard_offset = offset;
		offset += job_subgroup_param_bytes(job, subgroup);
	}
	assert(offset <= job->shard->bytes);
}

void lent_drop(struct zero_job *job)
{
	if (job->lent)
		tier_segment_unregister(job->lent);
	job->lent = tier_segment_unref(job->lent);
}

void shard_drop(struct zero_job *job)
{
	if (job->shard)
		tier_segment_unregister(job->shard);
	job->shard = tier_segment_unref(job->shard);
}
