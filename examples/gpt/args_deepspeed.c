/* SPDX-License-Identifier: Apache-2.0 */
/* From what a file means to what the flags mean, setting by setting. */
#include "examples/gpt/args_deepspeed.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "examples/gpt/args_option.h"
#include "examples/gpt/args_schedule.h"
#include "zinf/deepspeed.h"
#include "zinf/zinf.h"

/* Flags and the keys that say the same. */
static const struct pair {
	const char *flag, *key;
} pairs[] = {
	{ "batch-size", "train_micro_batch_size_per_gpu" },
	{ "grad-accum", "gradient_accumulation_steps" },
	{ "optimizer", "optimizer.type" },
	{ "lr", "optimizer.params.lr" },
	{ "beta1", "optimizer.params.betas" },
	{ "beta2", "optimizer.params.betas" },
	{ "eps", "optimizer.params.eps" },
	{ "weight-decay", "optimizer.params.weight_decay" },
	{ "momentum", "optimizer.params.momentum" },
	{ "dampening", "optimizer.params.dampening" },
	{ "nesterov", "optimizer.params.nesterov" },
	{ "adagrad-decay", "optimizer.params.lr_decay" },
	{ "no-bias-correction", "optimizer.params.bias_correction" },
	{ "lr-schedule", "scheduler.type" },
	{ "clip", "gradient_clipping" },
	{ "skip-nonfinite", "bf16.check_grad_overflow" },
	{ "bf16", "bf16.enabled" },
	{ "fp16", "fp16.enabled" },
	{ "loss-scale", "fp16.loss_scale" },
	{ "loss-scale-init", "fp16.initial_scale_power" },
	{ "loss-scale-window", "fp16.loss_scale_window" },
	{ "loss-scale-hysteresis", "fp16.hysteresis" },
	{ "loss-scale-consecutive", "fp16.consecutive_hysteresis" },
	{ "loss-scale-min", "fp16.min_loss_scale" },
	{ "f32-grads", "data_types.grad_accum_dtype" },
	{ "reduce-dtype", "communication_data_type" },
	{ "strategy", "zero_optimization.stage" },
	{ "shard-size", "zero_optimization.mics_shard_size" },
	{ "offload-optimizer", "zero_optimization.offload_optimizer.device" },
	{ "offload-param", "zero_optimization.offload_param.device" },
	{ "param-budget", "zero_optimization.offload_param.max_in_cpu" },
	{ "activations", "activation_checkpointing" },
	{ "checkpoint-every", "activation_checkpointing.number_checkpoints" },
	{ "log-every", "steps_per_print" },
};

/* ---- what the file means ---- */

static void take_optimizer(const struct zinf_deepspeed_config *config, struct gpt_args *file)
{
	const struct zinf_step_options *step = &config->step;

	file->optimizer = config->optimizer;
	file->lr = step->lr;
	file->eps = step->eps;
	file->weight_decay = step->weight_decay;
	file->adagrad_decay = step->lr_decay;
	file->has_no_bias_correction = step->no_bias_correction;
	if (config->optimizer == ZINF_SGD) {
		file->momentum = step->beta1;
		file->dampening = step->beta2;
		file->is_nesterov = step->nesterov;
	} else {
		file->beta1 = step->beta1;
		file->beta2 = step->beta2;
	}
}

/* As there, what is kept is the input of blocks, all else is computed again. */
static void take_checkpoints(const struct zinf_deepspeed_config *config, struct gpt_args *file)
{
	uint32_t layers = file->model.layer_count, count = config->checkpoint_count;

	if (!config->is_checkpointing)
		return;
	file->activations =
		config->checkpoints_to_cpu ? GPT_ACTIVATIONS_CPU : GPT_ACTIVATIONS_RECOMPUTE;
	file->checkpoint_every = count && count < layers ? (layers + count - 1) / count : 1;
}

static void take_scaler(const struct zinf_deepspeed_config *config, struct gpt_args *file)
{
	const struct zinf_scaler_options *scaler = &config->scaler;

	file->loss_scale = scaler->kind == ZINF_SCALER_STATIC ? scaler->init : 0;
	if (scaler->kind != ZINF_SCALER_DEEPSPEED)
		return;
	file->scale_init = scaler->init;
	file->scale_window = scaler->window;
	file->scale_hysteresis = scaler->hysteresis;
	file->is_scale_consecutive = scaler->is_consecutive;
	file->scale_min = scaler->min;
}

