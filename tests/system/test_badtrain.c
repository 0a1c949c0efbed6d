/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever is wrong with a model or with its gradients is answered by name and figure;
 * nothing hangs, and the job goes on. Method: one rank and a model of two units; each mistake is
 * made, its answer looked at, and a sound step made after it. Mistakes of attaching and of several
 * ranks are in test_badinput.c, of memory and space in test_limits.c.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/system/pair.h"

#define ROWS    100u
#define COLUMNS 10u

enum { BODY, HEAD, UNITS };

static struct zinf *zinf;

TestSuite(badtrain, .timeout = 120);

static void begin_with(uint32_t optimizer)
{
	struct zinf_options options;

	start(NULL);
	options = options_of(0, 1);
	options.optimizer = optimizer;
	zinf = attach(&options);
	lay_out(zinf, ROWS, COLUMNS);
	cr_assert_eq(zinf_materialize(zinf), 0, "%s", zinf_error_text(zinf));
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		float *values;

		cr_assert_eq(zinf_param_write_begin(zinf, unit), 0, "%s", zinf_error_text(zinf));
		values = (float *)(uintptr_t)zinf_param_data(zinf, unit);
		for (uint32_t i = 0; i < (unit == BODY ? ROWS * COLUMNS : 10); i++)
			values[i] = 1.0f;
		cr_assert_eq(zinf_param_write_end(zinf, unit, 0), 0);
	}
	cr_assert_eq(zinf_commit(zinf, NULL, 0), 0);
}

static void end(void)
{
	zinf_detach(zinf);
	stop();
}

static struct zinf_step_options step_options(void)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;

	options.lr = 0.5;
	return options;
}

/* @value: one element of the body's gradient, the others are 1. */
static void hand_over(uint32_t unit, float value)
{
	float *grad;

	cr_assert_eq(zinf_grad_acquire(zinf, unit), 0, "%s", zinf_error_text(zinf));
	grad = zinf_grad_data(zinf, unit);
	for (uint32_t i = 0; i < (unit == BODY ? ROWS * COLUMNS : 10); i++)
		grad[i] = unit == BODY && i == 7 ? value : 1.0f;
	cr_assert_eq(zinf_reduce(zinf, unit), 0);
}

static struct zinf_step_stats step(const struct zinf_step_options *options, float value)
{
	struct zinf_step_stats stats = { .bytes = sizeof(stats) };
	zinf_ticket ticket;

