/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss scale. Gradients below 2^-24 are lost in fp16: they are moved up, by as much as leaves room
 * above, and who finds out how much that is is one of zinf's machines (zinf/scaler.h). Other types
 * need none; a number that is given for them serves to compare.
 */
#include "examples/gpt/args_scale.h"

#include <assert.h>
#include <errno.h>

#include "examples/gpt/args_option.h"
#include "zinf/zinf.h"

static const struct gpt_choice scalers[] = { { "deepspeed", ZINF_SCALER_DEEPSPEED },
	                                     { "torch", ZINF_SCALER_TORCH },
	                                     { "apex", ZINF_SCALER_APEX },
	                                     { NULL, 0 } };

static const struct gpt_option scale[] = {
	GPT_NUMBER("loss-scale", GPT_OPTION_F64, loss_scale, 0, 0x1p64,
	           "X       a fixed loss scale; 0: with --fp16 it adapts, else it is 1 (0)"),
	GPT_CHOICE("loss-scaler", scaler_kind, scalers,
	           "NAME    rules by which it adapts: deepspeed, torch or apex (deepspeed)"),
	GPT_NUMBER("loss-scale-init", GPT_OPTION_F64, scale_init, 0x1p-64, 0x1p64,
	           "X       first loss scale (65536)"),
	GPT_NUMBER("loss-scale-window", GPT_OPTION_U32, scale_window, 1, 2147483647,
	           "N       steps without overflow until it grows (1000; torch, apex: 2000)"),
	GPT_NUMBER("loss-scale-hysteresis", GPT_OPTION_U32, scale_hysteresis, 1, 2147483647,
	           "N       deepspeed: overflows until it falls (2)"),
	GPT_FLAG("loss-scale-consecutive", is_scale_consecutive,
	         "        deepspeed: a step without overflow resets the hysteresis"),
	GPT_NUMBER(
		"loss-scale-min", GPT_OPTION_F64, scale_min, 0, 0x1p64,
		"X       least loss scale; with deepspeed an overflow there ends the run (1; apex: "
		"none)"),
};
const struct gpt_option_table gpt_options_scale = GPT_OPTION_TABLE("Loss scale", scale);

/* The first flag that means nothing to a machine of @kind; NULL: none. */
static const char *idle_flag(const struct gpt_args *args, enum zinf_scaler_kind kind)
{
	const struct {
		const char *name;
		bool is_given, is_of_any;
	} flags[] = {
		{ "loss-scaler", args->scaler_kind != 0, true },
		{ "loss-scale-init", args->scale_init > 0, true },
		{ "loss-scale-window", args->scale_window != 0, true },
		{ "loss-scale-hysteresis", args->scale_hysteresis != 0,
		  kind == ZINF_SCALER_DEEPSPEED },
		{ "loss-scale-consecutive", args->is_scale_consecutive,
		  kind == ZINF_SCALER_DEEPSPEED },
		{ "loss-scale-min", args->scale_min >= 0, kind != ZINF_SCALER_TORCH },
	};
	bool is_moving = kind > ZINF_SCALER_STATIC;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (flags[i].is_given && !(is_moving && flags[i].is_of_any))
			return flags[i].name;
	return NULL;
}

static const char *name_of(enum zinf_scaler_kind kind)
{
	for (const struct gpt_choice *choice = scalers; choice->name; choice++)
		if (choice->value == (uint32_t)kind)
			return choice->name;
	return kind == ZINF_SCALER_STATIC ? "a fixed loss scale" : "no --fp16";
}

int gpt_scale_check(struct gpt_args *args, struct gpt_problem *problem)
{
	enum zinf_scaler_kind kind = ZINF_SCALER_NONE;
	struct zinf_scaler_options *scaler = &args->scaler;
	const char *flag;
	char text[256];

	if (args->is_fp16)
		kind = args->loss_scale > 0 ? ZINF_SCALER_STATIC
		       : args->scaler_kind  ? (enum zinf_scaler_kind)args->scaler_kind
		                            : ZINF_SCALER_DEEPSPEED;
	flag = idle_flag(args, kind);
	if (flag)
		return gpt_problem_set(problem, -EINVAL, "--%s has no effect with %s", flag,
		                       name_of(kind));
	if (zinf_scaler_defaults(kind, scaler))
		assert(false && "a kind of the list");
	if (kind == ZINF_SCALER_STATIC)
		scaler->init = args->loss_scale;
	else if (args->scale_init > 0)
		scaler->init = args->scale_init;
	if (args->scale_window)
		scaler->window = args->scale_window;
	if (args->scale_hysteresis)
		scaler->hysteresis = args->scale_hysteresis;
	if (args->scale_min >= 0)
		scaler->min = args->scale_min;
	scaler->is_consecutive = args->is_scale_consecutive;
	if (zinf_scaler_check(scaler, text, sizeof(text)))
		return gpt_problem_set(problem, -EINVAL, "%s", text);
	return 0;
}

double gpt_fixed_scale(const struct gpt_args *args)
{
	return args->loss_scale > 0 ? args->loss_scale : 1.0;
}
