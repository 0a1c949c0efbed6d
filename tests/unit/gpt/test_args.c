/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the command line means one thing or is refused with its reason and the nearest name.
 * Method: tables of lines.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/args_strategy.h"
#include "examples/gpt/number.h"
#include "tests/unit/gpt/parse.h"
#include "zinf/zinf.h"

Test(args, defaults_are_a_small_model)
{
	struct gpt_problem problem;
	struct gpt_args args;

	cr_assert_eq(parse("", &args, &problem), 0);
	cr_expect_eq(args.model.layer_count, 4);
	cr_expect_eq(args.optimizer, ZINF_ADAMW);
	cr_expect_eq(args.grad_reduction, ZINF_REDUCE_PER_STEP);
	cr_expect_float_eq(args.min_lr, args.lr / 10, 1e-12);
	cr_expect_eq(args.rank, -1);
}

Test(args, values_come_after_a_blank_or_an_equals_sign)
{
	struct gpt_problem problem;
	struct gpt_args args;

	cr_assert_eq(
		parse("--layers 2 --lr=0.5 --bf16 --grad-reduction per_micro_batch --resident=1.5M "
	              "--staging 64K --optimizer=sgd --data /x --d-model=64",
	              &args, &problem),
		0, "%s", problem.chars);
	cr_expect_eq(args.model.layer_count, 2);
	cr_expect_eq(args.model.channel_count, 64);
	cr_expect_eq(args.lr, 0.5);
	cr_expect(args.is_bf16);
	cr_expect_eq(args.grad_reduction, ZINF_REDUCE_PER_MICRO_BATCH);
	cr_expect_eq(args.optimizer, ZINF_SGD);
	cr_expect_eq(args.resident_bytes, 3ull << 19);
	cr_expect_eq(args.staging_bytes, 65536);
	cr_expect_str_eq(args.data, "/x");
}

/* Columns of a line of UTF-8. */
static unsigned columns_of(const char *line, size_t bytes)
{
	unsigned count = 0;

	for (size_t i = 0; i < bytes; i++)
		count += (line[i] & 0xc0) != 0x80;
	return count;
}

Test(args, help_is_grouped_and_has_80_columns)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *file = open_memstream(&text, &bytes);

	cr_assert_not_null(file);
	gpt_args_help(file);
	cr_assert_eq(fclose(file), 0);
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
		cr_expect_leq(columns_of(line, strcspn(line, "\n")), 80, "%.90s", line);
	cr_expect(strstr(text, "\nModel\n  --layers N              blocks (4)\n"), "%s", text);
	cr_expect(
		strstr(text, "\n  --loss-scale-consecutive\n                          deepspeed: "),
		"%s", text);
	cr_expect(strstr(text, "  --bf16                  parameters"), "%s", text);
	free(text);
}

/* What each name sets. */
Test(args, strategies_have_our_names_and_those_of_fsdp)
{
	const struct {
		const char *line, *name;
		uint32_t strategy, shard_size;
	} rows[] = {
		{ "", "ddp", ZINF_STRATEGY_DEFAULT, 0 },
		{ "--strategy ddp", "ddp", ZINF_DDP, 0 },
		{ "--strategy=dp", "dp", ZINF_DP, 0 },
		{ "--strategy zero1", "zero1", ZINF_ZERO1, 0 },
		{ "--strategy shard_grad_op", "zero2", ZINF_ZERO2, 0 },
		{ "--strategy fsdp --shard-size 2", "hybrid_shard", ZINF_ZERO3, 2 },
		{ "--strategy hybrid_shard", "hybrid_shard", ZINF_ZERO3, ZINF_SHARD_NODE },
		{ "--strategy hybrid_shard --shard-size 4", "hybrid_shard", ZINF_ZERO3, 4 },
		{ "--reference --strategy zero3", "zero3", ZINF_ZERO3, 0 },
	};
	struct gpt_problem problem;
	struct gpt_args args;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct zinf_options options = ZINF_OPTIONS_INIT;

		cr_assert_eq(parse(rows[i].line, &args, &problem), 0, "%s: %s", rows[i].line,
		             problem.chars);
		gpt_strategy_set(&args, &options);
		cr_expect_eq(options.strategy, rows[i].strategy, "%s", rows[i].line);
		cr_expect_eq(options.shard_size, rows[i].shard_size, "%s", rows[i].line);
		cr_expect_str_eq(gpt_strategy_name(&args), rows[i].name);
	}
}

