/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the options of the learning rate make the schedule that they name, or are refused. Method:
 * tables of lines; values of libzinf's own schedules.
 */
#include <errno.h>

#include "examples/gpt/args_lr.h"
#include "tests/unit/gpt/parse.h"
#include "zinf/zinf.h"

static double own_lr(const struct gpt_args *args, uint64_t step)
{
	struct zinf_lr_value value;

	gpt_lr(args, step, step - 1, &value);
	cr_assert_not(value.has_betas);
	return value.lr;
}

Test(args_lr, learning_rate_warms_up_and_follows_a_cosine)
{
	struct gpt_problem problem;
	struct gpt_args args;

	cr_assert_eq(parse("--lr 1 --min-lr 0.2 --warmup 10 --steps 110", &args, &problem), 0);
	cr_expect_float_eq(own_lr(&args, 1), 0.1, 1e-12);
	cr_expect_float_eq(own_lr(&args, 10), 1.0, 1e-12);
	cr_expect_float_eq(own_lr(&args, 60), 0.6, 1e-12);
	cr_expect_float_eq(own_lr(&args, 110), 0.2, 1e-12);
	cr_expect_float_eq(own_lr(&args, 500), 0.2, 1e-12);
	for (uint64_t step = 11; step < 110; step++)
		cr_expect_lt(own_lr(&args, step + 1), own_lr(&args, step));
	cr_assert_eq(parse("--lr 1 --warmup 0", &args, &problem), 0);
	cr_expect_leq(own_lr(&args, 1), 1.0);
}

Test(args_lr, skipped_steps_do_not_move_the_default_schedule)
{
	struct gpt_problem problem;
	struct gpt_args args;
	struct zinf_lr_value value;

	cr_assert_eq(parse("--lr 1 --min-lr 0.2 --warmup 10 --steps 110", &args, &problem), 0);
	for (uint64_t step = 9; step < 120; step++) {
		gpt_lr(&args, step, step - 9, &value);
		cr_expect_eq(value.lr, own_lr(&args, step - 8), "eight steps before were skipped");
	}
}

Test(args_lr, lr_total_keeps_the_default_schedule_of_a_longer_run)
{
	struct gpt_problem problem;
	struct gpt_args shorter, longer;

	cr_assert_eq(parse("--steps 30", &shorter, &problem), 0);
	cr_assert_eq(parse("--steps 40 --lr-total 30", &longer, &problem), 0, "%s", problem.chars);
	for (uint64_t step = 1; step <= 40; step++)
		cr_expect_eq(own_lr(&shorter, step), own_lr(&longer, step), "step %d", (int)step);
	cr_expect_eq(gpt_lr_total(&longer), 30);
	cr_assert_eq(parse("--lr 1 --min-lr 1", &longer, &problem), 0);
	cr_expect_eq(gpt_lr_total(&longer), 0, "it has no end");
	cr_assert_eq(parse("--lr-schedule constant", &longer, &problem), 0);
	cr_expect_eq(gpt_lr_total(&longer), 0);
}

Test(args_lr, schedules_of_others_are_those_of_libzinf)
{
	static const struct {
		const char *line;
		struct zinf_lr_options wanted; /* 0: the default */
	} cases[] = {
		{ "linear", { .kind = ZINF_LR_LINEAR } },
		{ "cosine --lr-cycles 1.5 --lr-total 30",
		  { .kind = ZINF_LR_COSINE, .cycle_count = 1.5, .total_count = 30 } },
		{ "polynomial --lr-end 0.125 --lr-power 2",
		  { .kind = ZINF_LR_POLYNOMIAL, .lr_end = 0.125, .power = 2 } },
		{ "cosine_with_min_lr --lr-min-ratio 0.25",
		  { .kind = ZINF_LR_COSINE_MIN, .min_ratio = 0.25 } },
		{ "warmup_stable_decay --lr-decay 10 --lr-decay-shape 1-sqrt "
		  "--lr-warmup-shape cosine",
		  { .kind = ZINF_LR_WARMUP_STABLE_DECAY,
		    .stable_count = 26,
		    .decay_count = 10,
		    .decay_shape = ZINF_LR_SHAPE_SQRT,
		    .warmup_shape = ZINF_LR_SHAPE_COSINE } },
		{ "warmup_stable_decay --lr-stable 5",
		  { .kind = ZINF_LR_WARMUP_STABLE_DECAY, .stable_count = 5 } },
		{ "LRRangeTest", { .kind = ZINF_LR_RANGE_TEST, .min_lr = 0.5, .step_count = 4 } },
		{ "OneCycle --min-lr 0.25",
		  { .kind = ZINF_LR_ONE_CYCLE,
		    .min_lr = 0.25,
		    .max_lr = 0.5,
		    .first_count = 4,
		    .second_count = 36 } },
		{ "WarmupLR --lr-warmup-shape linear",
		  { .kind = ZINF_LR_WARMUP, .warmup_shape = ZINF_LR_SHAPE_LINEAR } },
		{ "WarmupDecayLR", { .kind = ZINF_LR_WARMUP_DECAY, .max_lr = 0.5 } },
		{ "WarmupCosineLR", { .kind = ZINF_LR_WARMUP_COSINE } },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct zinf_lr_options *wanted = &cases[i].wanted;
		struct zinf_lr_options options;
		struct zinf_lr_value value, expected;
		struct gpt_problem problem;
		struct gpt_args args;
		char line[256];

		(void)snprintf(line, sizeof(line),
		               "--lr 0.5 --warmup 4 --steps 40 --lr-schedule %s", cases[i].line);
		cr_assert_eq(parse(line, &args, &problem), 0, "%s", problem.chars);
		cr_assert_eq(zinf_lr_defaults(wanted->kind, &options), 0);
		options.lr = 0.5;
		options.warmup_count = 4;
		options.total_count = wanted->total_count ? wanted->total_count : 40;
#define TAKE(field)             \
	if (wanted->field != 0) \
	options.field = wanted->field
		TAKE(cycle_count);
		TAKE(lr_end);
		TAKE(power);
		TAKE(min_ratio);
		TAKE(stable_count);
		TAKE(decay_count);
		TAKE(warmup_shape);
		TAKE(decay_shape);
		TAKE(min_lr);
		TAKE(max_lr);
		TAKE(step_count);
		TAKE(first_count);
		TAKE(second_count);
		for (uint64_t step = 1; step <= 45; step++) {
			gpt_lr(&args, step, step - 1, &value);
			cr_assert_eq(zinf_lr_at(&options, step - 1, &expected), 0);
			cr_assert_eq(value.lr, expected.lr, "%s, step %d", line, (int)step);
			cr_assert_eq(value.has_betas, expected.has_betas);
			cr_assert_eq(value.beta1, expected.beta1);
			if (step < 3)
				continue;
			gpt_lr(&args, step, step - 3, &value);
			cr_assert_eq(zinf_lr_at(&options, step - 3, &expected), 0);
			cr_assert_eq(value.lr, expected.lr, "two steps were skipped");
		}
	}
}