static void take_all(const struct zinf_deepspeed_config *config, struct gpt_args *file)
{
	static const char *const strategies[] = { "ddp", "zero1", "zero2", "zero3" };

	assert(config->zero_stage < sizeof(strategies) / sizeof(strategies[0]));
	file->model.batch_count = config->micro_batch;
	file->grad_accum_count = config->accumulation_count;
	file->is_bf16 = config->param_dtype == ZINF_BF16;
	file->is_fp16 = config->param_dtype == ZINF_F16;
	file->has_f32_grads = config->param_dtype != ZINF_F32 && config->grad_dtype == ZINF_F32;
	file->reduce_dtype = config->reduce_dtype == config->grad_dtype ? 0 : config->reduce_dtype;
	take_scaler(config, file);
	file->strategy = strategies[config->zero_stage];
	file->shard_size = config->shard_ranks;
	file->offload_optimizer = config->offload_optimizer;
	file->offload_param = config->offload_param;
	file->param_budget_bytes = config->param_budget_bytes;
	file->clip = config->step.max_norm;
	file->is_summing = config->step.sum;
	file->is_skipping_nonfinite = config->step.skip_nonfinite;
	if (config->has_optimizer)
		take_optimizer(config, file);
	if (config->has_lr) {
		file->lr_kind = config->lr.kind;
		file->lr_options = config->lr;
	}
	take_checkpoints(config, file);
	if (config->print_interval)
		file->log_every = config->print_interval;
}

/* ---- flags go before it ---- */

struct shown {
	char chars[64];
};

/* The value of an option, as one would write it. */
static struct shown show(const struct gpt_option *option, const struct gpt_args *args)
{
	const void *field = (const char *)args + option->offset;
	struct shown shown = { "" };

	switch (option->kind) {
	case GPT_OPTION_FLAG:
		(void)snprintf(shown.chars, sizeof(shown.chars), "%s",
		               *(const bool *)field ? "true" : "false");
		break;
	case GPT_OPTION_U32:
		(void)snprintf(shown.chars, sizeof(shown.chars), "%u", *(const uint32_t *)field);
		break;
	case GPT_OPTION_U64:
	case GPT_OPTION_BYTES:
		(void)snprintf(shown.chars, sizeof(shown.chars), "%llu",
		               (unsigned long long)*(const uint64_t *)field);
		break;
	case GPT_OPTION_F64:
		(void)snprintf(shown.chars, sizeof(shown.chars), "%.9g", *(const double *)field);
		break;
	case GPT_OPTION_TEXT:
		(void)snprintf(shown.chars, sizeof(shown.chars), "%s", *(const char *const *)field);
		break;
	case GPT_OPTION_CHOICE:
		for (const struct gpt_choice *choice = option->choices; choice->name; choice++)
			if (choice->value == *(const uint32_t *)field)
				(void)snprintf(shown.chars, sizeof(shown.chars), "%s",
				               choice->name);
		break;
	}
	return shown;
}

static size_t width_of(const struct gpt_option *option)
{
	switch (option->kind) {
	case GPT_OPTION_FLAG:
		return sizeof(bool);
	case GPT_OPTION_U32:
	case GPT_OPTION_CHOICE:
		return sizeof(uint32_t);
	case GPT_OPTION_TEXT:
		return sizeof(const char *);
	case GPT_OPTION_U64:
	case GPT_OPTION_BYTES:
	case GPT_OPTION_F64:
		break;
	}
	return sizeof(uint64_t);
}

/* The value of @flag in @args goes into @file. */
static void override(const struct pair *pair, const struct gpt_args *args, FILE *notes,
                     struct gpt_args *file)
{
	const struct gpt_option *option;
	struct shown given, read;
	uint32_t index = 0;

	option = gpt_option_find(pair->flag, strlen(pair->flag), &index);
	assert(option);
	given = show(option, args);
	read = show(option, file);
	if (notes && strcmp(given.chars, read.chars) != 0)
		(void)fprintf(notes, "zinf-gpt: note: --%s %s overrides %s of %s, which is %s\n",
		              pair->flag, given.chars, pair->key, args->deepspeed, read.chars);
	memcpy((char *)file + option->offset, (const char *)args + option->offset,
	       width_of(option));
}

