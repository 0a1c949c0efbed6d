/* SPDX-License-Identifier: Apache-2.0 */
/* Where sums are written; see spill_space.h, as for all that are not static. */
#include "daemon/zero/grad/spill_space.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

uint64_t spill_bytes(const struct zero_job *job)
{
	return job->spill ? job->spill->stored_bytes : 0;
}

void spill_add_due(const struct zero_job *job, uint64_t *bytes, uint64_t *sum)
{
	for (uint32_t i = 0; job->spill && i < job->subgroup_count; i++) {
		const struct tier_extent *next = &job->subgroups[i].sum_place.next;

		if (!next->bytes)
			continue;
		bytes[next->member - job->nvme_tier->members] += next->bytes;
		*sum += next->bytes;
	}
}

static int refuse(struct zero_job *job, uint64_t free_bytes, struct zi_text *text)
{
	return err_origin(zi_text_error(
		text, -ENOSPC,
		"gradients of a step of job '%s' need %s of new space on %s, %s are free (%s)",
		job->name, zi_format_bytes(spill_bytes(job)).chars, job->nvme_tier->name,
		zi_format_bytes(free_bytes).chars, tier_paths(job->nvme_tier).chars));
}

/* Twice the bytes for bits that nobody keeps. Over nodes no update is early. */
static int refuse_f32(struct zero_job *job, struct zi_text *text)
{
	return err_origin(zi_text_error(
		text, -EINVAL,
		"gradients never go to NVMe in f32: %s of the sums of job '%s' have no room in "
		"grad_budget_bytes: grant at least %llu, or use grad_dtype bf16%s",
		zi_format_bytes(spill_bytes(job)).chars, job->name,
		(unsigned long long)(job->training.grad_budget_bytes + spill_bytes(job)),
		job->across ? "" : ", or update_early without a norm"));
}

int spill_reserve(struct zero_job *job, struct zi_text *text)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);
	uint64_t free_bytes;
	int r = 0;

	if (!spill_bytes(job))
		return 0; /* None, or such as pass through a slot alone. */
	if (job->config.grad_dtype == ZI_DTYPE_F32)
		return err_trace(refuse_f32(job, text));
	free_bytes = tier_extent_free_bytes(job->nvme_tier);
	for_each_subgroup_here(job, subgroup) {
		if (!r && subgroup->is_sum_stored)
			r = tier_extent_reserve(job->nvme_tier, ZERO_LANE_SUM,
			                        (uint64_t)subgroup->element_count * width,
			                        &subgroup->sum_place.next);
	}
	if (!r)
		return 0;
	spill_release(job);
	return r == TIER_E_FULL ? err_trace(refuse(job, free_bytes, text)) : err_fold(r);
}

void spill_release(struct zero_job *job)
{
	assert(spill_is_idle(job));
	for (uint32_t i = 0; job->spill && i < job->subgroup_count; i++)
		tier_extent_release(&job->subgroups[i].sum_place.next);
}