Test(args_lr, every_schedule_is_known_by_its_name)
{
	struct gpt_problem problem;
	struct gpt_args args;
	char line[128];

	for (int kind = 1; zinf_lr_name((enum zinf_lr_kind)kind); kind++) {
		(void)snprintf(line, sizeof(line), "--lr-schedule %s",
		               zinf_lr_name((enum zinf_lr_kind)kind));
		cr_assert_eq(parse(line, &args, &problem), 0, "%s", problem.chars);
		cr_expect_eq(args.lr_kind, kind);
	}
	cr_assert_eq(parse("--lr-schedule OneCycle --optimizer sgd", &args, &problem), 0);
	cr_expect_lt(own_lr(&args, 5), args.lr, "and no betas");
}

Test(args_lr, what_makes_no_schedule_is_refused)
{
	static const char *const lines[][2] = {
		{ "--lr-schedule Linear", "--lr-schedule Linear: allowed are gpt, constant, " },
		{ "--lr-power 2", "--lr-power has no effect with --lr-schedule gpt" },
		{ "--lr-schedule cosine --lr-end 0.1",
		  "--lr-end has no effect with --lr-schedule cosine" },
		{ "--lr-schedule linear --min-lr 0",
		  "--min-lr has no effect with --lr-schedule linear" },
		{ "--lr-schedule constant --lr-total 5",
		  "--lr-total has no effect with --lr-schedule constant" },
		{ "--lr-schedule linear --lr-cycles 1",
		  "--lr-cycles has no effect with --lr-schedule linear" },
		{ "--lr-schedule cosine --lr-min-ratio 0",
		  "--lr-min-ratio has no effect with --lr-schedule cosine" },
		{ "--lr-schedule cosine --lr-stable 0",
		  "--lr-stable has no effect with --lr-schedule cosine" },
		{ "--lr-schedule cosine --lr-decay 1",
		  "--lr-decay has no effect with --lr-schedule cosine" },
		{ "--lr-schedule cosine --lr-warmup-shape log",
		  "--lr-warmup-shape has no effect with --lr-schedule cosine" },
		{ "--lr-schedule WarmupLR --lr-decay-shape linear",
		  "--lr-decay-shape has no effect with --lr-schedule WarmupLR" },
		{ "--lr-schedule polynomial --warmup 20 --lr-total 20",
		  "--lr-schedule polynomial: total_count 20 must be above warmup_count 20 (lr is "
		  "--lr, warmup_count --warmup, total_count --lr-total)" },
		{ "--lr-schedule WarmupCosineLR --lr-warmup-shape cosine",
		  "--lr-schedule WarmupCosineLR: warmup_shape 2; allowed are linear (1) and log "
		  "(4)" },
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct gpt_problem problem = { "" };
		struct gpt_args args;

		cr_expect_eq(parse(lines[i][0], &args, &problem), -EINVAL, "%s", lines[i][0]);
		cr_expect_eq(strncmp(problem.chars, lines[i][1], strlen(lines[i][1])), 0, "%s: %s",
		             lines[i][0], problem.chars);
	}
}
