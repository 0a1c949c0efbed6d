/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever two ranks of a job say differently of how it trains is told to the second one with
 * both values, and it may say it right then: each word of zinf_options about training, each of
 * zinf_scaler_options, each of zinf_step_options. Method: a table for each of them; rank 1 goes
 * through it with a mistake at a time, over the socket. reduce_dtype is refused to everybody
 * yet (test_badinput.c).
 */
#include "tests/system/pair.h"

TestSuite(badpair, .timeout = 120);

/* ---- how a job trains ---- */

struct given {
	struct zinf_options options;
	struct zinf_scaler_options scaler;
};

static void take_zero3(struct given *given)
{
	given->options.strategy = ZINF_ZERO3;
}

static void take_scaler(struct given *given, enum zinf_scaler_kind kind)
{
	cr_assert_eq(zinf_scaler_defaults(kind, &given->scaler), 0);
	given->options.param_dtype = given->options.grad_dtype = ZINF_F16;
	given->options.scaler = &given->scaler;
}

static void take_deepspeed(struct given *given)
{
	take_scaler(given, ZINF_SCALER_DEEPSPEED);
}

static void take_torch(struct given *given)
{
	take_scaler(given, ZINF_SCALER_TORCH);
}

static void take_apex(struct given *given)
{
	take_scaler(given, ZINF_SCALER_APEX);
}

/* Where in struct given a mistake is, and what lies there then. */
enum width { BYTE, WORD, LONG, REAL };
#define OPTION(width, field, value) width, offsetof(struct given, options.field), value
#define SCALE(width, field, value)  width, offsetof(struct given, scaler.field), value

static const struct {
	void (*take)(struct given *given); /* in both ranks; NULL: nothing */
	enum width width;
	size_t offset;
	double value;
	const char *says;
} attaches[] = {
	{ NULL, OPTION(WORD, strategy, ZINF_ZERO1), "strategy is zero1, but ddp" },
	{ take_zero3, OPTION(WORD, shard_size, 1), "shard_size is 1, but 0" },
	{ NULL, OPTION(WORD, accumulation, 4), "accumulation is 4, but 1" },
	{ take_zero3, OPTION(LONG, grad_budget_bytes, 1 << 20), "grad_budget_bytes is 1 MiB, but" },
	{ NULL, OPTION(WORD, group_count, 3), "group_count is 3, but 1" },
	{ NULL, OPTION(BYTE, is_forward_only, 1), "is_forward_only is true, but false" },
	{ NULL, OPTION(BYTE, finds_unused, 1), "finds_unused is true, but false" },
	{ take_deepspeed, SCALE(WORD, kind, ZINF_SCALER_TORCH), "scaler is torch, but deepspeed" },
	{ take_deepspeed, SCALE(WORD, window, 7), "scale_window is 7, but 1000" },
	{ take_deepspeed, SCALE(WORD, hysteresis, 3), "scale_hysteresis is 3, but 2" },
	{ take_deepspeed, SCALE(BYTE, is_consecutive, 1), "is_consecutive is true, but false" },
	{ take_deepspeed, SCALE(REAL, init, 512), "scale_init is 512, but 65536" },
	{ take_deepspeed, SCALE(REAL, min, 2), "scale_min is 2, but 1" },
	{ take_apex, SCALE(REAL, max, 0x1p20), "scale_max is 1048576, but 16777216" },
	{ take_torch, SCALE(REAL, growth, 4), "scale_growth is 4, but 2" },
	{ take_torch, SCALE(REAL, backoff, 0.25), "scale_backoff is 0.25, but 0.5" },
};

static void put(void *object, enum width width, size_t offset, double value)
{
	char *place = (char *)object + offset;

	if (width == BYTE)
		*place = (char)value;
	else if (width == WORD)
		*(uint32_t *)(void *)place = (uint32_t)value;
	else if (width == LONG)
		*(uint64_t *)(void *)place = (uint64_t)value;
	else
		*(double *)(void *)place = value;
}

static void give(struct given *given, int32_t rank, size_t i)
{
	*given = (struct given){ .options = options_of(rank, 2) };
	if (attaches[i].take)
		attaches[i].take(given);
}

Test(badpair, each_word_of_how_a_job_trains_is_named_with_both_values)
{
	start(NULL);
	for (size_t i = 0; i < sizeof(attaches) / sizeof(attaches[0]); i++) {
		struct zinf *zinf[2];
		struct given given;
		char says[128];

		give(&given, 0, i);
		zinf[0] = attach(&given.options);
		give(&given, 1, i);
		put(&given, attaches[i].width, attaches[i].offset, attaches[i].value);
		(void)snprintf(says, sizeof(says), "%s", attaches[i].says);
		expect_refused(&given.options, -EINVAL, says);
		cr_expect_not_null(strstr(zinf_attach_error(), "in the other ranks"), "%s",
		                   zinf_attach_error());
		give(&given, 1, i);
		zinf[1] = attach(&given.options);
		end_pair(zinf);
	}
	stop();
}

/* ---- a step ---- */

static const struct zinf_step_group groups[2][2] = { { { 0.5, 0.25 }, { 1, 0 } },
	                                             { { 0.5, 0.25 }, { 2, 0 } } };

