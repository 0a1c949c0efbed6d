/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a plan says what docs/ARITHMETIC.md's layout takes, what cannot be is refused by name, and
 * the setting that is found when a wish does not fit is one that fits. Method: figures by hand;
 * each refusal; models and memories drawn from a seed. Of real jobs: tests/unit/zero/test_plan.c.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/wire/plan.h"

#define MIB       (1ull << 20)
#define SUBGROUP  262144ull
#define CASES     2000u
#define UNITS_MAX 6u

/* Three subgroups, then one, then a block. */
static uint64_t padded[UNITS_MAX] = { 3 * SUBGROUP, SUBGROUP, 4096 };
static struct zi_plan_model model;
static struct zi_plan_options options;
static struct zi_plan plan;
static struct zi_text text;

static void setup(void)
{
	model = (struct zi_plan_model){ .unit_count = 3, .unit_padded = padded };
	model.element_count = model.padded_count = 4 * SUBGROUP + 4096;
	options = (struct zi_plan_options){
		.config = { .param_dtype = ZI_DTYPE_BF16,
		            .grad_dtype = ZI_DTYPE_BF16,
		            .optimizer = ZI_OPTIMIZER_ADAMW,
		            .schedule = ZI_SCHEDULE_LOCAL,
		            .offload_optimizer = ZI_OFFLOAD_NVME },
		.local_ranks = 2,
		.world_size = 2,
	};
}

TestSuite(plan, .init = setup);

Test(plan, of_state_on_nvme_is_its_parts)
{
	const uint64_t count = 4 * SUBGROUP + 4096;

	options.config.resident_bytes = 3 * MIB; /* one subgroup of 2.5 MiB */
	options.tensor_bytes = 5000;
	options.arena_bytes = 3 * MIB;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	cr_expect_eq(plan.slot_bytes, 4096);
	cr_expect_eq(plan.param_cpu_bytes, 2 * count);
	cr_expect_eq(plan.grad_cpu_bytes, 2 * 2 * count);
	cr_expect_eq(plan.accum_cpu_bytes, 0);
	cr_expect_eq(plan.state_cpu_bytes, 10 * SUBGROUP);
	cr_expect_eq(plan.staging_cpu_bytes, 4 * 10 * SUBGROUP, "a slot for each of the rest");
	cr_expect_eq(plan.staging_min_bytes, 3 * 10 * SUBGROUP);
	cr_expect_eq(plan.tensor_cpu_bytes, 2 * 8192);
	cr_expect_eq(plan.coll_cpu_bytes, 2 * 3 * MIB);
	cr_expect_eq(plan.copy_cpu_bytes, 2 * 3 * SUBGROUP, "of the largest unit");
	cr_expect_eq(plan.cpu_bytes,
	             6 * count + 5 * 10 * SUBGROUP + 2 * 8192 + 6 * MIB + 3 * MIB / 2);
	cr_expect_eq(plan.param_nvme_bytes, 2 * count);
	cr_expect_eq(plan.state_nvme_bytes, 10 * count);
	cr_expect_eq(plan.reserved_nvme_bytes, 2 * 12 * count);
	cr_expect_eq(plan.write_bytes_per_step, 12 * count);
	cr_expect_eq(plan.read_bytes_per_step, 10 * (count - SUBGROUP));
	cr_expect_eq(plan.pool_min_bytes, 0);
	options.snapshot_count = 2;
	options.config.commit_interval = 2;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	cr_expect_eq(plan.reserved_nvme_bytes, 4 * 12 * count + 10 * (count - SUBGROUP));
}

