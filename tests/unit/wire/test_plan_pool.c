/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the pool of a job that names no budget has room for three of the largest unit beside the
 * small ones, and is bounded. Method: figures by hand, of plans of models of blocks; of real jobs:
 * tests/unit/zero/test_plan.c.
 */
#include <criterion/criterion.h>

#include "common/wire/plan.h"
#include "common/wire/plan_pool.h"

#define MIB      (1ull << 20)
#define SUBGROUP 262144ull
#define BLOCK    (2 * 2 * SUBGROUP) /* bytes of a block, in bf16 */
#define SMALL    (SUBGROUP / 4)     /* elements: an eighth of a block */

/* Of a model of blocks of two subgroups and of small units: bytes of its pool. */
static uint64_t pool_of(uint32_t block_count, uint64_t small_padded, uint32_t small_count)
{
	uint64_t units[200] = { 0 };
	const struct zi_plan_model model = {
		.unit_count = block_count + small_count,
		.unit_padded = units,
		.element_count = block_count * 2 * SUBGROUP + small_count * small_padded,
		.padded_count = block_count * 2 * SUBGROUP + small_count * small_padded,
	};
	const struct zi_plan_options options = {
		.config = { .param_dtype = ZI_DTYPE_BF16,
		            .grad_dtype = ZI_DTYPE_BF16,
		            .optimizer = ZI_OPTIMIZER_ADAMW,
		            .schedule = ZI_SCHEDULE_LOCAL,
		            .offload_optimizer = ZI_OFFLOAD_NVME,
		            .offload_param = ZI_OFFLOAD_NVME },
		.local_ranks = 1,
		.world_size = 1,
	};
	struct zi_text text = { "" };
	struct zi_plan plan;

	for (uint32_t i = 0; i < model.unit_count; i++)
		units[i] = i < block_count ? 2 * SUBGROUP : small_padded;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	return plan.param_cpu_bytes;
}

Test(plan_pool, three_of_the_largest_beside_the_small_units)
{
	cr_expect_eq(pool_of(20, 4096, 0), 3 * BLOCK);
	cr_expect_eq(pool_of(20, 4096, 2), 3 * BLOCK + 2 * 2 * 4096);
	cr_expect_eq(pool_of(20, SMALL, 3), 3 * BLOCK + 3 * BLOCK / 8);
	cr_expect_eq(pool_of(20, SMALL + 4096, 3), 3 * BLOCK, "more than an eighth");
}

Test(plan_pool, small_units_take_at_most_one_more_of_the_largest)
{
	cr_expect_eq(pool_of(20, SMALL, 8), 4 * BLOCK);
	cr_expect_eq(pool_of(20, SMALL, 40), 4 * BLOCK);
}

Test(plan_pool, no_more_than_all_and_no_less_than_an_eighth)
{
	cr_expect_eq(pool_of(2, 4096, 2), 2 * BLOCK + 2 * 2 * 4096);
	cr_expect_eq(pool_of(80, 4096, 2), 10 * BLOCK);
	cr_expect_eq(pool_of(80, SMALL, 8), 81 * BLOCK / 8);
}

/* A unit of some kilobytes takes a whole slot, however small, and is small all the same. */
Test(plan_pool, in_slots_of_huge_pages)
{
	const struct zi_plan_pool pool = { .all_bytes = 40 * BLOCK,
		                           .largest_bytes = 2 * MIB,
		                           .small_bytes = 2 * MIB,
		                           .slot_bytes = 2 * MIB,
		                           .is_divided = true };
	struct zi_plan_pool whole = pool;

	cr_expect(zi_plan_pool_is_small(4096, 8 * 4096));
	cr_expect_not(zi_plan_pool_is_small(4096, 7 * 4096));
	cr_expect_eq(zi_plan_pool_bytes(&pool), 8 * MIB);
	whole.is_divided = false;
	cr_expect_eq(zi_plan_pool_bytes(&whole), 8 * MIB, "an eighth is 4 MiB");
	whole.all_bytes = 80 * MIB;
	cr_expect_eq(zi_plan_pool_bytes(&whole), 10 * MIB);
}
