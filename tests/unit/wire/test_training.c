/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a job's tail of ATTACH may say is judged by name: values, pairs that do not go
 * together, what is not built, what differs between ranks. Method: a good value of each kind, then
 * one rule broken at a time; every word is met once by the comparison. */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/wire/training.h"

static struct zi_text text;
static struct zi_job_config config = { .param_dtype = ZI_DTYPE_BF16,
	                               .grad_dtype = ZI_DTYPE_BF16,
	                               .optimizer = ZI_OPTIMIZER_ADAMW,
	                               .schedule = ZI_SCHEDULE_LOCAL };

static void expect_text(const char *words)
{
	cr_expect_not_null(strstr(text.chars, words), "'%s' in '%s'", words, text.chars);
}

static struct zi_job_training with_scaler(uint32_t kind)
{
	return (struct zi_job_training){ .scaler_kind = kind,
		                         .scale_window = 1000,
		                         .scale_hysteresis = 2,
		                         .scale_init = 65536,
		                         .scale_min = 1,
		                         .scale_max = 16777216,
		                         .scale_growth = 2,
		                         .scale_backoff = 0.5 };
}

/* Of 8 ranks, all here. */
static int check(const struct zi_job_training *training)
{
	text.chars[0] = '\0';
	return zi_check_training(training, &config, 8, 8, &text);
}

static void expect_refused(struct zi_job_training training, const char *words)
{
	cr_expect_eq(check(&training), -EINVAL, "%s", words);
	expect_text(words);
	cr_expect_eq(zi_check_training(&training, &config, 8, 8, NULL), -EINVAL);
}

Test(training, all_zero_is_sound_and_so_is_every_strategy)
{
	for (uint32_t i = 0; i < _ZI_STRATEGY_COUNT; i++) {
		struct zi_job_training training = { .strategy = i };

		cr_expect_eq(check(&training), 0, "%s", text.chars);
	}
	cr_expect_str_eq(zi_scaler_name(ZI_SCALER_TORCH), "torch");
	cr_expect_str_eq(zi_scaler_name(_ZI_SCALER_COUNT), "?");
}

Test(training, words_that_nobody_sends_are_eproto)
{
	struct zi_job_training training = { .flags = ZI_TRAINING_FLAGS_ALL + 1 };

	cr_expect_eq(check(&training), -EPROTO);
	training = (struct zi_job_training){ .reserved0 = 1 };
	cr_expect_eq(check(&training), -EPROTO);
	for (size_t i = 0; i < sizeof(training.reserved) / sizeof(training.reserved[0]); i++) {
		training = (struct zi_job_training){ 0 };
		training.reserved[i] = 1ull << 63;
		cr_expect_eq(check(&training), -EPROTO);
		expect_text("reserved");
	}
}

Test(training, the_first_value_too_many_is_refused_by_name)
{
	struct zi_job_training most = { .strategy = ZI_STRATEGY_ZERO3,
		                        .shard_size = 8,
		                        .accumulation = 65536,
		                        .reduce_dtype = ZI_DTYPE_BF16,
		                        .group_count = 64 };

	cr_expect_eq(check(&most), 0, "%s", text.chars);
	most.accumulation = 1;
	most.grad_budget_bytes = INT64_MAX;
	cr_expect_eq(check(&most), 0, "%s", text.chars);
	expect_refused((struct zi_job_training){ .strategy = 6 }, "strategy is 6: 0 to 5");
	expect_refused((struct zi_job_training){ .accumulation = 65537 }, "accumulation is 65537");
	expect_refused((struct zi_job_training){ .reduce_dtype = 4 }, "reduce_dtype is 4: 0 to 3");
	expect_refused((struct zi_job_training){ .scaler_kind = 5 }, "scaler is 5: 0 to 4");
	expect_refused((struct zi_job_training){ .group_count = 65 }, "group_count is 65: 0 to 64");
	expect_refused((struct zi_job_training){ .grad_budget_bytes = 1ull << 63 },
	               "grad_budget_bytes must be below 2^63");
	expect_refused((struct zi_job_training){ .strategy = ZI_STRATEGY_ZERO2, .shard_size = 65 },
	               "shard_size is 65: 0 to 64");
}