Test(plan, forward_only_is_parameters_alone)
{
	const uint64_t count = 4 * SUBGROUP + 4096;

	options.training.flags = ZI_TRAINING_FORWARD_ONLY;
	/* Of no effect where nothing is trained. */
	options.config.schedule = ZI_SCHEDULE_SHARDED;
	options.config.resident_bytes = 3 * MIB;
	options.config.commit_interval = 4;
	options.training.strategy = ZI_STRATEGY_ZERO2;
	options.snapshot_count = 1;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	cr_expect_eq(plan.param_cpu_bytes, 2 * count);
	cr_expect_eq(plan.grad_cpu_bytes + plan.accum_cpu_bytes + plan.state_cpu_bytes, 0);
	cr_expect_eq(plan.staging_cpu_bytes + plan.staging_min_bytes, 0);
	cr_expect_eq(plan.cpu_bytes, plan.param_cpu_bytes + plan.copy_cpu_bytes);
	cr_expect_eq(plan.param_nvme_bytes, 2 * count);
	cr_expect_eq(plan.state_nvme_bytes + plan.grad_nvme_bytes, 0);
	cr_expect_eq(plan.reserved_nvme_bytes, 3 * 2 * count);
	cr_expect_eq(plan.read_bytes_per_step + plan.write_bytes_per_step, 0);
	/* From NVMe: a pool, and a few slots for who gives values. */
	options.config.offload_param = ZI_OFFLOAD_NVME;
	options.config.param_budget_bytes = 3 * MIB / 2;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	cr_expect_eq(plan.param_cpu_bytes, 3 * MIB / 2);
	cr_expect_eq(plan.staging_cpu_bytes, 5 * 2 * SUBGROUP, "each has one");
	cr_expect_eq(plan.read_bytes_per_step, 2 * count);
	padded[0] = 30 * SUBGROUP;
	model = (struct zi_plan_model){ padded[0], padded[0], 1, 0, padded, 0, NULL, NULL };
	options.config.param_budget_bytes = 0;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	cr_expect_eq(plan.staging_cpu_bytes, ZI_PLAN_SLOTS_FORWARD * 2 * SUBGROUP);
	options.config.staging_bytes = MIB;
	cr_expect_eq(zi_plan_make(&model, &options, &plan, &text), -EINVAL);
	cr_expect_not_null(strstr(text.chars, "writing parameters needs 3 slots"), "%s",
	                   text.chars);
}

Test(plan, forward_only_finds_its_setting_too)
{
	struct zi_job_config config;

	padded[0] = 200 * SUBGROUP;
	padded[1] = padded[2] = 4 * SUBGROUP;
	model = (struct zi_plan_model){
		208 * SUBGROUP, 208 * SUBGROUP, 3, 0, padded, 0, NULL, NULL
	};
	options.training.flags = ZI_TRAINING_FORWARD_ONLY;
	options.config.offload_optimizer = ZI_OFFLOAD_NONE;
	/* 104 MiB of parameters, and as many beside them for who gives values: 204. */
	cr_assert_eq(zi_plan_fit(&model, &options, 204 * MIB, UINT64_MAX, &config, &text), 0, "%s",
	             text.chars);
	cr_expect_str_eq(text.chars, "it fits");
	model.unit_count = 2;
	padded[0] = 4 * SUBGROUP;
	padded[1] = 4 * SUBGROUP;
	model.element_count = model.padded_count = 8 * SUBGROUP;
	cr_assert_eq(zi_plan_fit(&model, &options, 11 * MIB / 2, UINT64_MAX, &config, &text), 0,
	             "%s", text.chars);
	cr_expect_str_eq(text.chars, "it fits with offload_optimizer nvme, offload_param nvme, "
	                             "param_budget_bytes 2097152, staging_bytes 1572864");
}

Test(plan, huge_pages_are_taken_where_they_cost_little)
{
	padded[0] = 64 * SUBGROUP;
	model = (struct zi_plan_model){ 64 * SUBGROUP, 64 * SUBGROUP, 1, 0, padded, 0, NULL, NULL };
	options.wants_huge = true;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	cr_expect_eq(plan.slot_bytes, 2 * MIB);
	padded[0] = 4096;
	model.padded_count = 4096;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	cr_expect_eq(plan.slot_bytes, 4096);
}