Test(args, what_is_wrong_is_named)
{
	const struct {
		const char *line;
		const char *says;
	} cases[] = {
		{ "--bogus 1", "--bogus is unknown (--help lists all options)" },
		{ "--x", "--x is unknown (--help lists all options)" },
		{ "--warmpu=1", "--warmpu is unknown; did you mean --warmup?" },
		{ "--layer 3", "did you mean --layers?" },
		{ "--d_model 3", "did you mean --d-model?" },
		{ "--seqlen=3", "did you mean --seq-len?" },
		{ "--layers", "--layers needs a value" },
		{ "--layers two", "--layers two: a number is needed" },
		{ "--layers -2", "a number is needed" },
		{ "--layers 2x", "a number is needed" },
		{ "--layers 0", "allowed is 1 to 1024" },
		{ "--layers 99999999999999999999", "a number is needed" },
		{ "--lr nan", "a number is needed" },
		{ "--lr -1", "allowed is 0 to" },
		{ "--resident 5Q", "with K, M, G or T" },
		{ "--ranks 65", "allowed is 1 to 64" },
		{ "--optimizer lamb", "allowed are adamw, adam, sgd, adagrad, lion" },
		{ "--grad-reduction=", "allowed are per_step, per_micro_batch" },
		{ "--bf16=yes", "--bf16 takes no value" },
		{ "train", "options begin with --" },
		{ "-h", "options begin with --" },
		{ "--f32-grads", "--f32-grads needs --bf16 or --fp16" },
		{ "--bf16 --fp16", "--bf16 and --fp16 exclude each other" },
		{ "--loss-scaler torch", "--loss-scaler has no effect with no --fp16" },
		{ "--fp16 --loss-scaler amp", "allowed are deepspeed, torch, apex" },
		{ "--fp16 --loss-scale 8 --loss-scale-window 3",
		  "--loss-scale-window has no effect with a fixed loss scale" },
		{ "--fp16 --loss-scaler apex --loss-scale-hysteresis 3",
		  "--loss-scale-hysteresis has no effect with apex" },
		{ "--fp16 --loss-scaler torch --loss-scale-min 3",
		  "--loss-scale-min has no effect with torch" },
		{ "--fp16 --loss-scaler torch --loss-scale-consecutive",
		  "--loss-scale-consecutive has no effect with torch" },
		{ "--fp16 --loss-scale-init 8 --loss-scale-min 9", "deepspeed loss scale: min 9" },
		{ "--heads 3", "--d-model 128 is not a multiple of --heads 3" },
		{ "--beta1 1", "must be below 1" },
		{ "--optimizer lion --beta2 1", "must be below 1 unless --optimizer is sgd" },
		{ "--nesterov", "--nesterov needs --optimizer sgd" },
		{ "--strategy zero4", "no strategy 'zero4': did you mean 'zero1'" },
		{ "--strategy foo", "no strategy 'foo': allowed are dp, ddp, zero1" },
		{ "--strategy full_shart", "did you mean 'full_shard'" },
		{ "--shard-size 0", "allowed is 1 to 64" },
		{ "--shard-size 2", "--shard-size 2 has no effect with --strategy ddp" },
		{ "--strategy no_shard --shard-size 2", "which shards nothing" },
		{ "--checkpoint-every 2", "has no effect with --activations keep" },
		{ "--activations recompute --checkpoint-every 0", "allowed is 1 to 1024" },
		{ "--activations disk", "allowed are keep, recompute, cpu, nvme" },
		{ "--activations nvme --reference",
		  "--activations nvme needs zinfd, and --reference has none" },
		{ "--prompt x", "--prompt has no effect without --generate" },
		{ "--eval x --top-k 3", "--top-k has no effect without --generate" },
		{ "--eval x --generate 3", "--eval and --generate exclude each other" },
		{ "--generate 3 --reference", "--generate uses a job of zinfd" },
		{ "--generate 3 --ranks 2", "--generate runs on one rank, not --ranks 2" },
		{ "--generate 3 --prompt=", "--prompt needs a byte" },
		{ "--generate 3 --top-k 257", "allowed is 0 to 256" },
		{ "--generate 3 --temperature -1", "allowed is 0 to" },
		{ "--dump-state FILE", "--dump-state needs --reference; zctl export JOB" },
		{ "--adagrad-decay 0.5", "--adagrad-decay needs --optimizer adagrad" },
		{ "--optimizer lion --no-bias-correction", "needs --optimizer adamw or adam" },
		{ "--lr 1e-4 --min-lr 1e-3", "--min-lr 0.001 is above --lr 0.0001" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpt_problem problem = { "" };
		struct gpt_args args;

		cr_expect_eq(parse(cases[i].line, &args, &problem), -EINVAL, "%s", cases[i].line);
		cr_expect(strstr(problem.chars, cases[i].says), "%s: \"%s\" does not say \"%s\"",
		          cases[i].line, problem.chars, cases[i].says);
	}
}

Test(args, fp16_has_a_loss_scale_and_nothing_else_has)
{
	static const struct {
		const char *line;
		enum zinf_scaler_kind kind;
		double init;
		uint32_t window;
		double min;
	} rows[] = {
		{ "--bf16 --loss-scale 64", ZINF_SCALER_NONE, 1, 2000, 0 },
		{ "--fp16", ZINF_SCALER_DEEPSPEED, 65536, 1000, 1 },
		{ "--fp16 --loss-scale 64", ZINF_SCALER_STATIC, 64, 2000, 0 },
		{ "--fp16 --loss-scaler torch", ZINF_SCALER_TORCH, 65536, 2000, 0 },
		{ "--fp16 --loss-scaler apex --loss-scale-init 8 --loss-scale-window 3 "
		  "--loss-scale-min 2",
		  ZINF_SCALER_APEX, 8, 3, 2 },
		{ "--fp16 --loss-scale-hysteresis 5 --loss-scale-consecutive --loss-scale-min 4",
		  ZINF_SCALER_DEEPSPEED, 65536, 1000, 4 },
	};
	struct gpt_problem problem;
	struct gpt_args args;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cr_assert_eq(parse(rows[i].line, &args, &problem), 0, "%s", problem.chars);
		cr_expect_eq(args.scaler.kind, rows[i].kind, "%s", rows[i].line);
		cr_expect_eq(args.scaler.init, rows[i].init, "%s", rows[i].line);
		cr_expect_eq(args.scaler.window, rows[i].window, "%s", rows[i].line);
		cr_expect_eq(args.scaler.min, rows[i].min, "%s", rows[i].line);
	}
	cr_expect_eq(args.scaler.hysteresis, 5);
	cr_expect(args.scaler.is_consecutive);
}

