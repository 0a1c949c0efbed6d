/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: subgroups are dealt out so that nobody has more than one of them over the mean, alike
 * whoever asks, and all of them; what each rank stands for is the table of strategies, to the byte.
 * Method: layouts drawn from a seed for 1 to 64 members; the table by hand for 1, 2, 3, 4 and 8
 * ranks; the words that change it, one by one.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/wire/geometry.h"
#include "common/wire/owner.h"

#define SUBGROUP  ((uint64_t)ZI_SUBGROUP_ELEMENTS)
#define CASES     300u
#define UNITS_MAX 40u

static uint64_t state = 0x243f6a8885a308d3ull;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static uint64_t draw_units(uint64_t *padded, uint32_t count)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < count; i++) {
		padded[i] = zi_geometry_padded(1 + draw(draw(2) ? 5 * SUBGROUP : 3 * 4096));
		sum += padded[i];
	}
	return sum;
}

Test(owner, nobody_has_more_than_a_subgroup_over_the_mean)
{
	uint64_t padded[UNITS_MAX];

	for (uint32_t i = 0; i < CASES; i++) {
		uint32_t unit_count = 1 + (uint32_t)draw(UNITS_MAX);
		uint32_t members = 1 + (uint32_t)draw(ZI_WORLD_MAX);
		uint64_t sum = draw_units(padded, unit_count), dealt = 0;
		struct zi_owners owners;

		zi_owners_init(&owners, members);
		zi_owners_deal_units(&owners, padded, unit_count);
		for (uint32_t k = 0; k < members; k++) {
			dealt += owners.element_counts[k];
			cr_assert_leq(owners.element_counts[k], sum / members + SUBGROUP,
			              "case %u: member %u of %u has %llu of %llu", i, k, members,
			              (unsigned long long)owners.element_counts[k],
			              (unsigned long long)sum);
		}
		cr_assert_eq(dealt, sum, "case %u: %llu of %llu", i, (unsigned long long)dealt,
		             (unsigned long long)sum);
	}
}

/* In turns, all full ones would go to member 0. */
Test(owner, full_and_tiny_subgroups_by_turns_are_dealt_evenly)
{
	struct zi_owners owners;

	zi_owners_init(&owners, 2);
	for (uint32_t i = 0; i < 100; i++) {
		(void)zi_owners_deal(&owners, SUBGROUP);
		(void)zi_owners_deal(&owners, 4096);
	}
	cr_expect_leq(owners.element_counts[0], 50 * (SUBGROUP + 4096) + SUBGROUP);
	cr_expect_leq(owners.element_counts[1], 50 * (SUBGROUP + 4096) + SUBGROUP);
}

Test(owner, of_equals_the_lowest_is_first)
{
	struct zi_owners owners;

	zi_owners_init(&owners, 3);
	cr_expect_eq(zi_owners_deal(&owners, 4096), 0);
	cr_expect_eq(zi_owners_deal(&owners, 8192), 1);
	cr_expect_eq(zi_owners_deal(&owners, 4096), 2);
	cr_expect_eq(zi_owners_deal(&owners, 4096), 0);
	cr_expect_eq(zi_owners_deal(&owners, 4096), 2);
}

Test(owner, dealing_unit_by_unit_is_dealing_their_subgroups)
{
	const uint64_t padded[] = { 2 * SUBGROUP + 4096, 4096, SUBGROUP };
	const uint64_t subgroups[] = { SUBGROUP, SUBGROUP, 4096, 4096, SUBGROUP };
	struct zi_owners by_units, by_hand;

	zi_owners_init(&by_units, 4);
	zi_owners_init(&by_hand, 4);
	zi_owners_deal_units(&by_units, padded, ZI_COUNT_OF(padded));
	for (uint32_t i = 0; i < ZI_COUNT_OF(subgroups); i++)
		(void)zi_owners_deal(&by_hand, subgroups[i]);
	cr_expect_arr_eq(by_units.element_counts, by_hand.element_counts,
	                 sizeof(by_hand.element_counts));
}

/* ---- the table ---- */

static struct zi_job_config config;
static struct zi_job_training training;

static void setup(void)
{
	config = (struct zi_job_config){ .param_dtype = ZI_DTYPE_BF16,
		                         .grad_dtype = ZI_DTYPE_BF16,
		                         .optimizer = ZI_OPTIMIZER_ADAMW,
		                         .schedule = ZI_SCHEDULE_LOCAL };
	training = (struct zi_job_training){ 0 };
}

TestSuite(table, .init = setup);

/* A model of 48 equal units of a subgroup each, which 1, 2, 3, 4 and 8 ranks divide evenly. */
static struct zi_plane_bytes of(uint32_t strategy, uint32_t rank_count)
{
	struct zi_share share = { .padded_count = 48 * SUBGROUP, .largest_count = SUBGROUP };
	struct zi_plane_bytes bytes;
	struct zi_owners owners;

	training.strategy = strategy;
	zi_owners_init(&owners, zi_shard_members(&training, rank_count));
	for (uint32_t i = 0; i < 48; i++)
		(void)zi_owners_deal(&owners, SUBGROUP);
	share.owned_count = owners.element_counts[0];
	zi_logical_bytes(&share, &config, &training, &bytes);
	return bytes;
}