static void refused(const char *words)
{
	struct zi_plan before = { .cpu_bytes = 7 };

	plan = before;
	cr_expect_eq(zi_plan_make(&model, &options, &plan, &text), -EINVAL, "%s", words);
	cr_expect_not_null(strstr(text.chars, words), "\"%s\" does not say \"%s\"", text.chars,
	                   words);
	cr_expect_eq(plan.cpu_bytes, 7, "untouched");
	setup();
}

Test(plan, what_cannot_be_is_named)
{
	options.config.optimizer = 77;
	refused("optimizer is 77");
	options.config.staging_bytes = 3 * 10 * SUBGROUP - 1;
	refused("a step needs 3 slots of 2.5 MiB, at least 7864320 bytes");
	options.config.offload_param = ZI_OFFLOAD_NVME;
	options.config.param_budget_bytes = 4096;
	refused("the largest unit takes 1.5 MiB, grant at least 1572864 bytes");
	options.tensor_bytes = (1ull << 50) + 1;
	refused("tensor_bytes is 1125899906842625: of this model at most 1125899906842624 can be");
	options.arena_bytes = UINT64_MAX;
	refused("arena_bytes is 18446744073709551615");
	model.unit_count = 1;
	padded[0] = model.padded_count = 1ull << 50;
	options.snapshot_count = 342; /* of 12 PiB each: 2^62 are 341 and a third */
	refused("snapshot_count is 342: of this model at most 341 can be");
	padded[0] = 3 * SUBGROUP;
	options.local_ranks = 3;
	refused("3 ranks on a node of 2");
	options.local_ranks = 0;
	refused("0 ranks on a node of 2");
	options.world_size = 65;
	refused("2 ranks on a node of 65");
	model.unit_count = 0;
	refused("a model without units");
	model.padded_count--;
	refused("units have 1052672 elements together, the model 1052671");
	padded[1] = 4097;
	refused("unit 1 has 4097 elements");
	padded[1] = 1ull << 51;
	refused("unit 1 has 2251799813685248 elements");
	padded[1] = 1ull << 50;
	refused("more than 2^50");
}

static void fits_with(uint64_t cpu_bytes, const char *words)
{
	struct zi_job_config config;

	cr_expect_eq(zi_plan_fit(&model, &options, cpu_bytes, UINT64_MAX, &config, &text), 0, "%s",
	             text.chars);
	cr_expect_str_eq(text.chars, words);
}

/* Parameters 2 Mi, gradients 4 Mi, a copy 1.5 Mi, 10 Mi of state, and a block. */
Test(plan, each_concession_is_told_by_the_fields_to_set)
{
	struct zi_job_config config = { .io_weight = 7 };

	options.config.offload_optimizer = ZI_OFFLOAD_CPU;
	fits_with(37 * MIB / 2, "it fits");
	fits_with(35 * MIB / 2, "it fits with offload_optimizer nvme, staging_bytes 7864320");
	options.config.offload_optimizer = ZI_OFFLOAD_NVME;
	options.config.resident_bytes = 5 * MIB;
	options.config.staging_bytes = 9 * MIB;
	fits_with(43 * MIB / 2, "it fits");
	fits_with(37 * MIB / 2, "it fits with resident_bytes 2621440");
	fits_with(31 * MIB / 2, "it fits with resident_bytes 0");
	options.config.resident_bytes = 0;
	options.config.staging_bytes = 0;
	fits_with(31 * MIB / 2, "it fits with staging_bytes 7864320");
	options.config.resident_bytes = 11 * MIB;
	options.config.staging_bytes = 4096; /* nothing is staged */
	fits_with(37 * MIB / 2, "it fits");
	fits_with(31 * MIB / 2, "it fits with resident_bytes 0, staging_bytes 7864320");
	cr_expect_eq(zi_plan_fit(&model, &options, MIB, UINT64_MAX, &config, &text), -ENOSPC);
	cr_expect_not_null(strstr(text.chars, "of memory (there are 1 MiB) and"), "%s", text.chars);
	cr_expect_null(strstr(text.chars, "of NVMe (there"), "any: %s", text.chars);
	cr_expect_eq(zi_plan_fit(&model, &options, 14 * MIB, MIB, &config, &text), -ENOSPC);
	cr_expect_not_null(strstr(text.chars, "of NVMe (there are 1 MiB)"), "%s", text.chars);
	cr_expect_eq(config.io_weight, 7, "untouched");
	options.local_ranks = 0;
	cr_expect_eq(zi_plan_fit(&model, &options, MIB, MIB, &config, &text), -EINVAL);
}

