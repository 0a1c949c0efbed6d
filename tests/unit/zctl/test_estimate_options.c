/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: options of zctl estimate mean what they say, leave the rest to the model's source, and are
 * refused with what is possible. Method: lines of words.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "zctl/estimate/options.h"

#define WORDS_MAX 40

static struct estimate_options options;
static struct zi_text text;

/* What a line of words means. */
static int parse(const char *line)
{
	static char copy[512], name[] = "estimate";
	char *words[WORDS_MAX] = { name }, *place = NULL;
	int count = 1;

	text = (struct zi_text){ "" };
	(void)strncpy(copy, line, sizeof(copy) - 1);
	for (char *word = strtok_r(copy, " ", &place); word; word = strtok_r(NULL, " ", &place))
		words[count++] = word;
	return estimate_options_parse(&options, count, words, &text);
}

Test(estimate_options, each_is_taken)
{
	struct estimate_model model = { 0 };
	struct zi_plan_options plan;

	cr_assert_eq(parse("1G --ranks 3 --nodes 2 --dtype f32 --optimizer sgd "
	                   "--grad-reduction per_micro_batch "
	                   "--offload-optimizer nvme --offload-param nvme --resident 1M "
	                   "--param-budget 2M --staging 3M --commit-interval 4 --snapshots 5 "
	                   "--tensors 6M"),
	             0, "%s", text.chars);
	plan = estimate_options_plan(&options, &model);
	cr_expect_eq(plan.local_ranks, 3);
	cr_expect_eq(plan.world_size, 6);
	cr_expect_eq(plan.config.param_dtype, ZI_DTYPE_F32);
	cr_expect_eq(plan.config.grad_dtype, ZI_DTYPE_F32);
	cr_expect_eq(plan.config.optimizer, ZI_OPTIMIZER_SGD);
	cr_expect_eq(plan.config.schedule, ZI_SCHEDULE_SHARDED);
	cr_expect_eq(plan.config.offload_optimizer, ZI_OFFLOAD_NVME);
	cr_expect_eq(plan.config.offload_param, ZI_OFFLOAD_NVME);
	cr_expect_eq(plan.config.resident_bytes, 1 << 20);
	cr_expect_eq(plan.config.param_budget_bytes, 2 << 20);
	cr_expect_eq(plan.config.staging_bytes, 3 << 20);
	cr_expect_eq(plan.config.commit_interval, 4);
	cr_expect_eq(plan.snapshot_count, 5);
	cr_expect_eq(plan.tensor_bytes, 6 << 20);
	cr_expect(plan.wants_huge);
	cr_assert_eq(parse("--arena 7M x --small-pages --units 8 --fit 1G --fit-nvme 2G"), 0, "%s",
	             text.chars);
	plan = estimate_options_plan(&options, &model);
	cr_expect_str_eq(options.source, "x");
	cr_expect_eq(options.unit_count, 8);
	cr_expect_eq(options.fit_cpu_bytes, 1ull << 30);
	cr_expect_eq(options.fit_nvme_bytes, 2ull << 30);
	cr_expect_eq(plan.arena_bytes, 7 << 20);
	cr_expect(!plan.wants_huge);
	cr_assert_eq(parse("--help"), 0);
	cr_expect(options.is_help);
}

Test(estimate_options, what_is_left_open_is_as_the_source_says)
{
	struct estimate_model model = { .dtype = ZI_DTYPE_BF16,
		                        .grad_dtype = ZI_DTYPE_F32,
		                        .optimizer = ZI_OPTIMIZER_LION,
		                        .schedule = ZI_SCHEDULE_SHARDED };
	struct estimate_model empty = { 0 }, half = { .dtype = ZI_DTYPE_F16 };
	struct estimate_model recorded = { .dtype = ZI_DTYPE_F16, .grad_dtype = ZI_DTYPE_F32 };
	struct zi_plan_options plan;

	cr_assert_eq(parse("x"), 0);
	plan = estimate_options_plan(&options, &model);
	cr_expect_eq(plan.config.param_dtype, ZI_DTYPE_BF16);
	cr_expect_eq(plan.config.grad_dtype, ZI_DTYPE_F32);
	cr_expect_eq(plan.config.optimizer, ZI_OPTIMIZER_LION);
	cr_expect_eq(plan.config.schedule, ZI_SCHEDULE_SHARDED);
	plan = estimate_options_plan(&options, &empty);
	cr_expect_eq(plan.config.param_dtype, ZI_DTYPE_BF16);
	cr_expect_eq(plan.config.grad_dtype, ZI_DTYPE_BF16);
	cr_expect_eq(plan.config.optimizer, ZI_OPTIMIZER_ADAMW);
	cr_expect_eq(plan.config.schedule, ZI_SCHEDULE_LOCAL);
	plan = estimate_options_plan(&options, &half);
	cr_expect_eq(plan.config.param_dtype, ZI_DTYPE_BF16);
	plan = estimate_options_plan(&options, &recorded);
	cr_expect_eq(plan.config.param_dtype, ZI_DTYPE_F16, "a job's own");
	cr_expect_eq(plan.config.grad_dtype, ZI_DTYPE_F32);
	cr_assert_eq(parse("x --dtype bf16"), 0);
	plan = estimate_options_plan(&options, &model);
	cr_expect_eq(plan.config.grad_dtype, ZI_DTYPE_BF16, "not the recorded one's");
}