/* What the file says of its machine, it does not say of one that a flag puts in its place. */
static void drop_scaler(const struct gpt_args *args, struct gpt_args *file)
{
	file->scale_init = args->scale_init;
	file->scale_window = args->scale_window;
	file->scale_hysteresis = args->scale_hysteresis;
	file->is_scale_consecutive = args->is_scale_consecutive;
	file->scale_min = args->scale_min;
}

static int merge(const struct zinf_deepspeed_config *config, FILE *notes, struct gpt_args *args,
                 struct gpt_problem *problem)
{
	struct gpt_args file = *args;
	bool has_schedule = config->has_lr && !gpt_args_is_given(args, "lr-schedule");
	int r = 0;

	take_all(config, &file);
	/* Without a number of its own, --activations is to mean what it means alone. */
	if (gpt_args_is_given(args, "activations") && !gpt_args_is_given(args, "checkpoint-every"))
		file.checkpoint_every = 0;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (gpt_args_is_given(args, pairs[i].flag))
			override(&pairs[i], args, notes, &file);
	if (gpt_args_is_given(args, "loss-scale") || gpt_args_is_given(args, "loss-scaler"))
		drop_scaler(args, &file);
	if (has_schedule)
		r = gpt_schedule_weave(args, notes, &file, problem);
	else
		file.lr_options = (struct zinf_lr_options){ 0 };
	if (r)
		return r;
	if (!gpt_args_is_given(args, "min-lr"))
		file.min_lr = file.lr / 10;
	*args = file;
	return 0;
}

/* ---- the file ---- */

/* "auto" stands for what the flags say, or their defaults. */
static struct zinf_deepspeed_facts facts_of(const struct gpt_args *args)
{
	struct zinf_deepspeed_facts facts = ZINF_DEEPSPEED_FACTS_INIT;
	bool is_sgd = args->optimizer == ZINF_SGD;

	facts.world_size = args->world_count;
	facts.micro_batch = args->model.batch_count;
	facts.accumulation_count = args->grad_accum_count;
	facts.warmup_count = args->warmup_count;
	facts.total_count = args->lr_total_count ? args->lr_total_count : args->step_count;
	facts.lr = args->lr;
	facts.beta1 = is_sgd ? args->momentum : args->beta1;
	facts.beta2 = is_sgd ? args->dampening : args->beta2;
	facts.eps = args->eps;
	facts.weight_decay = args->weight_decay;
	facts.max_norm = args->clip;
	facts.dtype = gpt_param_dtype(args);
	facts.hidden_elements = args->model.channel_count;
	return facts;
}

static void tell_notes(const struct zinf_deepspeed *deepspeed, const char *path, FILE *notes)
{
	struct zinf_deepspeed_note note;

	for (uint32_t i = 0; notes && zinf_deepspeed_get_note(deepspeed, i, &note); i++)
		(void)fprintf(notes, "zinf-gpt: note: %s: %s %s: %s\n", path, note.key, note.value,
		              note.reason);
}

/* What this program, or its model, has no use for. */
static void tell_unused(const struct zinf_deepspeed_config *config, const char *path, FILE *notes)
{
	if (notes && config->shows_times)
		(void)fprintf(notes,
		              "zinf-gpt: note: %s: wall_clock_breakdown true: times of a step are "
		              "in what --json prints, always\n",
		              path);
	if (notes && !config->ignores_unused)
		(void)fprintf(notes,
		              "zinf-gpt: note: %s: zero_optimization.ignore_unused_parameters "
		              "false: every parameter of this model has a gradient\n",
		              path);
}

int gpt_deepspeed_apply(struct gpt_args *args, FILE *notes, struct gpt_problem *problem)
{
	struct zinf_deepspeed_config config = { .bytes = sizeof(config) };
	struct zinf_deepspeed *deepspeed = NULL;
	struct zinf_deepspeed_facts facts;
	char text[384] = "";
	int r;

	if (!args->deepspeed)
		return 0; /* gpt_args_parse() has checked. */
	facts = facts_of(args);
	r = zinf_deepspeed_open(args->deepspeed, &facts, text, sizeof(text), &deepspeed);
	if (r)
		return gpt_problem_set(problem, r, "--deepspeed-config %s", text); /* names it */
	zinf_deepspeed_get(deepspeed, &config);
	tell_notes(deepspeed, args->deepspeed, notes);
	tell_unused(&config, args->deepspeed, notes);
	r = merge(&config, notes, args, problem);
	zinf_deepspeed_free(deepspeed);
	return r ? r : gpt_args_check(args, problem);
}