/* 16 units of a subgroup: 8 MiB of gradients for each of 4 ranks with ddp; with zero2 they have two
 * buckets each, and 8 MiB of sums once. */
Test(plan, another_strategy_is_found_where_no_setting_of_one_fits)
{
	uint64_t units[16];
	struct zi_plan_options found = options;
	struct zi_job_config config;

	for (size_t i = 0; i < ZI_COUNT_OF(units); i++)
		units[i] = SUBGROUP;
	model = (struct zi_plan_model){ .unit_count = 16, .unit_padded = units };
	model.element_count = model.padded_count = 16 * SUBGROUP;
	options.local_ranks = options.world_size = 4;
	options.training.strategy = ZI_STRATEGY_DDP;
	cr_assert_eq(zi_plan_fit(&model, &options, 28 * MIB, UINT64_MAX, &config, &text), -ENOSPC);
	cr_assert_eq(zi_plan_fit_strategy(&model, &options, 28 * MIB, UINT64_MAX, &found, &text), 0,
	             "%s", text.chars);
	cr_expect_eq(found.training.strategy, ZI_STRATEGY_ZERO2);
	cr_expect_eq(strncmp(text.chars, "it fits with ", 13), 0, "%s", text.chars);
	cr_assert_eq(zi_plan_make(&model, &found, &plan, &text), 0, "%s", text.chars);
	cr_expect_leq(plan.cpu_bytes, 28 * MIB);
	cr_expect_eq(zi_plan_fit_strategy(&model, &options, MIB, UINT64_MAX, &found, &text),
	             -ENOSPC);
	cr_expect_eq(found.training.strategy, ZI_STRATEGY_ZERO2, "untouched");
	options.training.strategy = ZI_STRATEGY_DP;
	cr_expect_eq(zi_plan_fit_strategy(&model, &options, 28 * MIB, UINT64_MAX, &found, &text),
	             0);
	cr_expect_eq(found.training.strategy, ZI_STRATEGY_ZERO2, "for ranks of their own");
}

Test(plan, a_store_that_is_too_small_is_used_less_or_not_at_all)
{
	const uint64_t held_bytes = 12 * (4 * SUBGROUP + 4096);
	struct zi_job_config config;

	options.config.commit_interval = 4;
	cr_assert_eq(zi_plan_fit(&model, &options, 64 * MIB, 3 * held_bytes, &config, &text), 0);
	cr_expect_str_eq(text.chars, "it fits");
	cr_assert_eq(zi_plan_fit(&model, &options, 64 * MIB, 2 * held_bytes, &config, &text), 0);
	cr_expect_str_eq(text.chars, "it fits with commit_interval 1");
	cr_assert_eq(zi_plan_fit(&model, &options, 18 * MIB, 2 * held_bytes - 1, &config, &text),
	             0);
	cr_expect_str_eq(text.chars, "it fits with offload_optimizer cpu");
	options.config.offload_param = ZI_OFFLOAD_NVME;
	options.config.param_budget_bytes = 2 * MIB;
	cr_assert_eq(zi_plan_fit(&model, &options, 18 * MIB, 0, &config, &text), 0);
	cr_expect_str_eq(text.chars, "it fits with offload_optimizer cpu, offload_param cpu, "
	                             "param_budget_bytes 0");
	cr_expect_eq(zi_plan_fit(&model, &options, 17 * MIB, 0, &config, &text), -ENOSPC);
}