Test(estimate_options, what_cannot_be_is_refused_with_what_can)
{
	static const struct {
		const char *line, *words;
	} wrong[] = {
		{ "", "a SOURCE is needed" },
		{ "a b", "'b' beside 'a'" },
		{ "a --rank 2", "unknown option '--rank': did you mean --ranks?" },
		{ "a -x", "unknown option '-x'" },
		{ "-5G", "unknown option '-5G'" },
		{ "a --ranks", "--ranks needs a value" },
		{ "a --ranks 0", "--ranks 0: 1 to 64 are possible" },
		{ "a --ranks 65", "--ranks 65: 1 to 64" },
		{ "a --ranks 2x", "--ranks 2x: 1 to 64" },
		{ "a --ranks -2", "--ranks -2: 1 to 64" },
		{ "a --ranks 99999999999999999999", "1 to 64" },
		{ "a --ranks 9 --nodes 9", "are 81 ranks: a job has at most 64" },
		{ "a --units 65537", "1 to 65536 are possible" },
		{ "a --dtype f8", "--dtype f8: allowed are f32 f16 bf16" },
		{ "a --optimizer adamx", "allowed are adamw adam sgd adagrad lion" },
		{ "a --grad-reduction both", "allowed are per_step per_micro_batch" },
		{ "a --offload-param disk", "allowed are none cpu nvme" },
		{ "a --resident 5X", "--resident 5X: bytes are needed" },
		{ "a --staging -1", "bytes are needed" },
		{ "a --fit-nvme 1G", "--fit-nvme goes with --fit" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(wrong); i++) {
		cr_expect_eq(parse(wrong[i].line), -EINVAL, "%s", wrong[i].line);
		cr_expect(strstr(text.chars, wrong[i].words), "%s: %s", wrong[i].line, text.chars);
	}
}

/* The result of a line with a strategy, and what it means. */
static int strategy(const char *line, struct zi_job_training *ret_training)
{
	struct estimate_model model = { 0 };
	struct zi_plan_options plan;

	cr_assert_eq(parse(line), 0, "%s", text.chars);
	plan = estimate_options_plan(&options, &model);
	return estimate_options_training(&options, &plan, ret_training, &text);
}

static void write_file(const char *path, const char *json)
{
	FILE *file = fopen(path, "we");

	cr_assert_not_null(file);
	(void)fputs(json, file);
	cr_assert_eq(fclose(file), 0);
}

Test(estimate_options, a_file_of_deepspeeds_says_what_flags_do_not)
{
	char path[] = "/tmp/zinf-estimate.XXXXXX", line[256];
	struct zi_job_training training = { 0 };
	struct estimate_model model = { 0 };
	struct zi_plan_options plan;

	cr_assert_geq(close(mkstemp(path)), 0);
	write_file(path,
	           "{ \"train_micro_batch_size_per_gpu\": \"auto\","
	           "  \"gradient_accumulation_steps\": 4, \"bf16\": { \"enabled\": \"auto\" },"
	           "  \"communication_data_type\": \"fp32\","
	           "  \"optimizer\": { \"type\": \"Lion\", \"params\": { \"lr\": \"auto\" } },"
	           "  \"zero_optimization\": { \"stage\": 3, \"mics_shard_size\": 2,"
	           "    \"offload_param\": { \"device\": \"nvme\", \"max_in_cpu\": 1e6 } } }");
	(void)snprintf(line, sizeof(line), "x --ranks 4 --deepspeed-config %s", path);
	cr_assert_eq(strategy(line, &training), 0, "%s", text.chars);
	plan = estimate_options_plan(&options, &model);
	cr_expect_eq(training.strategy, ZI_STRATEGY_ZERO3);
	cr_expect_eq(training.shard_size, 2);
	cr_expect_eq(training.reduce_dtype, ZI_DTYPE_F32);
	cr_expect_eq(training.accumulation, 4);
	cr_expect_eq(plan.config.param_dtype, ZI_DTYPE_BF16);
	cr_expect_eq(plan.config.grad_dtype, ZI_DTYPE_BF16);
	cr_expect_eq(plan.config.optimizer, ZI_OPTIMIZER_LION);
	cr_expect_eq(plan.config.offload_param, ZI_OFFLOAD_NVME);
	cr_expect_eq(plan.config.offload_optimizer, ZI_OFFLOAD_NVME);
	cr_expect_eq(plan.config.param_budget_bytes, 2000000);
	(void)snprintf(line, sizeof(line),
	               "x --strategy zero3 --shard-size 4 --ranks 4 --deepspeed-config %s", path);
	cr_assert_eq(strategy(line, &training), 0, "%s", text.chars);
	cr_expect_eq(training.shard_size, 4, "a flag overrides it");
	(void)snprintf(line, sizeof(line), "x --ranks 3 --deepspeed-config %s", path);
	cr_expect_eq(parse(line), -EINVAL);
	cr_expect(strstr(text.chars, "mics_shard_size = 2: 3 rank(s)"), "%s", text.chars);
	cr_assert_eq(unlink(path), 0);
	cr_expect_eq(parse(line), -ENOENT);
	cr_expect(strstr(text.chars, path), "%s", text.chars);
}

Test(estimate_options, strategies_are_those_of_libzinf)
{
	static const struct {
		const char *line, *words;
	} wrong[] = {
		{ "x --strategy zero9", "no strategy 'zero9': did you mean 'zero1'?" },
		{ "x --shard-size 2", "strategy ddp shards nothing" },
		{ "x --strategy zero1 --ranks 4 --shard-size 3", "it must divide the 4 ranks" },
		{ "x --strategy dp --nodes 2", "strategy dp is of one process" },
		{ "x --strategy zero2 --ranks 2 --nodes 2 --param-budget 1M",
		  "param_budget_bytes is for offload_param nvme" },
	};
	struct zi_job_training training = { 0 };

	cr_assert_eq(strategy("x", &training), 0, "%s", text.chars);
	cr_expect_eq(training.strategy, ZI_STRATEGY_DDP);
	cr_assert_eq(strategy("x --strategy zero2 --ranks 4 --shard-size 2", &training), 0, "%s",
	             text.chars);
	cr_expect_eq(training.strategy, ZI_STRATEGY_ZERO2);
	cr_expect_eq(training.shard_size, 2);
	cr_assert_eq(strategy("x --strategy hybrid_shard --ranks 4", &training), 0, "%s",
	             text.chars);
	cr_expect_eq(training.strategy, ZI_STRATEGY_ZERO3);
	cr_expect_eq(training.shard_size, 4);
	for (size_t i = 0; i < ZI_COUNT_OF(wrong); i++) {
		cr_expect(strategy(wrong[i].line, &training) < 0, "%s", wrong[i].line);
		cr_expect(strstr(text.chars, wrong[i].words), "%s: %s", wrong[i].line, text.chars);
	}
}

Test(estimate_options, a_gpu_is_asked_for_by_its_device)
{
	cr_assert_eq(parse("1G --device gpu --gpu-memory 4M --gpu-param-budget 2M "
	                   "--gpu-grad-budget 1M"),
	             0, "%s", text.chars);
	cr_expect_str_eq(options.device, "gpu");
	cr_expect_eq(options.gpu_memory_bytes, 4 << 20);
	cr_expect_eq(options.gpu_param_budget_bytes, 2 << 20);
	cr_expect_eq(options.gpu_grad_budget_bytes, 1 << 20);
	cr_assert_eq(parse("1G --device cpu"), 0);
	cr_expect_null(options.device);
	cr_expect_eq(parse("1G --device tpu"), -EINVAL);
	cr_expect(strstr(text.chars, "allowed are cpu, gpu, or the UUID of a GPU"), "%s",
	          text.chars);
	cr_expect_eq(parse("1G --gpu-memory 4M"), -EINVAL);
	cr_expect(strstr(text.chars, "need --device gpu"), "%s", text.chars);
}