Test(args, recomputing_without_a_number_is_block_by_block)
{
	struct gpt_problem problem;
	struct gpt_args args;

	cr_assert_eq(parse("--activations recompute --reference", &args, &problem), 0);
	cr_expect_eq(args.checkpoint_every, 1);
	cr_assert_eq(parse("--activations recompute --checkpoint-every 3", &args, &problem), 0);
	cr_expect_eq(args.checkpoint_every, 3);
	cr_assert_eq(parse("--activations nvme", &args, &problem), 0);
	cr_expect_eq(args.checkpoint_every, 0, "all is stored");
}

Test(args, a_device_is_the_cpu_a_gpu_or_a_uuid)
{
	const struct {
		const char *line, *uuid;
		bool is_gpu;
	} rows[] = {
		{ "", NULL, false },
		{ "--device cpu", NULL, false },
		{ "--device=gpu --gpu-param-budget 1G --gpu-driver /x --cublas /y", NULL, true },
		{ "--device GPU-1", "GPU-1", true },
		{ "--device MIG-1 --bf16", "MIG-1", true },
	};
	struct gpt_problem problem;
	struct gpt_args args;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cr_assert_eq(parse(rows[i].line, &args, &problem), 0, "%s: %s", rows[i].line,
		             problem.chars);
		cr_expect_eq(args.is_gpu, rows[i].is_gpu, "%s", rows[i].line);
		cr_expect_eq(args.gpu_uuid != NULL, rows[i].uuid != NULL, "%s", rows[i].line);
		cr_expect(!rows[i].uuid || !strcmp(args.gpu_uuid, rows[i].uuid));
	}
}

Test(args, what_a_gpu_does_not_do_is_refused)
{
	const char *const rows[][2] = {
		{ "--device cuda", "--device cuda: allowed are cpu, gpu, or the UUID of a GPU" },
		{ "--device gpu-1", "--device gpu-1: allowed are" },
		{ "--gpu-param-budget 1G", "need --device gpu" },
		{ "--gpu-grad-budget 1G", "need --device gpu" },
		{ "--gpu-driver x", "need --device gpu" },
		{ "--device cpu --cublas x", "need --device gpu" },
		{ "--device gpu --fp16", "give --bf16 instead of --fp16" },
		{ "--device gpu --activations cpu", "give --activations keep or recompute" },
	};
	struct gpt_problem problem;
	struct gpt_args args;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cr_expect_eq(parse(rows[i][0], &args, &problem), -EINVAL, "%s", rows[i][0]);
		cr_expect(strstr(problem.chars, rows[i][1]), "%s: %s", rows[i][0], problem.chars);
	}
}