/* State that was moved to the store for want of memory, or parameters, or a share of the state that
 * stays in memory no more: what steps write between commits finds no room there then. */
Test(plan, each_step_is_committed_where_a_concession_leaves_no_room_for_a_third_set)
{
	const uint64_t held_bytes = 12 * (4 * SUBGROUP + 4096);
	struct zi_job_config config;

	options.config.commit_interval = 4;
	options.config.offload_optimizer = ZI_OFFLOAD_CPU;
	cr_assert_eq(zi_plan_fit(&model, &options, 35 * MIB / 2, 2 * held_bytes, &config, &text), 0,
	             "%s", text.chars);
	cr_expect_str_eq(text.chars, "it fits with offload_optimizer nvme, commit_interval 1, "
	                             "staging_bytes 7864320");
	options.config.offload_optimizer = ZI_OFFLOAD_NVME;
	options.config.resident_bytes = 11 * MIB;
	options.config.staging_bytes = 9 * MIB;
	cr_assert_eq(zi_plan_fit(&model, &options, 31 * MIB / 2, 2 * held_bytes, &config, &text), 0,
	             "%s", text.chars);
	cr_expect_str_eq(text.chars, "it fits with commit_interval 1, resident_bytes 0");
}

/* Three slots of its largest subgroup are more than all state of this model: 7.5 MiB, and 2.6. */
Test(plan, state_that_takes_less_than_its_staging_is_left_in_memory)
{
	uint64_t units[] = { SUBGROUP, 4096, 4096, 4096 };

	model = (struct zi_plan_model){ .unit_count = ZI_COUNT_OF(units), .unit_padded = units };
	model.element_count = model.padded_count = SUBGROUP + 3 * 4096;
	fits_with(5 * MIB, "it fits with offload_optimizer cpu");
	options.config.offload_param = ZI_OFFLOAD_NVME;
	fits_with(5 * MIB, "it fits with offload_optimizer cpu, offload_param cpu");
}

Test(plan, what_is_committed_on_nvme_is_not_told_to_leave_it)
{
	uint64_t units[] = { SUBGROUP, 4096, 4096, 4096 };
	struct zi_job_config config = { .io_weight = 7 };

	options.stays_on_nvme = true;
	cr_expect_eq(zi_plan_fit(&model, &options, 64 * MIB, MIB, &config, &text), -ENOSPC);
	cr_expect_not_null(strstr(text.chars, "with all on NVMe it takes"), "%s", text.chars);
	model = (struct zi_plan_model){ .unit_count = ZI_COUNT_OF(units), .unit_padded = units };
	model.element_count = model.padded_count = SUBGROUP + 3 * 4096;
	cr_expect_eq(zi_plan_fit(&model, &options, 5 * MIB, UINT64_MAX, &config, &text), -ENOSPC);
	cr_expect_not_null(strstr(text.chars, "with all on NVMe it takes"), "%s", text.chars);
	cr_expect_eq(config.io_weight, 7, "untouched");
	fits_with(20 * MIB, "it fits");
	fits_with(10 * MIB, "it fits with staging_bytes 7864320");
}

/* The least that a job may take, with state where it was wished or on NVMe. */
static bool least_fits(uint64_t cpu_bytes, uint64_t nvme_bytes, uint32_t state, uint32_t param)
{
	struct zi_plan_options least = options;

	least.config.offload_optimizer = state;
	least.config.offload_param = param;
	least.config.resident_bytes = 0;
	least.config.commit_interval = 1;
	least.config.staging_bytes = 1ull << 62;
	least.config.param_budget_bytes = 0;
	if (zi_plan_make(&model, &least, &plan, NULL))
		return false;
	least.config.staging_bytes = plan.staging_min_bytes;
	least.config.param_budget_bytes = plan.pool_min_bytes;
	return !zi_plan_make(&model, &least, &plan, NULL) && plan.cpu_bytes <= cpu_bytes &&
	       plan.reserved_nvme_bytes <= nvme_bytes;
}

