/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zctl estimate: what a job would hold in each tier, before it exists (docs/ADMIN.md). The figures
 * are those of common/wire/plan.h, which are the daemon's own. With --device a running daemon is
 * asked how much GPU memory it has free; else no daemon is asked.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

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

/* Return: 0; 1 after a message: no GPU memory holds such a model, or the named GPU is not there. */
static int estimate_rank_gpu(const struct zctl_context *context, struct estimate *estimate)
{
	const struct estimate_options *options = estimate->options;
	struct estimate_gpu *gpu = &estimate->gpu;
	struct zctl_context quiet = *context;
	struct zi_text text = { "" };

	gpu->is_wanted = options->device != NULL;
	if (!gpu->is_wanted)
		return 0;
	gpu->granularity_bytes = ESTIMATE_GPU_GRANULARITY_BYTES;
	gpu->room_bytes = ESTIMATE_GPU_NO_ROOM;
	if (options->gpu_memory_bytes) {
		gpu->room_bytes = options->gpu_memory_bytes;
	} else {
		bool is_named = strcmp(options->device, "gpu") != 0;
		json_t *tiers;

		quiet.is_quiet = !is_named;
		tiers = zctl_ask(&quiet, "tiers");
		if (!estimate_gpu_find(tiers, options->device, gpu) && is_named) {
			if (tiers)
				zctl_complain("zinfd does not have %s (zctl tiers)",
				              options->device);
			json_decref(tiers);
			return 1;
		}
		json_decref(tiers);
	}
	if (!estimate_gpu(options, estimate->model, &estimate->wish, gpu, &text))
		return 0;
	zctl_complain("%s", text.chars);
	return 1;
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
	if (estimate_rank_gpu(context, &estimate))
		return 1;
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
	if (!estimate.gpu.is_wanted || estimate.gpu.fits)
		return code;
	zctl_complain("%s", estimate.gpu.text.chars);
	return 1;
}

/**
 * zctl_estimate() - what a job would hold
 * @context: output options
 * @argc: words
 * @argv: "estimate", then as estimate_options_help() says
 *
 * Return: exit code; 1 also when --fit finds no setting, or the GPU memory does not suffice.
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
