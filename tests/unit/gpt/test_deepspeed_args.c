/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a run by DeepSpeed's JSON is the run by the flags that mean the same; flags that are given
 * go before it and are told where they differ; what cannot be is refused by name. Method: small
 * files, and the arguments that come out.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/gpt/args_deepspeed.h"
#include "examples/gpt/args_lr.h"
#include "tests/guard/guard.h"
#include "zinf/zinf.h"

static char path[256];
static char *told; /* notes of the newest one */
static struct gpt_problem problem;

static void stop(void)
{
	free(told);
	(void)unlink(path);
}

TestSuite(deepspeed_args, .fini = stop);

/* @json: of the file. @line: further flags, each without blanks. */
static int apply(const char *json, const char *line, uint32_t world, struct gpt_args *args)
{
	static char copy[512], file_flag[300];
	const char *argv[16] = { "zinf-gpt", file_flag };
	char *rest = NULL;
	size_t told_bytes;
	FILE *file, *notes;
	int argc = 2, r;

	if (!path[0]) {
		int fd = mkstemp(guard_path(path, sizeof(path), "deepspeed"));

		cr_assert_geq(fd, 0);
		(void)close(fd);
	}
	file = fopen(path, "we");
	cr_assert_not_null(file);
	fputs(json, file);
	fclose(file);
	(void)snprintf(file_flag, sizeof(file_flag), "--deepspeed-config=%s", path);
	(void)snprintf(copy, sizeof(copy), "%s", line);
	for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	problem.chars[0] = '\0';
	cr_assert_eq(gpt_args_parse(args, argc, argv, &problem), 0, "%s", problem.chars);
	args->world_count = world;
	free(told);
	told = NULL;
	notes = open_memstream(&told, &told_bytes);
	r = gpt_deepspeed_apply(args, notes, &problem);
	fclose(notes);
	return r;
}

#define MICRO "\"train_micro_batch_size_per_gpu\": 4"

Test(deepspeed_args, a_file_is_the_flags_that_mean_the_same)
{
	struct gpt_args args;

	cr_assert_eq(apply("{ \"train_batch_size\": 48, " MICRO ", \"bf16\": { \"enabled\": true },"
	                   "\"gradient_clipping\": 0.5, \"steps_per_print\": 7,"
	                   "\"zero_optimization\": { \"stage\": 3,"
	                   "  \"offload_optimizer\": { \"device\": \"nvme\" },"
	                   "  \"offload_param\": { \"device\": \"nvme\", \"max_in_cpu\": 1e6 } },"
	                   "\"optimizer\": { \"type\": \"AdamW\", \"params\": { \"lr\": 1e-4,"
	                   "  \"betas\": [0.8, 0.9], \"eps\": 1e-7, \"weight_decay\": 0.03 } } }",
	                   "", 2, &args),
	             0, "%s", problem.chars);
	cr_expect_eq(args.model.batch_count, 4);
	cr_expect_eq(args.grad_accum_count, 6);
	cr_expect(args.is_bf16);
	cr_expect_not(args.has_f32_grads);
	cr_expect_eq(args.clip, 0.5);
	cr_expect_eq(args.log_every, 7);
	cr_expect_str_eq(args.strategy, "zero3");
	cr_expect_eq(args.offload_optimizer, ZINF_OFFLOAD_NVME);
	cr_expect_eq(args.offload_param, ZINF_OFFLOAD_NVME);
	cr_expect_eq(args.param_budget_bytes, 2000000);
	cr_expect_eq(args.optimizer, ZINF_ADAMW);
	cr_expect_eq(args.lr, 1e-4);
	cr_expect_float_eq(args.min_lr, 1e-5, 1e-18);
	cr_expect_eq(args.beta1, 0.8);
	cr_expect_eq(args.beta2, 0.9);
	cr_expect_eq(args.eps, 1e-7);
	cr_expect_eq(args.weight_decay, 0.03);
	cr_expect_eq(args.activations, GPT_ACTIVATIONS_KEEP);
	cr_expect_eq(args.lr_kind, 0, "the trainer's own schedule");
	cr_expect_null(strstr(told, " overrides "), "%s", told);
}