/* Of 16 units of a subgroup: parameters 8 Mi, gradients 16 Mi, a copy 0.5 Mi, state 40 Mi; a slot
 * of staging that holds parameters as well 3 Mi. */
Test(plan, of_pools_the_largest_that_fits_is_named)
{
	uint64_t equal[16];

	for (uint32_t i = 0; i < ZI_COUNT_OF(equal); i++)
		equal[i] = SUBGROUP;
	model = (struct zi_plan_model){ .unit_count = ZI_COUNT_OF(equal), .unit_padded = equal };
	model.element_count = model.padded_count = ZI_COUNT_OF(equal) * SUBGROUP;
	options.config.offload_optimizer = ZI_OFFLOAD_CPU;
	fits_with(129 * MIB / 2, "it fits");
	fits_with(129 * MIB / 2 - 1, "it fits with offload_optimizer nvme, staging_bytes 7864320");
	fits_with(63 * MIB / 2, "it fits with offload_optimizer nvme, offload_param nvme, "
	                        "staging_bytes 9437184");
	fits_with(53 * MIB / 2, "it fits with offload_optimizer nvme, offload_param nvme, "
	                        "param_budget_bytes 1048576, staging_bytes 9437184");
	fits_with(53 * MIB / 2 - 1, "it fits with offload_optimizer nvme, offload_param nvme, "
	                            "param_budget_bytes 524288, staging_bytes 9437184");
	/* What there is room for after all is left as it was. */
	options.default_staging_bytes = 10 * MIB;
	fits_with(63 * MIB / 2, "it fits with offload_optimizer nvme, offload_param nvme");
}

static uint64_t random_state = 1;

static uint64_t draw(uint64_t below)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (random_state * 0x2545f4914f6cdd1dull >> 20) % below;
}

static void draw_wish(void)
{
	model = (struct zi_plan_model){ .unit_count = 1 + (uint32_t)draw(UNITS_MAX),
		                        .unit_padded = padded };
	for (uint32_t i = 0; i < model.unit_count; i++) {
		padded[i] = 4096 * (1 + draw(draw(2) ? 100 : 1000));
		model.padded_count += padded[i];
	}
	options.config.offload_optimizer = draw(2) ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU;
	options.config.resident_bytes = draw(2) * draw(20 * MIB);
	options.config.staging_bytes = draw(2) * draw(40 * MIB);
	options.config.commit_interval = (uint32_t)draw(3);
	options.wants_huge = draw(2);
}

Test(plan, what_is_found_fits_and_is_no_more_than_was_wished)
{
	unsigned counts[2] = { 0 };

	for (uint32_t i = 0; i < CASES; i++) {
		uint64_t cpu_bytes = draw(64 * MIB), nvme_bytes = draw(200 * MIB);
		struct zi_job_config config;
		int r;

		draw_wish();
		r = zi_plan_fit(&model, &options, cpu_bytes, nvme_bytes, &config, &text);
		if (r) {
			cr_assert(r == -ENOSPC || zi_plan_make(&model, &options, &plan, NULL) == r,
			          "%s", text.chars);
			if (r != -ENOSPC)
				continue;
			cr_assert_not(
				least_fits(cpu_bytes, nvme_bytes, ZI_OFFLOAD_CPU, ZI_OFFLOAD_NONE));
			cr_assert_not(least_fits(cpu_bytes, nvme_bytes, ZI_OFFLOAD_NVME,
			                         ZI_OFFLOAD_NONE));
			cr_assert_not(least_fits(cpu_bytes, nvme_bytes, ZI_OFFLOAD_NVME,
			                         ZI_OFFLOAD_NVME));
			continue;
		}
		counts[0]++;
		counts[1] += memcmp(&config, &options.config, sizeof(config)) != 0;
		cr_assert_leq(config.resident_bytes, options.config.resident_bytes);
		options.config = config;
		cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
		cr_assert_leq(plan.cpu_bytes, cpu_bytes);
		cr_assert_leq(plan.reserved_nvme_bytes, nvme_bytes);
		setup();
	}
	cr_assert_gt(counts[0], CASES / 10, "%u fit", counts[0]);
	cr_assert_gt(counts[1], CASES / 50, "%u were changed", counts[1]);
}