	cr_assert_eq(zinf_step_begin(zinf, options), 0, "%s", zinf_error_text(zinf));
	hand_over(BODY, value);
	hand_over(HEAD, value);
	cr_assert_eq(zinf_step(zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_wait(zinf, ticket, &stats), 0, "%s", zinf_error_text(zinf));
	return stats;
}

static float param_at(uint32_t unit, uint32_t index)
{
	float value;

	cr_assert_eq(zinf_unshard(zinf, unit), 0, "%s", zinf_error_text(zinf));
	value = ((const float *)zinf_param_data(zinf, unit))[index];
	cr_assert_eq(zinf_reshard(zinf, unit), 0);
	return value;
}

Test(badtrain, a_gradient_that_is_no_number_is_skipped_and_the_job_goes_on)
{
	struct zinf_step_options options = step_options();
	struct zinf_step_stats stats;

	begin_with(ZINF_SGD);
	options.skip_nonfinite = true;
	stats = step(&options, NAN);
	cr_expect(stats.is_skipped);
	cr_expect_eq(stats.step, 1);
	cr_expect_eq(stats.committed_step, 1);
	cr_expect_eq(stats.update_count, 0);
	cr_expect_not(isfinite(stats.norm), "%g", stats.norm);
	cr_expect_eq(param_at(BODY, 0), 1.0f);
	stats = step(&options, 1.0f);
	cr_expect_not(stats.is_skipped);
	cr_expect_eq(stats.step, 2);
	cr_expect_eq(stats.update_count, 1);
	cr_expect_eq(stats.norm, sqrt(ROWS * COLUMNS + 10));
	cr_expect_eq(param_at(BODY, 0), 0.5f);
	end();
}

Test(badtrain, a_gradient_that_is_no_number_is_told_by_the_norm_where_nothing_is_skipped)
{
	struct zinf_step_options options = step_options();
	struct zinf_step_stats stats;

	begin_with(ZINF_SGD);
	options.want_norm = true;
	stats = step(&options, NAN);
	cr_expect_not(stats.is_skipped);
	cr_expect(isnan(stats.norm), "%g", stats.norm);
	cr_expect(isnan(param_at(BODY, 7)));
	cr_expect_eq(param_at(BODY, 6), 0.5f);
	end();
}

Test(badtrain, a_unit_without_a_gradient_is_named_and_may_be_given_one)
{
	struct zinf_step_options options = step_options();
	zinf_ticket ticket;

	begin_with(ZINF_ADAMW);
	cr_assert_eq(zinf_step_begin(zinf, &options), 0);
	hand_over(BODY, 1.0f);
	cr_assert_eq(zinf_step(zinf, NULL, 0, &ticket), -ENODATA);
	system_expect_text(zinf_error_text(zinf), "no gradient for units: head");
	hand_over(HEAD, 1.0f);
	cr_assert_eq(zinf_step(zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_wait(zinf, ticket, NULL), 0);
	end();
}

Test(badtrain, models_that_cannot_be_are_refused_by_name)
{
	const uint64_t none[2] = { 3, 0 }, one = 1;
	struct zinf_options options;
	uint32_t index;

	start(NULL);
	options = options_of(0, 1);
	zinf = attach(&options);
	cr_assert_eq(zinf_unit_add(zinf, "embed", &index), 0);
	cr_expect_eq(zinf_param_add(zinf, "embed.weight", 2, none, &index), -EINVAL);
	system_expect_text(zinf_error_text(zinf), "embed.weight");
	cr_expect_eq(zinf_materialize(zinf), -EINVAL);
	system_expect_text(zinf_error_text(zinf), "'embed'");
	zinf_detach(zinf);
	zinf = attach(&options);
	cr_assert_eq(zinf_unit_add(zinf, "embed", &index), 0);
	cr_assert_eq(zinf_param_add(zinf, "tied", 1, &one, &index), 0);
	cr_assert_eq(zinf_unit_add(zinf, "head", &index), 0);
	cr_assert_eq(zinf_param_add(zinf, "tied", 1, &one, &index), 0);
	cr_expect_eq(zinf_materialize(zinf), -EINVAL);
	system_expect_text(zinf_error_text(zinf), "parameter 'tied' is in the model twice, as "
	                                          "number 0 in unit 'embed' and as number 1 in "
	                                          "unit 'head'");
	end();
}

/* A tied weight is used once more after its unit's gradient was handed over. */
Test(badtrain, a_use_after_the_last_gradient_is_refused_where_none_was_promised)
{
	struct zinf_step_options options = step_options();
	zinf_ticket ticket;

	begin_with(ZINF_ADAMW);
	options.update_early = true;
	cr_assert_eq(zinf_step_begin(zinf, &options), 0);
	hand_over(BODY, 1.0f);
	cr_expect_eq(zinf_unshard(zinf, BODY), -EBUSY);
	system_expect_text(zinf_error_text(zinf), "body");
	hand_over(HEAD, 1.0f);
	cr_assert_eq(zinf_step(zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_wait(zinf, ticket, NULL), 0);
	cr_expect_lt(param_at(BODY, 0), 1.0f);
	end();
}

/* What does not fit is answered with the setting that does, and with it the job trains. */
Test(badtrain, more_memory_than_there_is_is_answered_with_a_setting_that_works)
{
	const uint64_t shape[2] = { 2000, 1000 };
	struct zinf_options options;
	char words[256];
	uint32_t index;

	system_start(&harness,
	             &(struct harness_options){ .nvme_size = "64M", .cpu_capacity = "31M" });
	options = options_of(0, 1);
	zinf = attach(&options);
	cr_assert_eq(zinf_unit_add(zinf, "large", &index), 0);
	cr_assert_eq(zinf_param_add(zinf, "large.weight", 2, shape, &index), 0);
	cr_assert_eq(zinf_materialize(zinf), -ENOSPC);
	(void)snprintf(words, sizeof(words), "%s", zinf_error_text(zinf));
	system_expect_text(words, "; it fits with offload_optimizer nvme");
	zinf_detach(zinf);
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	if (strstr(words, "staging_bytes "))
		options.staging_bytes = strtoull(strstr(words, "staging_bytes ") + 14, NULL, 10);
	zinf = attach(&options);
	cr_assert_eq(zinf_unit_add(zinf, "large", &index), 0);
	cr_assert_eq(zinf_param_add(zinf, "large.weight", 2, shape, &index), 0);
	cr_assert_eq(zinf_materialize(zinf), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_param_write_begin(zinf, 0), 0, "%s", zinf_error_text(zinf));
	end();
}

Test(badtrain, what_an_optimizer_does_not_have_is_named)
{
	struct zinf_step_options options = step_options();

	begin_with(ZINF_SGD);
	options.lr_decay = 0.25;
	cr_expect_eq(zinf_step_begin(zinf, &options), -EINVAL);
	system_expect_text(zinf_error_text(zinf), "lr_decay is 0.25: adagrad has one, the job's "
	                                          "optimizer is sgd");
	options.lr_decay = 0;
	options.no_bias_correction = true;
	cr_expect_eq(zinf_step_begin(zinf, &options), -EINVAL);
	system_expect_text(zinf_error_text(zinf), "no_bias_correction");
	options.no_bias_correction = false;
	cr_expect_eq(step(&options, 1.0f).step, 1);
	end();
}

Test(badtrain, a_resume_with_another_optimizer_is_told_with_both)
{
	struct zinf_options options;

	begin_with(ZINF_SGD);
	zinf_detach(zinf);
	options = options_of(0, 1);
	options.incarnation = "second";
	options.optimizer = ZINF_ADAMW;
	expect_refused(&options, -EINVAL, "optimizer is adamw, but sgd in the stored job");
	stop();
}