Test(table, every_strategy_is_its_row)
{
	static const uint32_t ranks[] = { 1, 2, 3, 4, 8 };
	const uint64_t all = 48 * SUBGROUP;

	for (uint32_t i = 0; i < ZI_COUNT_OF(ranks); i++)
		for (uint32_t s = ZI_STRATEGY_DEFAULT; s < _ZI_STRATEGY_COUNT; s++) {
			struct zi_plane_bytes bytes = of(s, ranks[i]);
			uint64_t part = all / ranks[i];
			bool is_zero1 = s >= ZI_STRATEGY_ZERO1;
			bool is_zero2 = s >= ZI_STRATEGY_ZERO2;
			bool is_zero3 = s >= ZI_STRATEGY_ZERO3;
			bool is_alone = ranks[i] == 1;

			cr_expect_eq(bytes.param, 2 * (is_zero3 ? part : all), "%s of %u",
			             zi_strategy_name(s), ranks[i]);
			cr_expect_eq(bytes.grad, 2 * (is_zero2 ? part : all), "%s of %u",
			             zi_strategy_name(s), ranks[i]);
			cr_expect_eq(bytes.state, 10 * (is_zero1 ? part : all), "%s of %u",
			             zi_strategy_name(s), ranks[i]);
			cr_expect_eq(bytes.param_live,
			             is_zero3 && !is_alone ? 3 * 2 * SUBGROUP : 0);
			cr_expect_eq(bytes.grad_buckets,
			             is_zero2 && !is_alone ? 2 * 2 * SUBGROUP : 0);
			cr_expect_eq(bytes.accum, 0);
			cr_expect_eq(zi_plane_bytes_sum(&bytes),
			             bytes.param + bytes.param_live + bytes.grad +
			                     bytes.grad_buckets + bytes.state);
		}
}

Test(table, shard_size_divides_among_so_many)
{
	training.shard_size = 2;
	cr_expect_eq(of(ZI_STRATEGY_ZERO3, 8).param, 2 * 24 * SUBGROUP);
	cr_expect_eq(of(ZI_STRATEGY_ZERO1, 8).state, 10 * 24 * SUBGROUP);
	cr_expect_eq(of(ZI_STRATEGY_DDP, 8).state, 10 * 48 * SUBGROUP);
	training.strategy = ZI_STRATEGY_ZERO2;
	training.shard_size = 3; /* No part of 8: only a catalog could say so. */
	cr_expect_eq(zi_shard_members(&training, 8), 8);
	training.shard_size = 16;
	cr_expect_eq(zi_shard_members(&training, 8), 8);
}

Test(table, micro_batches_added_up_locally_need_the_whole_gradient)
{
	training.accumulation = 2;
	cr_expect_eq(of(ZI_STRATEGY_ZERO2, 4).grad, 2 * 48 * SUBGROUP);
	cr_expect_eq(of(ZI_STRATEGY_ZERO2, 4).grad_buckets, 0);
	cr_expect_eq(of(ZI_STRATEGY_ZERO2, 4).state, 10 * 12 * SUBGROUP);
}

Test(table, sums_of_the_sharded_schedule_lie_with_the_owner)
{
	config.schedule = ZI_SCHEDULE_SHARDED;
	cr_expect_eq(of(ZI_STRATEGY_DDP, 4).accum, 4 * 48 * SUBGROUP);
	cr_expect_eq(of(ZI_STRATEGY_ZERO1, 4).accum, 4 * 48 * SUBGROUP);
	cr_expect_eq(of(ZI_STRATEGY_ZERO2, 4).accum, 4 * 12 * SUBGROUP);
	cr_expect_eq(of(ZI_STRATEGY_ZERO3, 4).accum, 4 * 12 * SUBGROUP);
}

Test(table, budgets_replace_the_units_that_are_under_way)
{
	training.grad_budget_bytes = 12345 * 2;
	config.param_budget_bytes = 54321 * 2;
	cr_expect_eq(of(ZI_STRATEGY_ZERO3, 4).grad_buckets, 12345 * 2);
	cr_expect_eq(of(ZI_STRATEGY_ZERO3, 4).param_live, 54321 * 2);
	training.grad_budget_bytes = config.param_budget_bytes = UINT64_MAX;
	cr_expect_eq(of(ZI_STRATEGY_ZERO3, 4).grad_buckets, 2 * 36 * SUBGROUP, "all the rest");
	cr_expect_eq(of(ZI_STRATEGY_ZERO3, 4).param_live, 2 * 36 * SUBGROUP, "all the rest");
	cr_expect_eq(of(ZI_STRATEGY_DDP, 4).grad_buckets, 0);
	cr_expect_eq(of(ZI_STRATEGY_DDP, 4).param_live, 0);
}

/* Nothing under way is more than what is not one's own. */
Test(table, a_model_of_one_unit_is_all_of_it)
{
	struct zi_share share = { .padded_count = SUBGROUP, .largest_count = SUBGROUP };
	struct zi_plane_bytes bytes;

	training.strategy = ZI_STRATEGY_ZERO3;
	zi_logical_bytes(&share, &config, &training, &bytes);
	cr_expect_eq(bytes.param, 0, "another rank owns the only subgroup");
	cr_expect_eq(bytes.param_live, 2 * SUBGROUP);
	share.owned_count = SUBGROUP;
	zi_logical_bytes(&share, &config, &training, &bytes);
	cr_expect_eq(bytes.param, 2 * SUBGROUP);
	cr_expect_eq(bytes.param_live, 0);
}