Test(training, a_shard_divides_the_ranks_of_a_strategy_that_shards)
{
	expect_refused((struct zi_job_training){ .strategy = ZI_STRATEGY_ZERO1, .shard_size = 3 },
	               "shard_size is 3: it must divide the 8 ranks");
	expect_refused((struct zi_job_training){ .shard_size = 2 },
	               "shard_size is 2, but strategy ddp shards nothing");
	expect_refused((struct zi_job_training){ .strategy = ZI_STRATEGY_DP, .shard_size = 8 },
	               "strategy dp shards nothing");
	for (uint32_t size = 1; size <= 8; size *= 2) {
		struct zi_job_training training = { .strategy = ZI_STRATEGY_ZERO3,
			                            .shard_size = size };

		cr_expect_eq(check(&training), 0, "%u", size);
	}
}

Test(training, over_nodes_dp_has_no_meaning)
{
	struct zi_job_training training = { .strategy = ZI_STRATEGY_DP };
	struct zi_job_config on_nvme = config;

	cr_expect_eq(zi_check_training(&training, &config, 8, 4, &text), -EINVAL);
	expect_text("4 of 8 ranks are on this node: use ddp");
	on_nvme.offload_optimizer = on_nvme.offload_param = ZI_OFFLOAD_NVME;
	for (uint32_t i = ZI_STRATEGY_DDP; i < _ZI_STRATEGY_COUNT; i++) {
		training.strategy = i;
		cr_expect_eq(zi_check_training(&training, &config, 8, 4, &text), 0);
		cr_expect_eq(zi_check_training(&training, &on_nvme, 8, 8, &text), 0);
		cr_expect_eq(zi_check_training(&training, &on_nvme, 8, 4, &text), 0);
	}
}

/* With parameters on NVMe, or with zero3 over nodes, and nowhere else. */
Test(training, a_budget_for_parameters_needs_a_pool)
{
	for (uint32_t i = 0; i < _ZI_STRATEGY_COUNT; i++) {
		struct zi_job_training training = { .strategy = i };
		struct zi_job_config wanted = config;
		uint32_t local = i == ZI_STRATEGY_DP ? 8 : 4;

		wanted.param_budget_bytes = 1 << 20;
		cr_expect_eq(zi_check_training(&training, &wanted, 8, 8, &text), -EINVAL);
		expect_text("param_budget_bytes is for offload_param nvme");
		cr_expect_eq(zi_check_training(&training, &wanted, 8, local, &text),
		             i == ZI_STRATEGY_ZERO3 ? 0 : -EINVAL);
		wanted.offload_optimizer = wanted.offload_param = ZI_OFFLOAD_NVME;
		cr_expect_eq(zi_check_training(&training, &wanted, 8, 8, &text), 0);
	}
}

Test(training, accumulation_is_of_the_local_schedule)
{
	struct zi_job_training training = { .accumulation = 4 };
	struct zi_job_config sharded = config;

	sharded.schedule = ZI_SCHEDULE_SHARDED;
	cr_expect_eq(check(&training), 0);
	cr_expect_eq(zi_check_training(&training, &sharded, 1, 1, &text), -EINVAL);
	expect_text("accumulation is 4, but with grad_reduction per_micro_batch");
	training.accumulation = 1;
	cr_expect_eq(zi_check_training(&training, &sharded, 1, 1, &text), 0);
}

