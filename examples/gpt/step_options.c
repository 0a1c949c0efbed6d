/* SPDX-License-Identifier: Apache-2.0 */
/* What the flags mean for one optimizer step (step_options.h). */
#include "examples/gpt/step_options.h"

#include "examples/gpt/args_lr.h"
#include "examples/gpt/args_scale.h"

/**
 * gpt_step_options() - the options of a step
 * @args: of the rank
 * @step: from 1
 * @update_count: steps before it that changed the parameters
 * @groups: the options point there. Written with --weight-decay-groups
 * @ret_options: written
 */
void gpt_step_options(const struct gpt_args *args, uint64_t step, uint64_t update_count,
                      struct zinf_step_group groups[static GPT_GROUPS_MAX],
                      struct zinf_step_options *ret_options)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	bool is_sgd = args->optimizer == ZINF_SGD;
	struct zinf_lr_value value;

	gpt_lr(args, step, update_count, &value);
	options.lr = value.lr;
	options.beta1 = is_sgd ? args->momentum : args->beta1;
	options.beta2 = is_sgd ? args->dampening : args->beta2;
	if (value.has_betas) {
		options.beta1 = value.beta1;
		options.beta2 = value.beta2;
	}
	options.eps = args->eps;
	options.weight_decay = args->weight_decay;
	if (args->has_decay_groups) {
		groups[0] = (struct zinf_step_group){ value.lr, args->weight_decay };
		groups[1] = (struct zinf_step_group){ value.lr, 0 };
		options.groups = groups;
		options.group_count = GPT_GROUPS_MAX;
	}
	options.max_norm = args->clip;
	options.micro_batches =
		args->grad_reduction == ZINF_REDUCE_PER_MICRO_BATCH ? args->grad_accum_count : 1;
	options.sum = args->is_summing;
	/* With a scaler zinf divides. */
	options.unscale = args->scaler.kind != ZINF_SCALER_NONE ? 1.0 : 1.0 / gpt_fixed_scale(args);
	options.nesterov = args->is_nesterov;
	options.no_bias_correction = args->has_no_bias_correction;
	options.lr_decay = args->adagrad_decay;
	options.skip_nonfinite = args->is_skipping_nonfinite;
	/* A unit is reduced behind its last use: backward of the last micro-batch. */
	options.update_early = true;
	*ret_options = options;
}
