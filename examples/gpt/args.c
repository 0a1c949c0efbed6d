/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: defaults, one walk over what is given, and what its parts say together. */
#include "examples/gpt/args.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "examples/gpt/args_activations.h"
#include "examples/gpt/args_device.h"
#include "examples/gpt/args_lr.h"
#include "examples/gpt/args_option.h"
#include "examples/gpt/args_scale.h"
#include "examples/gpt/args_strategy.h"
#include "examples/gpt/args_use.h"
#include "examples/gpt/data.h"
#include "examples/gpt/once.h"
#include "examples/gpt/resume.h"
#include "zinf/zinf.h"

static const struct gpt_args defaults = {
	.model = { .layer_count = 4,
	           .head_count = 4,
	           .channel_count = 128,
	           .sequence_count = 128,
	           .batch_count = 8 },
	.rank = -1,
	.grace_s = 30,
	.grad_accum_count = 1,
	.step_count = 300,
	.lr = 2e-3,
	.min_lr = 2e-4,
	.warmup_count = 20,
	.lr_cycles = GPT_LR_UNSET,
	.lr_end = GPT_LR_UNSET,
	.lr_power = GPT_LR_UNSET,
	.lr_min_ratio = GPT_LR_UNSET,
	.lr_stable_count = GPT_LR_UNSET_COUNT,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.eps = 1e-8,
	.weight_decay = 0.1,
	.momentum = 0.9,
	.clip = 1.0,
	.scale_min = GPT_SCALE_UNSET,
	.optimizer = ZINF_ADAMW,
	.grad_reduction = ZINF_REDUCE_PER_STEP,
	.seed = 1,
	.data = GPT_DATA_DEFAULT,
	.offload_optimizer = ZINF_OFFLOAD_NVME,
	.timeout_s = 600,
	.prompt = "\n",
	.temperature = 1,
	.log_every = 10,
	.eval_batch_count = 4,
};

/* What no single option can know. Fills in what follows from several. -EINVAL with the reason. */
int gpt_args_check(struct gpt_args *args, struct gpt_problem *problem)
{
	int r;

	if (args->is_bf16 && args->is_fp16)
		return gpt_problem_set(problem, -EINVAL,
		                       "--bf16 and --fp16 exclude each other: "
		                       "give one of them");
	if (args->has_f32_grads && !args->is_bf16 && !args->is_fp16)
		return gpt_problem_set(problem, -EINVAL, "--f32-grads needs --bf16 or --fp16");
	if (gpt_reduce_dtype(args) != gpt_grad_dtype(args) && gpt_reduce_dtype(args) != ZINF_F32 &&
	    gpt_grad_dtype(args) != ZINF_F32)
		return gpt_problem_set(problem, -EINVAL,
		                       "--reduce-dtype %s with gradients in %s: use f32, or "
		                       "--f32-grads",
		                       gpt_dtype_name(gpt_reduce_dtype(args)),
		                       gpt_dtype_name(gpt_grad_dtype(args)));
	if (args->model.channel_count % args->model.head_count)
		return gpt_problem_set(problem, -EINVAL,
		                       "--d-model %u is not a multiple of --heads %u",
		                       args->model.channel_count, args->model.head_count);
	if (args->optimizer != ZINF_SGD && (args->beta1 >= 1 || args->beta2 >= 1))
		return gpt_problem_set(problem, -EINVAL,
		                       "--beta1 %g and --beta2 %g must be below 1 unless "
		                       "--optimizer is sgd",
		                       args->beta1, args->beta2);
	if (args->is_nesterov && args->optimizer != ZINF_SGD)
		return gpt_problem_set(problem, -EINVAL, "--nesterov needs --optimizer sgd");
	if (args->adagrad_decay > 0 && args->optimizer != ZINF_ADAGRAD)
		return gpt_problem_set(problem, -EINVAL,
		                       "--adagrad-decay needs --optimizer adagrad");
	if (args->has_no_bias_correction && args->optimizer != ZINF_ADAMW &&
	    args->optimizer != ZINF_ADAM)
		return gpt_problem_set(problem, -EINVAL,
		                       "--no-bias-correction needs --optimizer adamw or adam");
	if (args->min_lr > args->lr)
		return gpt_problem_set(problem, -EINVAL, "--min-lr %g is above --lr %g",
		                       args->min_lr, args->lr);
	if (args->dump_state && !args->is_reference)
		return gpt_problem_set(problem, -EINVAL,
		                       "--dump-state needs --reference; zctl export JOB TARGET "
		                       "--format zinf has the state of a job");
	r = gpt_scale_check(args, problem);
	if (!r)
		r = gpt_strategy_check(args, problem);
	if (!r)
		r = gpt_activations_check(args, problem);
	if (!r)
		r = gpt_device_check(args, problem);
	if (!r)
		r = gpt_use_check(args, problem);
	if (!r)
		r = gpt_resume_check(args, problem);
	if (!r)
		r = gpt_once_check(args, problem);
	return r ? r : gpt_lr_check(args, problem);
}