Test(training, a_scaler_is_judged_by_its_own_rules)
{
	for (uint32_t kind = ZI_SCALER_STATIC; kind < _ZI_SCALER_COUNT; kind++) {
		struct zi_job_training training = with_scaler(kind);

		cr_expect_eq(check(&training), 0, "%s", text.chars);
		training.scale_init = NAN;
		expect_refused(training, "loss scale: init nan");
		training = with_scaler(kind);
		training.scale_window = 0;
		cr_expect_eq(check(&training), kind == ZI_SCALER_STATIC ? 0 : -EINVAL);
	}
}

Test(training, a_scaler_goes_into_the_words_and_out_of_them)
{
	for (uint32_t kind = ZI_SCALER_NONE; kind < _ZI_SCALER_COUNT; kind++) {
		struct zi_scaler_options options = zi_scaler_defaults((enum zi_scaler_kind)kind);
		struct zi_job_training training = { .flags = ZI_TRAINING_FIND_UNUSED };
		struct zi_scaler_options back;

		options.is_consecutive = kind == ZI_SCALER_DEEPSPEED;
		zi_training_set_scaler(&training, &options);
		cr_expect_eq(check(&training), 0, "%s", text.chars);
		cr_expect_eq(training.flags & ~ZI_TRAINING_CONSECUTIVE, ZI_TRAINING_FIND_UNUSED);
		back = zi_training_scaler(&training);
		cr_expect_eq(back.kind, kind);
		if (kind == ZI_SCALER_NONE)
			continue; /* its words are zero, whatever they were */
		cr_expect_eq(back.window, options.window);
		cr_expect_eq(back.hysteresis, options.hysteresis);
		cr_expect_eq(back.is_consecutive, options.is_consecutive);
		cr_expect_eq(back.init, options.init);
		cr_expect_eq(back.growth, options.growth);
		cr_expect_eq(back.backoff, options.backoff);
		cr_expect_eq(back.min, options.min);
		cr_expect_eq(back.max, options.max);
		options.is_consecutive = false;
		zi_training_set_scaler(&training, &options);
		cr_expect_eq(training.flags, ZI_TRAINING_FIND_UNUSED);
	}
}