/* ---- sets of ranks ---- */

static void refuses_sets(uint64_t first, uint64_t second, uint32_t shard_size, const char *words)
{
	const uint64_t members[] = { first, second };
	const uint32_t sets[] = { 0, 1 };

	model.set_count = 2;
	model.set_members = members;
	model.unit_sets = sets;
	options.training.shard_size = shard_size;
	cr_expect_eq(zi_plan_make(&model, &options, &plan, &text), -EINVAL, "%s", words);
	cr_expect_not_null(strstr(text.chars, words), "%s", text.chars);
}

Test(plan, sets_that_cannot_be_are_refused)
{
	const uint32_t beyond[] = { 0, 2 };
	const uint64_t members[] = { 1, 2 };

	padded[0] = padded[1] = SUBGROUP;
	model = (struct zi_plan_model){ .unit_count = 2, .unit_padded = padded };
	model.element_count = model.padded_count = 2 * SUBGROUP;
	options.local_ranks = 2;
	options.world_size = 4;
	options.training.strategy = ZI_STRATEGY_ZERO1;
	refuses_sets(1, 0, 0, "data-parallel group 1 has no ranks");
	refuses_sets(1, 0x11, 0, "group 1 has no ranks, or ranks beyond the 4 of the job");
	refuses_sets(0x7, 0x8, 2, "group 0 has 3 ranks, which shard_size 2 does not divide");
	options.training.shard_size = 0;
	model.unit_sets = beyond;
	model.set_members = members;
	cr_expect_eq(zi_plan_make(&model, &options, &plan, &text), -EINVAL);
	cr_expect_not_null(strstr(text.chars, "unit 1 is in data-parallel group 2 of 2"), "%s",
	                   text.chars);
	model.set_count = ZI_SETS_MAX + 1;
	cr_expect_eq(zi_plan_make(&model, &options, &plan, &text), -EINVAL);
	cr_expect_not_null(strstr(text.chars, "257 data-parallel groups: 256 are allowed"), "%s",
	                   text.chars);
	model.set_count = 0;
	options.here_mask = 0x8;
	cr_expect_eq(zi_plan_make(&model, &options, &plan, &text), -EINVAL);
	cr_expect_not_null(strstr(text.chars, "2 ranks on a node, 1 are named"), "%s", text.chars);
}

/* Rank 3's node holds what only it trains, and a page for gradients where it trains nothing. */
Test(plan, a_node_holds_what_its_ranks_train)
{
	const uint64_t members[] = { 0x7, 0x8 };
	const uint32_t sets[] = { 0, 1 }, all[] = { 0, 0 };

	padded[0] = 3 * SUBGROUP;
	padded[1] = SUBGROUP;
	model = (struct zi_plan_model){ .unit_count = 2,
		                        .unit_padded = padded,
		                        .set_count = 2,
		                        .set_members = members,
		                        .unit_sets = sets };
	model.element_count = model.padded_count = 4 * SUBGROUP;
	options.local_ranks = 1;
	options.world_size = 4;
	options.here_mask = 0x8;
	options.node_count = 2;
	options.config.offload_optimizer = ZI_OFFLOAD_CPU;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	cr_expect_eq(plan.param_cpu_bytes, 4 * SUBGROUP * 2, "all parameters");
	cr_expect_eq(plan.state_cpu_bytes, SUBGROUP * 10);
	cr_expect_eq(plan.grad_cpu_bytes, 2 * SUBGROUP * 2, "its own, and the sum");
	model.unit_sets = all;
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	cr_expect_eq(plan.state_cpu_bytes, 0);
	cr_expect_eq(plan.grad_cpu_bytes, 4096);
}
