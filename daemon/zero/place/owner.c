/* SPDX-License-Identifier: Apache-2.0 */
/* See owner.h. */
#include "daemon/zero/place/owner.h"

#include <string.h>

#include "common/base/assert.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/set.h"

/* Is @owner's rank here in any replica of the set? Members that divide a plane are consecutive. */
static bool is_owned_here(const struct zero_job *job, const struct zero_set *set, uint32_t owner)
{
	for (uint32_t member = owner; member < set->member_count; member += set->shard_count)
		if (job->here_mask >> set_rank(set, member) & 1)
			return true;
	return false;
}

static void count_none(struct zero_job *job)
{
	job->here_count = 0;
	job->here_elements = 0;
	job->kept_count = 0;
	job->kept_elements = 0;
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		job->units[i].here_count = job->units[i].kept_count = 0;
}

static void count_here(struct zero_job *job, const struct zero_subgroup *subgroup)
{
	assert(subgroup->is_kept || !subgroup->is_here);
	if (subgroup->is_kept) {
		job->units[subgroup->unit].kept_count++;
		job->kept_count++;
		job->kept_elements += subgroup->element_count;
	}
	if (!subgroup->is_here)
		return;
	job->units[subgroup->unit].here_count++;
	job->here_count++;
	job->here_elements += subgroup->element_count;
}

/* Members train the unit. */
static void count_shares(struct zero_job *job, const struct zero_set *set, uint64_t padded_count)
{
	for (uint32_t i = 0; i < set->member_count; i++) {
		struct zi_share *share = &job->shares[set_rank(set, i)];

		share->padded_count += padded_count;
		share->largest_count = ZI_MAX(share->largest_count, padded_count);
	}
}

/* The units of a set, by themselves: others do not matter to its members. */
static void deal_set(struct zero_job *job, const struct zero_set *set)
{
	bool are_params_divided = zi_strategy_divides_params(job->training.strategy);
	struct zi_owners owners, finishers;

	zi_owners_init(&owners, set->shard_count);
	zi_owners_init(&finishers, set->member_count);
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		const struct zero_unit *unit = &job->units[i];

		if (set_of(job, i) != set)
			continue;
		for (uint32_t k = 0; k < unit->subgroup_count; k++) {
			struct zero_subgroup *subgroup = &job->subgroups[unit->subgroup_first + k];
			uint32_t owner = zi_owners_deal(&owners, subgroup->element_count);
			uint32_t finisher = zi_owners_deal(&finishers, subgroup->element_count);

			subgroup->is_here = is_owned_here(job, set, owner);
			subgroup->is_param_here = subgroup->is_here || !are_params_divided;
			subgroup->is_kept = subgroup->is_here ||
			                    (subgroup->is_param_here && job_stores_param(job));
			subgroup->owner = (uint8_t)owner;
			subgroup->finisher = (uint8_t)set_rank(set, finisher);
			count_here(job, subgroup);
		}
		count_shares(job, set, unit->padded_count);
	}
	for (uint32_t i = 0; i < set->member_count; i++)
		job->shares[set_rank(set, i)].owned_count +=
			owners.element_counts[i % set->shard_count];
}

/* Ranks have come to be others, or the strategy has. Nothing may be in flight. */
void owners_build(struct zero_job *job)
{
	count_none(job);
	memset(job->shares, 0, sizeof(job->shares));
	for (uint32_t i = 0; i < job->set_count; i++)
		deal_set(job, &job->sets[i]);
	assert(job->here_elements <= job->padded_count);
}

/* Documented in the header. */
void owners_take(struct zero_job *job, const uint8_t *had)
{
	bool are_params_divided = zi_strategy_divides_params(job->training.strategy);

	count_none(job);
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[i];

		subgroup->is_here = had[i] & OWNER_HOLDS;
		subgroup->is_param_here = subgroup->is_here || !are_params_divided;
		subgroup->is_kept = had[i];
		count_here(job, subgroup);
	}
}

/* Documented in the header. */
void owners_go_back(struct zero_job *job, bool is_elsewhere)
{
	bool are_params_divided = zi_strategy_divides_params(job->training.strategy);

	count_none(job);
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		struct zero_subgroup *subgroup = &job->subgroups[i];

		if (is_elsewhere)
			subgroup->is_here = subgroup->is_former_here;
		subgroup->is_param_here = subgroup->is_here || !are_params_divided;
		subgroup->is_kept =
			subgroup->is_here || subgroup->places[ZERO_PLANE_PARAM].extent.bytes;
		count_here(job, subgroup);
	}
}

/* Return: zeros while there is no model. */
struct zi_plane_bytes owner_logical_bytes(const struct zero_job *job, uint32_t rank)
{
	struct zi_plane_bytes bytes = { 0 };

	assert(rank < job->world);
	if (!job->units)
		return bytes;
	zi_logical_bytes(&job->shares[rank], &job->config, &job->training, &bytes);
	return bytes;
}
