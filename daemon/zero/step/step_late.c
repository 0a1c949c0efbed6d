/* SPDX-License-Identifier: Apache-2.0 */
/* What keeps a step; see step_late.h. Floor 5, shard thread. */
#include "daemon/zero/step/step_late.h"

#include "common/base/clock.h"
#include "daemon/tier/member.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/step/pipeline.h"

static double seconds_since(uint64_t begin_ns)
{
	return (double)(zi_clock_now_ns() - begin_ns) / (double)ZI_NS_PER_S;
}

/* The path with most requests under way; NULL: none has any. */
static const struct tier_member *busiest(const struct tier *tier)
{
	const struct tier_member *most = NULL;

	for (uint32_t i = 0; tier && i < tier->member_count; i++) {
		const struct tier_member *member = &tier->members[i];

		if (member->pace.inflight_count > (most ? most->pace.inflight_count : 0))
			most = member;
	}
	return most;
}

static void say_pipeline(const struct zero_job *job, struct zi_text *text)
{
	const struct zero_pipeline *pipeline = &job->pipeline;
	const struct tier_member *member = job_is_nvme(job) ? busiest(job->nvme_tier) : NULL;

	zi_text_set(text,
	            "step %llu is still being written here: %u reads, %u updates, %u writes under "
	            "way",
	            (unsigned long long)job->step.stats.step, pipeline->reading_count,
	            pipeline->computing_count, pipeline->writing_count);
	if (!member)
		return;
	zi_text_append(text, "; path %.30s has %u requests", member->name,
	               member->pace.inflight_count);
	if (member->pace.bytes_per_s)
		zi_text_append(text, ", and moves %s/s",
		               zi_format_bytes(member->pace.bytes_per_s).chars);
}

/* Documented in the header. */
bool step_say_late(const struct zero_job *job, struct zi_text *ret_text)
{
	const struct tier_member *member;

	if (job->step.phase != ZERO_STEP_UPDATING && job->step.phase != ZERO_STEP_COMMITTING)
		return false;
	if (job->step.phase == ZERO_STEP_UPDATING || job->pipeline.kind != ZERO_PIPELINE_NONE) {
		say_pipeline(job, ret_text);
		return true;
	}
	member = tier_flush_awaited(&job->record_flush.flush);
	if (member)
		zi_text_set(ret_text,
		            "step %llu waits for the flush of path %.30s here, %.1f s by now",
		            (unsigned long long)job->step.stats.step, member->name,
		            seconds_since(job->record_flush.flush.submitted_ns));
	else
		zi_text_set(
			ret_text, "step %llu is being committed here (number %llu), %.1f s by now",
			(unsigned long long)job->step.stats.step,
			(unsigned long long)job->record.number, seconds_since(job->step.commit_ns));
	return true;
}
