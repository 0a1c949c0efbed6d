/* SPDX-License-Identifier: Apache-2.0 */
/* See owner.h. */
#include "common/wire/owner.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/wire/geometry.h"
#include "common/wire/strategy.h"

/* Units of parameters that are there at a time: in use, on its way, and being let go (as the pool
 * has them, memory.c). */
#define OWNER_LIVE_UNITS 3u

/* @member_count: 1 to ZI_WORLD_MAX. */
void zi_owners_init(struct zi_owners *owners, uint32_t member_count)
{
	assert(member_count > 0);
	assert(member_count <= ZI_WORLD_MAX);
	*owners = (struct zi_owners){ .member_count = member_count };
}

/*
 * Each goes to the member with the fewest elements so far, of equals to the lowest: then no member
 * has more than one subgroup over the mean. In turns it would not be so: units of a full and a tiny
 * subgroup would give all full ones to the same member. Return: member.
 */
uint32_t zi_owners_deal(struct zi_owners *owners, uint64_t element_count)
{
	uint32_t least = 0;

	assert(owners->member_count > 0);
	for (uint32_t i = 1; i < owners->member_count; i++)
		if (owners->element_counts[i] < owners->element_counts[least])
			least = i;
	owners->element_counts[least] += element_count;
	return least;
}

/* @unit_padded: as zi_geometry_padded() gives them. */
void zi_owners_deal_units(struct zi_owners *owners, const uint64_t *unit_padded,
                          uint32_t unit_count)
{
	for (uint32_t unit = 0; unit < unit_count; unit++) {
		uint32_t count = zi_geometry_subgroup_count(unit_padded[unit]);

		for (uint32_t i = 0; i < count; i++)
			(void)zi_owners_deal(owners,
			                     zi_geometry_subgroup_elements(unit_padded[unit], i));
	}
}

bool zi_params_are_lent(const struct zi_job_training *training, bool has_sets)
{
	return has_sets || zi_strategy_divides_state(training->strategy);
}

/* A size that does not divide the members was refused before it came here (zi_check_training());
 * of what a catalog says all the same, all of them share. */
uint32_t zi_shard_members(const struct zi_job_training *training, uint32_t member_count)
{
	if (!zi_strategy_divides_state(training->strategy))
		return 1;
	if (!training->shard_size || training->shard_size > member_count ||
	    member_count % training->shard_size)
		return member_count;
	return training->shard_size;
}

/* Whoever owns all has nothing to fetch, or to send away. */
static uint64_t beside(const struct zi_share *share, uint64_t count)
{
	return ZI_MIN(count, share->padded_count - share->owned_count);
}

static uint64_t held_count(const struct zi_share *share, bool is_divided)
{
	return is_divided ? share->owned_count : share->padded_count;
}

/*
 * Gradients of several micro-batches are added up where they arise with the local schedule: that
 * takes all of them. With the sharded one the owner adds them up, in fp32, whatever came in
 * between having passed through the buckets.
 */
bool zi_grads_are_divided(const struct zi_job_config *config,
                          const struct zi_job_training *training)
{
	return zi_strategy_divides_grads(training->strategy) &&
	       (config->schedule == ZI_SCHEDULE_SHARDED || training->accumulation <= 1);
}

static void logical_grads(const struct zi_share *share, const struct zi_job_config *config,
                          const struct zi_job_training *training, struct zi_plane_bytes *bytes)
{
	uint64_t width = zi_dtype_bytes((enum zi_dtype)config->grad_dtype);
	bool is_sharded = config->schedule == ZI_SCHEDULE_SHARDED;
	bool is_divided = zi_grads_are_divided(config, training);
	uint64_t bucket_count = beside(share, ZI_BUCKETS * share->largest_count);

	bytes->grad = held_count(share, is_divided) * width;
	if (is_divided && training->grad_budget_bytes)
		bytes->grad_buckets = ZI_MIN(training->grad_budget_bytes,
		                             beside(share, share->padded_count) * width);
	else if (is_divided)
		bytes->grad_buckets = bucket_count * width;
	if (is_sharded || zi_training_has_wide_sums(training, config))
		bytes->accum = held_count(share, is_divided) * sizeof(float);
}

/*
 * zi_logical_bytes() - the table of strategies, for one rank
 * @share: of the model; owned_count is what zi_owners_deal() gave it among zi_shard_members()
 * @config: types, optimizer, schedule, budget
 * @training: strategy
 * @ret_bytes: written
 *
 * Where nothing is offloaded and no rank shares memory with another this is what lies in it.
 * Context: any thread.
 */
void zi_logical_bytes(const struct zi_share *share, const struct zi_job_config *config,
                      const struct zi_job_training *training, struct zi_plane_bytes *ret_bytes)
{
	enum zi_dtype dtype = (enum zi_dtype)config->param_dtype;
	uint64_t width = zi_dtype_bytes(dtype);
	uint32_t strategy = training->strategy;
	struct zi_plane_bytes bytes = {
		.param = held_count(share, zi_strategy_divides_params(strategy)) * width,
	};

	assert(share->owned_count <= share->padded_count);
	if (zi_strategy_divides_params(strategy) && config->param_budget_bytes)
		bytes.param_live = ZI_MIN(config->param_budget_bytes,
		                          beside(share, share->padded_count) * width);
	else if (zi_strategy_divides_params(strategy))
		bytes.param_live = beside(share, OWNER_LIVE_UNITS * share->largest_count) * width;
	if (!zi_training_is_forward_only(training)) {
		bytes.state = held_count(share, zi_strategy_divides_state(strategy)) *
		              zi_state_element_bytes((enum zi_optimizer)config->optimizer, dtype);
		logical_grads(share, config, training, &bytes);
	}
	*ret_bytes = bytes;
}

/* Return: of all planes. */
uint64_t zi_plane_bytes_sum(const struct zi_plane_bytes *bytes)
{
	return bytes->param + bytes->param_live + bytes->grad + bytes->grad_buckets + bytes->accum +
	       bytes->state;
}