Test(deepspeed_args, what_it_leaves_out_is_the_trainers)
{
	struct gpt_args args;

	cr_assert_eq(apply("{ " MICRO " }", "--beta2 0.5", 1, &args), 0, "%s", problem.chars);
	cr_expect_eq(args.optimizer, ZINF_ADAMW);
	cr_expect_eq(args.lr, 2e-3);
	cr_expect_eq(args.beta2, 0.5);
	cr_expect_eq(args.grad_accum_count, 1);
	cr_expect_eq(args.offload_optimizer, ZINF_OFFLOAD_NONE, "as there");
	cr_expect_eq(args.log_every, 10);
	cr_expect_str_eq(args.strategy, "ddp");
	cr_expect_not(args.is_summing);
	cr_assert_eq(apply("{ " MICRO ", \"gradient_allreduce_op\": \"sum\" }", "", 1, &args), 0);
	cr_expect(args.is_summing);
}

Test(deepspeed_args, what_this_program_has_no_use_for_is_told)
{
	struct gpt_args args;

	cr_assert_eq(apply("{ " MICRO ", \"wall_clock_breakdown\": true,"
	                   "\"zero_optimization\": { \"ignore_unused_parameters\": false } }",
	                   "", 1, &args),
	             0, "%s", problem.chars);
	cr_expect_not_null(strstr(told, "wall_clock_breakdown true: times of a step are in what "
	                                "--json prints"),
	                   "%s", told);
	cr_expect_not_null(strstr(told, "ignore_unused_parameters false: every parameter of this "
	                                "model has a gradient"),
	                   "%s", told);
	cr_assert_eq(apply("{ " MICRO ", \"wall_clock_breakdown\": false }", "", 1, &args), 0);
	cr_expect_null(strstr(told, "wall_clock"), "%s", told);
	cr_expect_null(strstr(told, "ignore_unused"), "%s", told);
}

Test(deepspeed_args, sgd_has_momentum_where_others_have_betas)
{
	struct gpt_args args;

	cr_assert_eq(apply("{ " MICRO ", \"optimizer\": { \"type\": \"SGD\", \"params\": {"
	                   "\"lr\": 0.1, \"momentum\": 0.7, \"dampening\": 0,"
	                   "\"nesterov\": true } } }",
	                   "", 1, &args),
	             0, "%s", problem.chars);
	cr_expect_eq(args.optimizer, ZINF_SGD);
	cr_expect_eq(args.momentum, 0.7);
	cr_expect_eq(args.dampening, 0);
	cr_expect(args.is_nesterov);
	cr_expect_eq(args.beta1, 0.9, "not touched");
}

Test(deepspeed_args, flags_go_before_it_and_are_told)
{
	struct gpt_args args;

	cr_assert_eq(apply("{ " MICRO ", \"gradient_clipping\": 0.5, \"zero_optimization\": {"
	                   "\"stage\": 2, \"overlap_comm\": false },"
	                   "\"optimizer\": { \"type\": \"Adam\", \"params\": { \"lr\": 1e-4 } } }",
	                   "--batch-size 2 --clip 0.5 --lr 0.25 --optimizer lion --bf16 "
	                   "--strategy ddp --offload-optimizer=cpu",
	                   1, &args),
	             0, "%s", problem.chars);
	cr_expect_eq(args.model.batch_count, 2);
	cr_expect_eq(args.lr, 0.25);
	cr_expect_eq(args.optimizer, ZINF_LION);
	cr_expect(args.is_bf16);
	cr_expect_str_eq(args.strategy, "ddp");
	cr_expect_eq(args.offload_optimizer, ZINF_OFFLOAD_CPU);
	cr_expect(strstr(told, "--batch-size 2 overrides train_micro_batch_size_per_gpu of "), "%s",
	          told);
	cr_expect(strstr(told, "which is 4\n"));
	cr_expect(strstr(told, "--lr 0.25 overrides optimizer.params.lr of "));
	cr_expect(strstr(told, "which is 0.0001\n"));
	cr_expect(strstr(told, "--optimizer lion overrides optimizer.type of "));
	cr_expect(strstr(told, "which is adamw\n"));
	cr_expect(strstr(told, "--bf16 true overrides bf16.enabled of "));
	cr_expect(strstr(told, "--strategy ddp overrides zero_optimization.stage of "));
	cr_expect(strstr(told, "which is zero2\n"));
	cr_expect(strstr(told, "--offload-optimizer cpu overrides "));
	cr_expect_null(strstr(told, "--clip"), "it says the same: %s", told);
	cr_expect(strstr(told, ": zero_optimization.overlap_comm false: "), "and the reader's: %s",
	          told);
}