enum job { ADAMW, ADAGRAD, SHARDED, GROUPED, JOBS };
static const char *const names[JOBS] = { "adamw", "adagrad", "sharded", "grouped" };

#define STEP(width, field, value) width, offsetof(struct zinf_step_options, field), value

static const struct {
	enum job job;
	enum width width;
	size_t offset;
	double value;
	const char *says;
} steps[] = {
	{ ADAMW, STEP(REAL, lr, 0.5), "lr is 0.5 in rank 1, but 0.25 in rank 0" },
	{ ADAMW, STEP(REAL, beta1, 0.5), "beta1 is 0.5 in rank 1, but 0.75 in rank 0" },
	{ ADAMW, STEP(REAL, beta2, 0.5), "beta2 is 0.5 in rank 1, but 0.875 in rank 0" },
	{ ADAMW, STEP(REAL, eps, 0.5), "eps is 0.5 in rank 1, but" },
	{ ADAMW, STEP(REAL, weight_decay, 0.5), "weight_decay is 0.5 in rank 1, but" },
	{ ADAMW, STEP(REAL, max_norm, 0.5), "max_norm is 0.5 in rank 1, but 0 in rank 0" },
	{ ADAMW, STEP(REAL, unscale, 0.5), "unscale is 0.5 in rank 1, but 1 in rank 0" },
	{ ADAMW, STEP(BYTE, nesterov, 1), "nesterov is set in rank 1, but not set in rank 0" },
	{ ADAMW, STEP(BYTE, sum, 1), "sum is set in rank 1, but not set in rank 0" },
	{ ADAMW, STEP(BYTE, skip_nonfinite, 1),
	  "skip_nonfinite is set in rank 1, but not set in rank 0" },
	{ ADAMW, STEP(BYTE, want_norm, 1), "want_norm is set in rank 1, but not set in rank 0" },
	{ ADAMW, STEP(BYTE, update_early, 1),
	  "update_early is set in rank 1, but not set in rank 0" },
	{ ADAMW, STEP(BYTE, no_bias_correction, 1),
	  "no_bias_correction is set in rank 1, but not set in rank 0" },
	{ ADAGRAD, STEP(REAL, lr_decay, 0.5), "lr_decay is 0.5 in rank 1, but 0 in rank 0" },
	{ SHARDED, STEP(WORD, micro_batches, 3), "micro_batches is 3 in rank 1, but 1 in rank 0" },
	{ GROUPED, STEP(LONG, groups, 0), "group_count of the step is 0 in rank 1, but 2" },
	{ GROUPED, STEP(LONG, groups, 1), "group 1 has lr 2 and weight_decay 0 in rank 1, but 1" },
};

static void make_job(enum job job, struct zinf *zinf[2])
{
	int other;

	for (int32_t rank = 0; rank < 2; rank++) {
		struct zinf_options options = options_of(rank, 2);

		options.job = names[job];
		if (job == ADAGRAD)
			options.optimizer = ZINF_ADAGRAD;
		if (job == SHARDED)
			options.grad_reduction = ZINF_REDUCE_PER_MICRO_BATCH;
		if (job == GROUPED)
			options.group_count = 2;
		zinf[rank] = attach(&options);
		lay_out(zinf[rank], 30, 40);
		if (job == GROUPED)
			cr_assert_eq(zinf_param_group(zinf[rank], 1, 1), 0);
	}
	cr_assert_eq(both(zinf, zinf_materialize, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(both(zinf, commit, &other), 0, "%s", zinf_error_text(zinf[0]));
}

static struct zinf_step_options options_of_step(enum job job)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;

	options.lr = 0.25;
	options.beta1 = 0.75;
	options.beta2 = 0.875;
	if (job == GROUPED) {
		options.groups = groups[0];
		options.group_count = 2;
	}
	return options;
}

/* Groups are the one field that points elsewhere. */
static void mistake(struct zinf_step_options *options, size_t i)
{
	if (steps[i].job != GROUPED) {
		put(options, steps[i].width, steps[i].offset, steps[i].value);
		return;
	}
	options->groups = steps[i].value > 0 ? groups[1] : NULL;
	options->group_count = options->groups ? 2 : 0;
}

Test(badpair, each_word_of_a_step_is_named_with_both_values)
{
	start(NULL);
	for (enum job job = 0; job < JOBS; job++) {
		struct zinf_step_options options = options_of_step(job);
		struct zinf *zinf[2];

		make_job(job, zinf);
		cr_assert_eq(zinf_step_begin(zinf[0], &options), 0, "%s", zinf_error_text(zinf[0]));
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
			if (steps[i].job != job)
				continue;
			options = options_of_step(job);
			mistake(&options, i);
			cr_expect_eq(zinf_step_begin(zinf[1], &options), -EINVAL, "%s",
			             steps[i].says);
			system_expect_text(zinf_error_text(zinf[1]), steps[i].says);
		}
		options = options_of_step(job);
		cr_assert_eq(zinf_step_begin(zinf[1], &options), 0, "%s", zinf_error_text(zinf[1]));
		end_pair(zinf);
	}
	stop();
}
