/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job's gradients take: a segment for each rank that is here, which it writes, and with the
 * sharded schedule fp32 sums. All of it serves one incarnation. Floor 5, shard thread.
 */
#include "daemon/zero/grad/plan.h"

#include "common/base/err.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/memory.h"

/* See plan.h. */
int grads_plan(struct zero_job *job, struct zi_text *text)
{
	bool is_huge = job->slot_bytes == ZI_HUGE_PAGE_BYTES;
	uint64_t accum_bytes = job->padded_count * sizeof(float);
	int r;

	for_each_rank_here(job, rank) {
		r = memory_plan_segment(job, "zinf-grad", set_grad_bytes(job, rank),
		                        is_huge ? TIER_PAGES_COLLAPSED : TIER_PAGES_SMALL,
		                        &job->grads[rank], text);
		if (r)
			return err_trace(r);
	}
	if (job->config.schedule != ZI_SCHEDULE_SHARDED)
		return 0;
	return err_trace(memory_plan_segment(job, "zinf-accum", accum_bytes,
	                                     memory_pages(accum_bytes), &job->accum, text));
}

/* See plan.h. */
void grads_drop(struct zero_job *job)
{
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		job->grads[i] = tier_segment_unref(job->grads[i]);
	job->accum = tier_segment_unref(job->accum);
}

static uint64_t held_bytes(const struct tier_segment *segment)
{
	return segment ? segment->bytes : 0;
}

/* Return: of the plane, on this node; the accumulator is one of its own. */
uint64_t grads_held_bytes(const struct zero_job *job)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		bytes += held_bytes(job->grads[i]);
	return bytes;
}