static int refuse_unknown(const char *word, struct gpt_problem *problem)
{
	int bytes = (int)strcspn(word, "=");
	const char *near = gpt_option_nearest(word + 2, (size_t)bytes - 2);

	if (near)
		return gpt_problem_set(problem, -EINVAL,
		                       "%.*s is unknown; did you mean --%s? (--help lists all)",
		                       bytes, word, near);
	return gpt_problem_set(problem, -EINVAL, "%.*s is unknown (--help lists all options)",
	                       bytes, word);
}

/*
 * Reads "--name value", "--name=value" and flags. @args: defaults first, then what is given; texts
 * point into @argv. Return: 0, -EINVAL with the reason.
 */
int gpt_args_parse(struct gpt_args *args, int argc, const char *const *argv,
                   struct gpt_problem *problem)
{
	int r;

	*args = defaults;
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + 2;
		const char *equals = strchr(argv[i], '=');
		const struct gpt_option *option;
		uint32_t index = 0;

		if (strncmp(argv[i], "--", 2) != 0)
			return gpt_problem_set(problem, -EINVAL,
			                       "'%s' is no option: options begin with --", argv[i]);
		option = gpt_option_find(name, equals ? (size_t)(equals - name) : strlen(name),
		                         &index);
		if (!option)
			return refuse_unknown(argv[i], problem);
		args->is_given[index] = true;
		if (option->kind == GPT_OPTION_FLAG) {
			if (equals)
				return gpt_problem_set(problem, -EINVAL, "--%s takes no value",
				                       option->name);
			*(bool *)((char *)args + option->offset) = true;
			continue;
		}
		if (!equals && i + 1 == argc)
			return gpt_problem_set(problem, -EINVAL, "--%s needs a value",
			                       option->name);
		r = gpt_option_set(option, equals ? equals + 1 : argv[++i], args, problem);
		if (r)
			return r;
	}
	if (!gpt_args_is_given(args, "min-lr"))
		args->min_lr = args->lr / 10; /* As with the defaults, for any --lr. */
	/* With a file, what is to be checked is not known yet: gpt_deepspeed_apply(). */
	return args->deepspeed ? 0 : gpt_args_check(args, problem);
}

/* Whether the command line has the option @name, which there is. */
bool gpt_args_is_given(const struct gpt_args *args, const char *name)
{
	const struct gpt_option *option;
	uint32_t index = 0;

	option = gpt_option_find(name, strlen(name), &index);
	assert(option);
	(void)option;
	return args->is_given[index];
}

/* All options and the exit codes, in lines of at most 80 columns. */
void gpt_args_help(FILE *file)
{
	(void)fprintf(file,
	              "usage: zinf-gpt [options]\n"
	              "Trains a GPT on text, byte by byte. zinfd keeps its state. Defaults are in\n"
	              "parentheses.\n");
	gpt_option_help(file);
	(void)fprintf(
		file,
		"\nA training run continues when its output is closed (zinf-gpt | head) or full.\n"
		"A full output is an error at the end. --generate and --eval end at once.\n"
		"\nExit codes: 1 an error, 2 a wrong option, 75 the daemon or another rank left:\n"
		"the same command continues. 141: nobody reads the text. 128 + N: signal N.\n");
}

enum zinf_dtype gpt_param_dtype(const struct gpt_args *args)
{
	if (args->is_fp16)
		return ZINF_F16;
	return args->is_bf16 ? ZINF_BF16 : ZINF_F32;
}

enum zinf_dtype gpt_grad_dtype(const struct gpt_args *args)
{
	return args->has_f32_grads ? ZINF_F32 : gpt_param_dtype(args);
}

enum zinf_dtype gpt_reduce_dtype(const struct gpt_args *args)
{
	return args->reduce_dtype ? (enum zinf_dtype)args->reduce_dtype : gpt_grad_dtype(args);
}

const char *gpt_dtype_name(enum zinf_dtype dtype)
{
	if (dtype == ZINF_F16)
		return "fp16";
	return dtype == ZINF_BF16 ? "bf16" : "f32";
}

/* See args.h, as is the next. */
uint32_t gpt_group_count(const struct gpt_args *args)
{
	return args->has_decay_groups ? GPT_GROUPS_MAX : 1;
}

/* By its shape: matrices decay. */
uint32_t gpt_param_group(const struct gpt_args *args, const struct gpt_param *param)
{
	return args->has_decay_groups && param->dim_count == 1 ? 1 : 0;
}
