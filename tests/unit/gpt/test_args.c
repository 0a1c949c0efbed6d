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

#include "examples/gpt/args.h"
#include "examples/gpt/number.h"
#include "zinf/zinf.h"

enum { WORDS_MAX = 16 };

/* @line: words with single blanks, without the program's name. */
static int parse(const char *line, struct gpt_args *args, struct gpt_problem *problem)
{
	static char copy[512];
	const char *argv[WORDS_MAX] = { "zinf-gpt" };
	char *rest = NULL;
	int argc = 1;

	(void)snprintf(copy, sizeof(copy), "%s", line);
	for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	return gpt_args_parse(args, argc, argv, problem);
}

Test(args, defaults_are_a_small_model)
{
	struct gpt_problem problem;
	struct gpt_args args;

	cr_assert_eq(parse("", &args, &problem), 0);
	cr_expect_eq(args.model.layer_count, 4);
	cr_expect_eq(args.optimizer, ZINF_ADAMW);
	cr_expect_eq(args.schedule, ZINF_LOCAL);
	cr_expect_float_eq(args.min_lr, args.lr / 10, 1e-12);
	cr_expect_eq(args.rank, -1);
}

Test(args, values_come_after_a_blank_or_an_equals_sign)
{
	struct gpt_problem problem;
	struct gpt_args args;

	cr_assert_eq(parse("--layers 2 --lr=0.5 --bf16 --schedule sharded --resident=1.5M "
	                   "--staging 64K --optimizer=sgd --data /x --d-model=64",
	                   &args, &problem),
	             0, "%s", problem.chars);
	cr_expect_eq(args.model.layer_count, 2);
	cr_expect_eq(args.model.channel_count, 64);
	cr_expect_eq(args.lr, 0.5);
	cr_expect(args.is_bf16);
	cr_expect_eq(args.schedule, ZINF_SHARDED);
	cr_expect_eq(args.optimizer, ZINF_SGD);
	cr_expect_eq(args.resident_bytes, 3ull << 19);
	cr_expect_eq(args.staging_bytes, 65536);
	cr_expect_str_eq(args.data, "/x");
}

Test(args, what_is_wrong_is_named)
{
	const struct {
		const char *line;
		const char *says;
	} cases[] = {
		{ "--learning-rte 1", "unknown; did you mean --" },
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
		{ "--schedule=", "allowed are local, sharded" },
		{ "--bf16=yes", "--bf16 takes no value" },
		{ "train", "options begin with --" },
		{ "-h", "options begin with --" },
		{ "--f32-grads", "--f32-grads needs --bf16" },
		{ "--heads 3", "--d-model 128 is not a multiple of --heads 3" },
		{ "--beta1 1", "must be below 1" },
		{ "--optimizer lion --beta2 1", "must be below 1 unless --optimizer is sgd" },
		{ "--nesterov", "--nesterov needs --optimizer sgd" },
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

Test(args, learning_rate_warms_up_and_follows_a_cosine)
{
	struct gpt_problem problem;
	struct gpt_args args;

	cr_assert_eq(parse("--lr 1 --min-lr 0.2 --warmup 10 --steps 110", &args, &problem), 0);
	cr_expect_float_eq(gpt_args_lr(&args, 1), 0.1, 1e-12);
	cr_expect_float_eq(gpt_args_lr(&args, 10), 1.0, 1e-12);
	cr_expect_float_eq(gpt_args_lr(&args, 60), 0.6, 1e-12);
	cr_expect_float_eq(gpt_args_lr(&args, 110), 0.2, 1e-12);
	cr_expect_float_eq(gpt_args_lr(&args, 500), 0.2, 1e-12);
	for (uint64_t step = 11; step < 110; step++)
		cr_expect_lt(gpt_args_lr(&args, step + 1), gpt_args_lr(&args, step));
	cr_assert_eq(parse("--lr 1 --warmup 0", &args, &problem), 0);
	cr_expect_leq(gpt_args_lr(&args, 1), 1.0);
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
