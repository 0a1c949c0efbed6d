/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zctl estimate: what a job would hold in each tier, before it exists (docs/ADMIN.md). It asks no
 * daemon: the figures are those of common/wire/plan.h, which are the daemon's own.
 */
#include <errno.h>
#include <stdio.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "zctl/estimate/show.h"
#include "zctl/zctl.h"

/* If no setting of the chosen strategy fits: another strategy, whose ranks hold less.
 * Return: 0; -ENOSPC none of them fits. */
static int find_strategy(struct estimate *estimate, const struct zi_plan_model *model,
                         struct zi_plan_options *found)
{
	const struct estimate_options *options = estimate->options;
	struct estimate_fit *fit = &estimate->fit;
	struct zi_text text = { "" };
	int r;

	r = zi_plan_fit_strategy(model, &estimate->wish, options->fit_cpu_bytes,
	                         options->fit_nvme_bytes, found, &text);
	if (r)
		return err_trace(r);
	fit->config = found->config;
	zi_text_set(&fit->text, "with --strategy %s %s", zi_strategy_name(found->training.strategy),
	            text.chars);
	return 0;
}

/* 0; 1 no setting fits. */
static int find_fit(struct estimate *estimate, const struct zi_plan_model *model)
{
	const struct estimate_options *options = estimate->options;
	struct zi_plan_options found = estimate->wish;
	struct estimate_fit *fit = &estimate->fit;
	int r;

	fit->is_wanted = options->fit_cpu_bytes != UINT64_MAX;
	if (!fit->is_wanted)
		return 0;
	r = zi_plan_fit(model, &estimate->wish, options->fit_cpu_bytes, options->fit_nvme_bytes,
	                &fit->config, &fit->text);
	if (r == -ENOSPC)
		r = find_strategy(estimate, model, &found);
	if (r)
		return 1;
	found.config = fit->config;
	fit->strategy = found.training.strategy;
	/* It was made before: what fits is possible. */
	fit->is_found = !zi_plan_make(model, &found, &fit->plan, NULL);
	return !fit->is_found;
}

static int estimate(const struct zctl_context *context, const struct estimate_options *options,
                    const struct estimate_model *read)
{
	struct zi_plan_model model = estimate_model_plan(read);
	struct estimate estimate = {
		.options = options,
		.model = read,
		.wish = estimate_options_plan(options, read),
	};
	struct zi_text text = { "" };
	int r = estimate_options_training(options, &estimate.wish, &estimate.wish.training, &text);
	int code;

	if (!r)
		r = zi_plan_make(&model, &estimate.wish, &estimate.plan, &text);
	if (r) {
		zctl_complain("%s", text.chars);
		return 1;
	}
	estimate_logical(&model, &estimate.wish, &estimate.logical);
	code = find_fit(&estimate, &model);
	if (context->is_json) {
		json_t *answer = estimate_answer(&estimate);

		code = zctl_print_json(answer) || code;
		json_decref(answer);
	} else {
		estimate_show(&estimate, context->is_colour);
	}
	if (code)
		zctl_complain("%s", estimate.fit.text.chars);
	return code;
}

/**
 * zctl_estimate() - what a job would hold
 * @context: output options
 * @argc: words
 * @argv: "estimate", then as estimate_options_help() says
 *
 * Return: exit code; 1 also when --fit finds no setting.
 */
int zctl_estimate(const struct zctl_context *context, int argc, char **argv)
{
	struct estimate_options options;
	struct estimate_model model;
	struct zi_text text = { "" };
	int code = 1;

	if (estimate_options_parse(&options, argc, argv, &text)) {
		zctl_complain("%s (zctl estimate --help)", text.chars);
		return 2;
	}
	if (options.is_help) {
		estimate_options_help(stdout);
		return 0;
	}
	if (estimate_read(&model, options.source, options.unit_count, &text))
		zctl_complain("%s", text.chars);
	else
		code = estimate(context, &options, &model);
	estimate_model_free(&model);
	return code;
}