Test(training, words_of_a_scale_without_a_scaler_are_a_mistake)
{
	const struct zi_job_training full = with_scaler(ZI_SCALER_NONE);
	const struct zi_job_training cases[] = {
		{ .scale_window = full.scale_window },
		{ .scale_hysteresis = 1 },
		{ .scale_init = full.scale_init },
		{ .scale_min = 1 },
		{ .scale_max = 1 },
		{ .scale_growth = 2 },
		{ .scale_backoff = NAN },
		{ .flags = ZI_TRAINING_CONSECUTIVE },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_refused(cases[i], "but scaler is none");
}

/* ---- between ranks ---- */

Test(training, every_word_that_differs_is_named_with_both_values)
{
	const struct zi_job_training base = with_scaler(ZI_SCALER_TORCH);
	struct {
		struct zi_job_training other;
		const char *words;
	} cases[] = {
		{ base, "strategy is zero2, but ddp in rank 3" },
		{ base, "shard_size is 4, but 0 in rank 3" },
		{ base, "accumulation is 2, but 1 in" },
		{ base, "reduce_dtype is f32, but bf16 in" },
		{ base, "scaler is apex, but torch in" },
		{ base, "scale_window is 7, but 1000 in" },
		{ base, "scale_hysteresis is 3, but 2 in" },
		{ base, "is_consecutive is true, but false in" },
		{ base, "is_forward_only is true, but false in" },
		{ base, "finds_unused is true, but false in" },
		{ base, "group_count is 2, but 1 in" },
		{ base, "grad_budget_bytes is 2 MiB, but 0 B in" },
		{ base, "scale_init is 65537, but 65536 in" },
		{ base, "scale_min is 0.5, but 1 in" },
		{ base, "scale_max is 3, but 16777216 in" },
		{ base, "scale_growth is 3, but 2 in" },
		{ base, "scale_backoff is 0.25, but 0.5 in" },
	};

	cases[0].other.strategy = ZI_STRATEGY_ZERO2;
	cases[1].other.shard_size = 4;
	cases[2].other.accumulation = 2;
	cases[3].other.reduce_dtype = ZI_DTYPE_F32;
	cases[4].other.scaler_kind = ZI_SCALER_APEX;
	cases[5].other.scale_window = 7;
	cases[6].other.scale_hysteresis = 3;
	cases[7].other.flags = ZI_TRAINING_CONSECUTIVE;
	cases[8].other.flags = ZI_TRAINING_FORWARD_ONLY;
	cases[9].other.flags = ZI_TRAINING_FIND_UNUSED;
	cases[10].other.group_count = 2;
	cases[11].other.grad_budget_bytes = 2 << 20;
	cases[12].other.scale_init = 65537;
	cases[13].other.scale_min = 0.5;
	cases[14].other.scale_max = 3;
	cases[15].other.scale_growth = 3;
	cases[16].other.scale_backoff = 0.25;
	cr_expect_eq(zi_training_compare(&base, &base, &config, "rank 3", &text), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_expect_eq(zi_training_compare(&cases[i].other, &base, &config, "rank 3", &text),
		             -EINVAL);
		expect_text(cases[i].words);
	}
}

/* f32 holds values of 16 bits; neither of those holds the other's. */
Test(training, sums_have_a_type_that_gradients_have_room_for)
{
	const struct {
		uint32_t grad, reduce;
		int result;
		bool is_wide;
	} cases[] = {
		{ ZI_DTYPE_F32, ZI_DTYPE_BF16, 0, false },
		{ ZI_DTYPE_F32, ZI_DTYPE_F16, 0, false },
		{ ZI_DTYPE_BF16, ZI_DTYPE_F32, 0, true },
		{ ZI_DTYPE_F16, ZI_DTYPE_F16, 0, false },
		{ ZI_DTYPE_F16, 0, 0, false },
		{ ZI_DTYPE_BF16, ZI_DTYPE_F16, -EINVAL, false },
		{ ZI_DTYPE_F16, ZI_DTYPE_BF16, -EINVAL, false },
	};
	struct zi_job_config kept = config;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct zi_job_training training = { .reduce_dtype = cases[i].reduce };

		config.grad_dtype = cases[i].grad;
		cr_expect_eq(check(&training), cases[i].result, "%zu: %s", i, text.chars);
		if (cases[i].result)
			expect_text("use f32, or grad_dtype f32");
		cr_expect_eq(zi_training_has_wide_sums(&training, &config), cases[i].is_wide);
	}
	config = kept;
}

Test(training, another_word_for_the_same_is_no_difference)
{
	const struct zi_job_training zero = { 0 };
	const struct zi_job_training said = { .strategy = ZI_STRATEGY_DDP,
		                              .accumulation = 1,
		                              .reduce_dtype = ZI_DTYPE_BF16,
		                              .group_count = 1 };

	cr_expect_eq(zi_training_compare(&zero, &said, &config, "others", &text), 0);
	cr_expect_eq(zi_training_compare(&said, &zero, &config, "others", &text), 0);
}

Test(training, budget_of_gradients_is_for_those_that_are_divided)
{
	struct zi_job_training training = { .grad_budget_bytes = 4096 };

	for (uint32_t i = 0; i < ZI_STRATEGY_ZERO2; i++) {
		training.strategy = i;
		cr_expect_eq(check(&training), -EINVAL);
		expect_text("grad_budget_bytes is 4 KiB, but strategy");
	}
	training.strategy = ZI_STRATEGY_ZERO2;
	cr_expect_eq(check(&training), 0, "%s", text.chars);
	training.accumulation = 2;
	cr_expect_eq(check(&training), -EINVAL);
	expect_text("with accumulation 2 each rank adds up all gradients");
	training.accumulation = 0;
	cr_expect_eq(check(&training), 0, "%s", text.chars);
}