/* NULL: not set. */
static int environment(const char *rank, const char *world, const char *line, struct gpt_args *args,
                       struct gpt_problem *problem)
{
	cr_assert_eq(parse(line, args, problem), 0);
	if (rank)
		setenv("RANK", rank, 1);
	else
		unsetenv("RANK");
	if (world)
		setenv("WORLD_SIZE", world, 1);
	else
		unsetenv("WORLD_SIZE");
	return gpt_args_environment(args, problem);
}

Test(args, a_launchers_variables_make_one_rank)
{
	struct gpt_problem problem = { "" };
	struct gpt_args args;

	cr_assert_eq(environment("2", "4", "", &args, &problem), 0);
	cr_expect_eq(args.rank, 2);
	cr_expect_eq(args.world_count, 4);
	cr_assert_eq(environment(NULL, NULL, "--ranks 3", &args, &problem), 0);
	cr_expect_eq(args.rank, -1);
	cr_expect_eq(args.world_count, 3);
	/* The reference is all ranks, wherever it is started. */
	cr_assert_eq(environment("2", "4", "--reference --ranks 2", &args, &problem), 0);
	cr_expect_eq(args.rank, -1);
	cr_expect_eq(args.world_count, 2);
}

Test(args, wrong_variables_are_refused)
{
	struct gpt_problem problem = { "" };
	struct gpt_args args;

	cr_expect_eq(environment("1", NULL, "", &args, &problem), -EINVAL);
	cr_expect(strstr(problem.chars, "WORLD_SIZE is not set"));
	cr_expect_eq(environment("4", "4", "", &args, &problem), -EINVAL);
	cr_expect_eq(environment("x", "4", "", &args, &problem), -EINVAL);
	cr_expect_eq(environment("0", "65", "", &args, &problem), -EINVAL);
	cr_expect_eq(environment("0", "2", "--ranks 3", &args, &problem), -EINVAL);
	cr_expect(strstr(problem.chars, "--ranks 3, but WORLD_SIZE is 2"));
}

Test(args, mpirun_and_srun_make_one_rank_too)
{
	struct gpt_problem problem = { "" };
	struct gpt_args args;

	setenv("SLURM_PROCID", "1", 1);
	setenv("SLURM_NTASKS", "3", 1);
	cr_assert_eq(environment(NULL, NULL, "--ranks 2", &args, &problem), 0);
	cr_expect_eq(args.rank, -1, "a batch script's");
	setenv("SLURM_STEP_ID", "0", 1);
	cr_assert_eq(environment(NULL, NULL, "", &args, &problem), 0);
	cr_expect_eq(args.rank, 1);
	cr_expect_eq(args.world_count, 3);
	setenv("OMPI_COMM_WORLD_RANK", "4", 1);
	cr_expect_eq(environment(NULL, NULL, "", &args, &problem), -EINVAL);
	cr_expect(strstr(problem.chars, "OMPI_COMM_WORLD_SIZE is not set"));
	setenv("OMPI_COMM_WORLD_SIZE", "5", 1);
	cr_assert_eq(environment(NULL, NULL, "", &args, &problem), 0);
	cr_expect_eq(args.rank, 4);
	cr_assert_eq(environment("0", "2", "", &args, &problem), 0);
	cr_expect_eq(args.rank, 0, "the inner launcher's");
	cr_expect_eq(args.restart_index, 0);
	setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
	cr_assert_eq(environment("0", "2", "", &args, &problem), 0);
	cr_expect_eq(args.restart_index, 2);
	cr_expect(args.is_waiting_for_daemon);
	setenv("OMPI_COMM_WORLD_RANK", "0", 1);
	setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
	cr_assert_eq(environment(NULL, NULL, "--ranks 2", &args, &problem), 0);
	cr_expect_eq(args.rank, -1, "a world of one may start ranks itself");
}

Test(args, numbers_are_whole_texts)
{
	uint64_t bytes = 7;
	double real = 7;

	cr_expect_eq(gpt_parse_bytes("2 GiB", &bytes), -EINVAL);
	cr_expect_eq(gpt_parse_bytes("2GiB", &bytes), 0);
	cr_expect_eq(bytes, 2ull << 30);
	cr_expect_eq(gpt_parse_bytes("9000000T", &bytes), -ERANGE);
	cr_expect_eq(gpt_parse_bytes("", &bytes), -EINVAL);
	cr_expect_eq(bytes, 2ull << 30); /* untouched on failure */
	cr_expect_eq(gpt_parse_f64(" 1", &real), -EINVAL);
	cr_expect_eq(gpt_parse_f64("inf", &real), -EINVAL);
	cr_expect_eq(gpt_parse_f64("", &real), -EINVAL);
	cr_expect_eq(gpt_parse_u64("18446744073709551616", &bytes), -ERANGE);
}