Test(deepspeed_args, checkpointing_keeps_inputs)
{
	static const struct {
		const char *json, *line;
		uint32_t kind, every;
	} cases[] = {
		{ "\"cpu_checkpointing\": true", "--layers=6", GPT_ACTIVATIONS_CPU, 1 },
		{ "\"cpu_checkpointing\": true, \"number_checkpoints\": 2", "--layers=6",
		  GPT_ACTIVATIONS_CPU, 3 },
		{ "\"number_checkpoints\": 4", "--layers=6", GPT_ACTIVATIONS_RECOMPUTE, 2 },
		{ "\"number_checkpoints\": 24", "--layers=6", GPT_ACTIVATIONS_RECOMPUTE, 1 },
		{ "\"partition_activations\": true", "", GPT_ACTIVATIONS_RECOMPUTE, 1 },
		{ "\"profile\": false", "", GPT_ACTIVATIONS_KEEP, 0 },
		{ "\"number_checkpoints\": 2", "--activations keep", GPT_ACTIVATIONS_KEEP, 0 },
		{ "\"number_checkpoints\": 2", "--activations nvme", GPT_ACTIVATIONS_NVME, 0 },
		{ "\"number_checkpoints\": 2", "--checkpoint-every 4", GPT_ACTIVATIONS_RECOMPUTE,
		  4 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpt_args args;
		char json[256];

		(void)snprintf(json, sizeof(json),
		               "{ " MICRO ", \"activation_checkpointing\": { %s } }",
		               cases[i].json);
		cr_assert_eq(apply(json, cases[i].line, 1, &args), 0, "%s", problem.chars);
		cr_expect_eq(args.activations, cases[i].kind, "%s", cases[i].json);
		cr_expect_eq(args.checkpoint_every, cases[i].every, "%s %s: %u", cases[i].json,
		             cases[i].line, args.checkpoint_every);
	}
}

#define ADAM "\"optimizer\": { \"type\": \"Adam\", \"params\": { \"lr\": 0.5 } }, "

Test(deepspeed_args, its_scheduler_is_followed_to_the_bit)
{
	struct zinf_lr_options wanted;
	struct zinf_lr_value value, expected;
	struct gpt_args args;

	cr_assert_eq(apply("{ " MICRO ", " ADAM "\"scheduler\": { \"type\": \"WarmupCosineLR\","
	                   "\"params\": { \"total_num_steps\": 40, \"warmup_num_steps\": 4,"
	                   "\"cos_min_ratio\": 0.1 } } }",
	                   "", 1, &args),
	             0, "%s", problem.chars);
	cr_assert_eq(zinf_lr_defaults(ZINF_LR_WARMUP_COSINE, &wanted), 0);
	wanted.lr = 0.5;
	wanted.warmup_count = 4;
	wanted.total_count = 40;
	wanted.min_ratio = 0.1;
	for (uint64_t updates = 0; updates < 50; updates++) {
		gpt_lr(&args, updates + 1, updates, &value);
		cr_assert_eq(zinf_lr_at(&wanted, updates, &expected), 0);
		cr_assert_eq(value.lr, expected.lr);
	}
	/* --lr is the rate that it goes by; another schedule replaces it. */
	cr_assert_eq(apply("{ " MICRO ", " ADAM "\"scheduler\": { \"type\": \"WarmupCosineLR\","
	                   "\"params\": { \"total_num_steps\": 40, \"warmup_num_steps\": 4 } } }",
	                   "--lr 0.25", 1, &args),
	             0, "%s", problem.chars);
	gpt_lr(&args, 4, 3, &value);
	wanted.lr = 0.25;
	wanted.min_ratio = 1e-4;
	cr_assert_eq(zinf_lr_at(&wanted, 3, &expected), 0);
	cr_expect_eq(value.lr, expected.lr);
	cr_assert_eq(apply("{ " MICRO ", " ADAM "\"scheduler\": { \"type\": \"WarmupLR\","
	                   "\"params\": { } } }",
	                   "--lr-schedule constant --warmup 5", 1, &args),
	             0, "%s", problem.chars);
	gpt_lr(&args, 1, 0, &value);
	cr_expect_eq(value.lr, 0.5);
	cr_expect(strstr(told, "--lr-schedule constant overrides scheduler.type of "), "%s", told);
	cr_expect(strstr(told, "which is WarmupLR\n"));
}

/* A file and flags are the file that has the flags' numbers. */
Test(deepspeed_args, flags_go_before_the_numbers_of_its_scheduler)
{
#define SCHEDULER(type, params)                                                              \
	"{ " MICRO ", " ADAM "\"scheduler\": { \"type\": \"" type "\", \"params\": {" params \
	" } } }"
	static const struct {
		const char *json, *line, *meant, *told;
	} cases[] = {
		{ SCHEDULER("WarmupLR", ""), "--warmup 5",
		  SCHEDULER("WarmupLR", "\"warmup_num_steps\": 5"),
		  "--warmup 5 overrides scheduler.params.warmup_num_steps of " },
		{ SCHEDULER("WarmupLR", ""), "--warmup 0",
		  SCHEDULER("WarmupLR", "\"warmup_num_steps\": 0"), "which is 1000\n" },
		{ SCHEDULER("WarmupLR", "\"warmup_max_lr\": 0.25"), "--lr 0.125",
		  SCHEDULER("WarmupLR", "\"warmup_max_lr\": 0.125"),
		  "--lr 0.125 overrides scheduler.params.warmup_max_lr of " },
		{ SCHEDULER("WarmupLR", "\"warmup_max_lr\": 0.5"), "--lr-warmup-shape linear",
		  SCHEDULER("WarmupLR", "\"warmup_max_lr\": 0.5, \"warmup_type\": \"linear\""),
		  "--lr-warmup-shape linear overrides scheduler.params.warmup_type of " },
		{ SCHEDULER("WarmupDecayLR", "\"total_num_steps\": 40"), "--lr 0.125 --lr-total 9",
		  SCHEDULER("WarmupDecayLR", "\"total_num_steps\": 9, \"warmup_max_lr\": 0.125"),
		  "--lr-total 9 overrides scheduler.params.total_num_steps of " },
		{ SCHEDULER("WarmupCosineLR", "\"total_num_steps\": 40, \"warmup_num_steps\": 3"),
		  "--lr-min-ratio 0.5 --warmup 7 --lr-total 30",
		  SCHEDULER("WarmupCosineLR", "\"total_num_steps\": 30, \"warmup_num_steps\": 7,"
		                              "\"cos_min_ratio\": 0.5"),
		  "--lr-min-ratio 0.5 overrides scheduler.params.cos_min_ratio of " },
		{ SCHEDULER("LRRangeTest", ""), "--lr 0.125 --warmup 4",
		  SCHEDULER("LRRangeTest",
		            "\"lr_range_test_min_lr\": 0.125, \"lr_range_test_step_size\": 4"),
		  "--warmup 4 overrides scheduler.params.lr_range_test_step_size of " },
		{ SCHEDULER("OneCycle", "\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 0.2"),
		  "--warmup 4 --lr-total 10 --lr 0.5 --min-lr 0.25",
		  SCHEDULER("OneCycle", "\"cycle_min_lr\": 0.25, \"cycle_max_lr\": 0.5,"
		                        "\"cycle_first_step_size\": 4,"
		                        "\"cycle_second_step_size\": 6"),
		  "--lr-total 10 overrides scheduler.params.cycle_second_step_size (with the "
		  "first half) of " },
	};
	struct gpt_args args, meant;
	struct zinf_lr_value value, expected;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_assert_eq(apply(cases[i].meant, "", 1, &meant), 0, "%s", problem.chars);
		cr_assert_eq(apply(cases[i].json, cases[i].line, 1, &args), 0, "%s: %s",
		             cases[i].line, problem.chars);
		cr_expect(strstr(told, cases[i].told), "%s is not in: %s", cases[i].told, told);
		for (uint64_t updates = 0; updates < 60; updates++) {
			gpt_lr(&args, updates + 1, updates, &value);
			gpt_lr(&meant, updates + 1, updates, &expected);
			cr_assert_eq(value.lr, expected.lr, "%s at %d: %g, not %g", cases[i].line,
			             (int)updates, value.lr, expected.lr);
			cr_assert_eq(value.beta1, expected.beta1);
		}
	}
	/* What is the same is no news. */
	cr_assert_eq(
		apply(SCHEDULER("WarmupLR", "\"warmup_num_steps\": 5"), "--warmup 5", 1, &args), 0,
		"%s", problem.chars);
	cr_expect_null(strstr(told, "warmup_num_steps"), "%s", told);
}

