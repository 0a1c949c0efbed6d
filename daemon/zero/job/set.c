/* SPDX-License-Identifier: Apache-2.0 */
/* See set.h. */
#include "daemon/zero/job/set.h"

#include "common/base/assert.h"
#include "common/wire/owner.h"
#include "daemon/zero/job/job.h"

/* The world has another size, or the strategy is another. */
void sets_build(struct zero_job *job)
{
	struct zero_set *set = &job->set;

	assert(job->world > 0);
	assert(job->world <= ZI_WORLD_MAX);
	*set = (struct zero_set){
		.members = job_mask_of(job->world),
		.member_count = job->world,
		.shard_count = zi_shard_members(&job->training, job->world),
		.average = (float)(1.0 / (double)job->world),
	};
	assert(set->member_count % set->shard_count == 0);
}

/* Return: the set that the unit belongs to. */
const struct zero_set *set_of(const struct zero_job *job, uint32_t unit)
{
	zi_debug_assert(unit < job->layout.unit_count);
	(void)unit;
	return &job->set;
}

uint64_t set_mask_here(const struct zero_job *job, uint32_t unit)
{
	return set_of(job, unit)->members & job->here_mask;
}

uint32_t set_rank(const struct zero_set *set, uint32_t member)
{
	uint64_t rest = set->members;

	assert(member < set->member_count);
	for (; member; member--)
		rest &= rest - 1;
	return (uint32_t)__builtin_ctzll(rest);
}