Test(deepspeed_args, auto_is_what_the_flags_say)
{
	struct gpt_args args;

	cr_assert_eq(
		apply("{ \"train_batch_size\": \"auto\", \"bf16\": { \"enabled\": \"auto\" },"
	              "\"train_micro_batch_size_per_gpu\": \"auto\","
	              "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\","
	              "\"optimizer\": { \"type\": \"AdamW\", \"params\": { \"lr\": \"auto\","
	              "\"betas\": \"auto\", \"eps\": \"auto\", \"weight_decay\": \"auto\" } },"
	              "\"scheduler\": { \"type\": \"WarmupDecayLR\", \"params\": {"
	              "\"total_num_steps\": \"auto\", \"warmup_max_lr\": \"auto\","
	              "\"warmup_num_steps\": \"auto\" } } }",
	              "--bf16 --steps 77 --batch-size 3 --grad-accum=2 --clip 0.125", 4, &args),
		0, "%s", problem.chars);
	cr_expect(args.is_bf16);
	cr_expect_eq(args.model.batch_count, 3);
	cr_expect_eq(args.grad_accum_count, 2);
	cr_expect_eq(args.clip, 0.125);
	cr_expect_eq(args.lr, 2e-3);
	cr_expect_eq(args.beta2, 0.95);
	cr_expect_eq(args.lr_options.total_count, 77);
	cr_expect_eq(args.lr_options.max_lr, 2e-3);
	cr_expect_eq(args.lr_options.warmup_count, 20);
	cr_expect_null(strstr(told, " overrides "), "%s", told);
}

Test(deepspeed_args, what_cannot_be_is_refused_by_name)
{
	static const struct {
		const char *json, *line, *says;
		int error;
	} cases[] = {
		{ "{ \"stage\": 3 }", "", "did you mean zero_optimization.stage", -EINVAL },
		{ "{ " MICRO ", \"train_batch_size\": 7 }", "", "train_batch_size", -EINVAL },
		{ "{ " MICRO ", \"sparse_attention\": { \"mode\": \"fixed\" } }", "",
		  "sparse_attention", -EOPNOTSUPP },
		{ "{ " MICRO ", \"zero_optimization\": { \"stage\": 3, \"mics_shard_size\": 3 } }",
		  "", "mics_shard_size = 3: 2 rank(s)", -EINVAL },
		{ "{ " MICRO ", \"optimizer\": { \"type\": \"Lamb\" } }", "", "Lamb", -EOPNOTSUPP },
		{ "{ " MICRO ", " ADAM
		  "\"scheduler\": { \"type\": \"WarmupLR\", \"params\": {} } }",
		  "--min-lr 1e-4", "--min-lr has no effect with --lr-schedule WarmupLR", -EINVAL },
		{ "{ " MICRO ", " ADAM
		  "\"scheduler\": { \"type\": \"LRRangeTest\", \"params\": {} } }",
		  "--lr-total 9", "--lr-total has no effect with --lr-schedule LRRangeTest",
		  -EINVAL },
		{ "{ " MICRO ", " ADAM "\"scheduler\": { \"type\": \"OneCycle\", \"params\": {"
		  "\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 0.2,"
		  "\"cycle_first_step_size\": 6 } } }",
		  "--lr-total 6", "--lr-total 6 leaves nothing behind the first half of the cycle",
		  -EINVAL },
		{ "{ " MICRO ", " ADAM
		  "\"scheduler\": { \"type\": \"WarmupCosineLR\", \"params\": {"
		  "\"total_num_steps\": 40 } } }",
		  "--lr-warmup-shape cosine", "--lr-schedule ", -EINVAL },
		{ "{ " MICRO ", \"activation_checkpointing\": { \"cpu_checkpointing\": true } }",
		  "--reference", "--activations cpu needs zinfd", -EINVAL },
		{ "{ " MICRO " }", "--f32-grads", "--f32-grads needs ", -EINVAL },
		{ "{ " MICRO " ", "", "line 1", -EINVAL },
	};
	struct gpt_args args;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_expect_eq(apply(cases[i].json, cases[i].line, 2, &args), cases[i].error,
		             "%s: %s", cases[i].json, problem.chars);
		cr_expect(strstr(problem.chars, cases[i].says), "%s: \"%s\" does not say \"%s\"",
		          cases[i].json, problem.chars, cases[i].says);
	}
}

Test(deepspeed_args, a_file_that_is_not_there_is_named)
{
	const char *argv[] = { "zinf-gpt", "--deepspeed-config", "/nowhere/ds.json" };
	struct gpt_args args;

	cr_assert_eq(gpt_args_parse(&args, 3, argv, &problem), 0);
	args.world_count = 1;
	cr_expect_eq(gpt_deepspeed_apply(&args, NULL, &problem), -ENOENT);
	cr_expect(strstr(problem.chars, "--deepspeed-config /nowhere/ds.json: "), "%s",
	          problem.chars);
	cr_assert_eq(gpt_args_parse(&args, 1, argv, &problem), 0);
	cr_expect_eq(gpt_deepspeed_apply(&args, NULL, &problem), 0, "none was given");
}

#define FP16(words) "{ " MICRO ", \"fp16\": { \"enabled\": true" words " } }"

Test(deepspeed_args, fp16_has_the_loss_scale_of_the_file)
{
	struct gpt_args args;

	cr_assert_eq(apply(FP16(""), "", 1, &args), 0, "%s", problem.chars);
	cr_expect(args.is_fp16);
	cr_expect_eq(args.scaler.kind, ZINF_SCALER_DEEPSPEED);
	cr_expect_eq(args.scaler.init, 65536);
	cr_expect_eq(args.scaler.window, 1000);
	cr_assert_eq(apply(FP16(", \"initial_scale_power\": 12, \"loss_scale_window\": 7,"
	                        "\"hysteresis\": 3, \"consecutive_hysteresis\": true,"
	                        "\"min_loss_scale\": 16"),
	                   "--loss-scale-window 9", 1, &args),
	             0, "%s", problem.chars);
	cr_expect_eq(args.scaler.init, 4096);
	cr_expect_eq(args.scaler.window, 9);
	cr_expect_eq(args.scaler.hysteresis, 3);
	cr_expect(args.scaler.is_consecutive);
	cr_expect_eq(args.scaler.min, 16);
	cr_expect(strstr(told, "--loss-scale-window 9 overrides fp16.loss_scale_window of "));
	cr_assert_eq(apply(FP16(", \"loss_scale\": 128"), "", 1, &args), 0, "%s", problem.chars);
	cr_expect_eq(args.scaler.kind, ZINF_SCALER_STATIC);
	cr_expect_eq(args.scaler.init, 128);
}

/* What the file says of its machine goes with it. */
Test(deepspeed_args, a_flag_puts_another_loss_scale_in_its_place)
{
	struct gpt_args args;

	cr_assert_eq(apply(FP16(", \"hysteresis\": 3"), "--loss-scale 32", 1, &args), 0, "%s",
	             problem.chars);
	cr_expect_eq(args.scaler.kind, ZINF_SCALER_STATIC);
	cr_expect_eq(args.scaler.init, 32);
	cr_assert_eq(apply(FP16(", \"hysteresis\": 3"), "--loss-scaler torch", 1, &args), 0, "%s",
	             problem.chars);
	cr_expect_eq(args.scaler.kind, ZINF_SCALER_TORCH);
	cr_expect_eq(args.scaler.window, 2000);
}
