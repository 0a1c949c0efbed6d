/* SPDX-License-Identifier: Apache-2.0 */
/* From flags to a schedule of libzinf's, or to gpt's own one. */
#include "examples/gpt/args_lr.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "examples/gpt/args_option.h"
#include "zinf/zinf.h"

/* zinf_lr_name()'s, and gpt's own. */
static const struct gpt_choice lr_schedules[] = {
	{ "gpt", 0 },
	{ "constant", ZINF_LR_CONSTANT },
	{ "constant_with_warmup", ZINF_LR_CONSTANT_WARMUP },
	{ "linear", ZINF_LR_LINEAR },
	{ "cosine", ZINF_LR_COSINE },
	{ "cosine_with_restarts", ZINF_LR_COSINE_RESTARTS },
	{ "polynomial", ZINF_LR_POLYNOMIAL },
	{ "inverse_sqrt", ZINF_LR_INVERSE_SQRT },
	{ "cosine_with_min_lr", ZINF_LR_COSINE_MIN },
	{ "cosine_warmup_with_min_lr", ZINF_LR_COSINE_WARMUP_MIN },
	{ "warmup_stable_decay", ZINF_LR_WARMUP_STABLE_DECAY },
	{ "LRRangeTest", ZINF_LR_RANGE_TEST },
	{ "OneCycle", ZINF_LR_ONE_CYCLE },
	{ "WarmupLR", ZINF_LR_WARMUP },
	{ "WarmupDecayLR", ZINF_LR_WARMUP_DECAY },
	{ "WarmupCosineLR", ZINF_LR_WARMUP_COSINE },
	{ NULL, 0 }
};
static const struct gpt_choice lr_shapes[] = { { "linear", ZINF_LR_SHAPE_LINEAR },
	                                       { "cosine", ZINF_LR_SHAPE_COSINE },
	                                       { "1-sqrt", ZINF_LR_SHAPE_SQRT },
	                                       { "log", ZINF_LR_SHAPE_LOG },
	                                       { NULL, 0 } };

static const struct gpt_option lr[] = {
	GPT_NUMBER("lr", GPT_OPTION_F64, lr, 0, 1e6,
	           "X       learning rate after the warm-up; for lion take a tenth (2e-3)"),
	GPT_NUMBER("warmup", GPT_OPTION_U64, warmup_count, 0, 1e15,
	           "N       updates of linear warm-up (20)"),
	GPT_NUMBER("min-lr", GPT_OPTION_F64, min_lr, 0, 1e6,
	           "X       end of the cosine; equal to --lr: no decay (a tenth of --lr)"),
	GPT_CHOICE("lr-schedule", lr_kind, lr_schedules,
	           "NAME    a name of transformers or DeepSpeed, or gpt: warm-up, then a cosine to "
	           "--min-lr (gpt)"),
	GPT_NUMBER("lr-total", GPT_OPTION_U64, lr_total_count, 1, 1e15,
	           "N       updates to the schedule's end (--steps)"),
	GPT_NUMBER("lr-cycles", GPT_OPTION_F64, lr_cycles, 0, 1e6,
	           "X       waves of a cosine, or restarts (0.5 or 1)"),
	GPT_NUMBER("lr-end", GPT_OPTION_F64, lr_end, 0, 1e6,
	           "X       last learning rate of polynomial (1e-7)"),
	GPT_NUMBER("lr-power", GPT_OPTION_F64, lr_power, 0, 1e6, "X       power of polynomial (1)"),
	GPT_NUMBER("lr-min-ratio", GPT_OPTION_F64, lr_min_ratio, 0, 1,
	           "X       last learning rate as a part of --lr (0; WarmupCosineLR: 1e-4)"),
	GPT_NUMBER("lr-stable", GPT_OPTION_U64, lr_stable_count, 0, 1e15,
	           "N       warmup_stable_decay: updates at --lr (what --lr-total leaves)"),
	GPT_NUMBER("lr-decay", GPT_OPTION_U64, lr_decay_count, 0, 1e15,
	           "N       warmup_stable_decay: updates of the decay (0)"),
	GPT_CHOICE("lr-warmup-shape", lr_warmup_shape, lr_shapes,
	           "NAME    shape of the warm-up: linear, cosine, 1-sqrt, log (linear; "
	           "Warmup...LR: log)"),
	GPT_CHOICE("lr-decay-shape", lr_decay_shape, lr_shapes,
	           "NAME    shape of the decay of warmup_stable_decay: linear, cosine, 1-sqrt "
	           "(cosine)"),
};
const struct gpt_option_table gpt_options_lr = GPT_OPTION_TABLE("Learning rate", lr);

/* Sets of kinds; gpt's own is the first bit. */
#define OF(kind)   (1u << ZINF_LR_##kind)
#define OF_GPT     1u
#define OF_COSINES (OF(COSINE) | OF(COSINE_RESTARTS) | OF(COSINE_MIN) | OF(COSINE_WARMUP_MIN))
#define OF_STABLE  OF(WARMUP_STABLE_DECAY)
#define OF_WARMUPS (OF(WARMUP) | OF(WARMUP_DECAY) | OF(WARMUP_COSINE))
#define OF_TOTAL                                                                           \
	(OF_COSINES | OF(LINEAR) | OF(POLYNOMIAL) | OF(WARMUP_DECAY) | OF(WARMUP_COSINE) | \
	 OF(ONE_CYCLE) | OF_STABLE)

static struct zinf_lr_options schedule_of(const struct gpt_args *args)
{
	uint64_t total = args->lr_total_count ? args->lr_total_count : args->step_count;
	uint64_t used = args->warmup_count + args->lr_decay_count;
	struct zinf_lr_options options = args->lr_options;
	int r;

	if (options.kind)
		return options;
	r = zinf_lr_defaults((enum zinf_lr_kind)args->lr_kind, &options);

	assert(r == 0); /* The command line has no other names. */
	(void)r;
	options.lr = args->lr;
	options.warmup_count = args->warmup_count;
	options.total_count = total;
	if (args->lr_cycles != GPT_LR_UNSET)
		options.cycle_count = args->lr_cycles;
	if (args->lr_end != GPT_LR_UNSET)
		options.lr_end = args->lr_end;
	if (args->lr_power != GPT_LR_UNSET)
		options.power = args->lr_power;
	if (args->lr_min_ratio != GPT_LR_UNSET)
		options.min_ratio = args->lr_min_ratio;
	options.decay_count = args->lr_decay_count;
	options.stable_count = args->lr_stable_count;
	if (args->lr_stable_count == GPT_LR_UNSET_COUNT)
		options.stable_count = total > used ? total - used : 0;
	if (args->lr_warmup_shape)
		options.warmup_shape = (enum zinf_lr_shape)args->lr_warmup_shape;
	if (args->lr_decay_shape)
		options.decay_shape = (enum zinf_lr_shape)args->lr_decay_shape;
	if (args->lr_kind == ZINF_LR_WARMUP_DECAY)
		options.max_lr = args->lr;
	if (args->lr_kind == ZINF_LR_RANGE_TEST) {
		options.min_lr = args->lr;
		options.step_count = args->warmup_count;
	}
	if (args->lr_kind == ZINF_LR_ONE_CYCLE) {
		options.min_lr = args->min_lr;
		options.max_lr = args->lr;
		options.first_count = args->warmup_count;
		options.second_count = total > args->warmup_count ? total - args->warmup_count : 0;
		/* As the original does with an optimizer that has no betas. */
		options.cycles_momentum =
			args->optimizer != ZINF_SGD && args->optimizer != ZINF_ADAGRAD;
	}
	return options;
}

int gpt_lr_check(const struct gpt_args *args, struct gpt_problem *problem)
{
	const struct {
		const char *name;
		bool is_given;
		uint32_t kinds; /* that look at it */
	} flags[] = {
		{ "min-lr", gpt_args_is_given(args, "min-lr"), OF_GPT | OF(ONE_CYCLE) },
		{ "lr-total", args->lr_total_count != 0, OF_GPT | OF_TOTAL },
		{ "lr-cycles", args->lr_cycles != GPT_LR_UNSET, OF_COSINES | OF_STABLE },
		{ "lr-end", args->lr_end != GPT_LR_UNSET, OF(POLYNOMIAL) },
		{ "lr-power", args->lr_power != GPT_LR_UNSET, OF(POLYNOMIAL) },
		{ "lr-min-ratio", args->lr_min_ratio != GPT_LR_UNSET,
		  OF(COSINE_MIN) | OF(COSINE_WARMUP_MIN) | OF_STABLE | OF(WARMUP_COSINE) },
		{ "lr-stable", args->lr_stable_count != GPT_LR_UNSET_COUNT, OF_STABLE },
		{ "lr-decay", args->lr_decay_count != 0, OF_STABLE },
		{ "lr-warmup-shape", args->lr_warmup_shape != 0, OF_STABLE | OF_WARMUPS },
		{ "lr-decay-shape", args->lr_decay_shape != 0, OF_STABLE },
	};
	const char *name = zinf_lr_name((enum zinf_lr_kind)args->lr_kind);
	struct zinf_lr_options options;
	char text[256] = "";

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (flags[i].is_given && !(flags[i].kinds >> args->lr_kind & 1))
			return gpt_problem_set(problem, -EINVAL,
			                       "--%s has no effect with --lr-schedule %s",
			                       flags[i].name, name ? name : "gpt");
	/* A run of no steps has no schedule, and asks for no value of one. */
	if (args->lr_kind == 0 || args->step_count == 0)
		return 0;
	options = schedule_of(args);
	if (zinf_lr_check(&options, text, sizeof(text)))
		return gpt_problem_set(problem, -EINVAL,
		                       "--lr-schedule %s (lr is --lr, warmup_count --warmup, "
		                       "total_count --lr-total)",
		                       text);
	return 0;
}

uint64_t gpt_lr_total(const struct gpt_args *args)
{
	bool has_total = args->lr_kind == 0 || OF_TOTAL >> args->lr_kind & 1;

	if (!has_total || args->lr_options.kind || (args->lr_kind == 0 && args->lr <= args->min_lr))
		return 0;
	return args->lr_total_count ? args->lr_total_count : args->step_count;
}

/* Linear warm-up, then half a cosine down to --min-lr. @update: from 1. It depends on the count of
 * updates alone, so a resumed run goes on as if it had never stopped. */
static double own_lr(const struct gpt_args *args, uint64_t update)
{
	uint64_t total = gpt_lr_total(args);
	double progress;

	assert(update >= 1);
	if (update <= args->warmup_count)
		return args->lr * (double)update / (double)args->warmup_count;
	if (update >= total)
		return args->min_lr;
	progress = (double)(update - args->warmup_count) / (double)(total - args->warmup_count);
	return args->min_lr + 0.5 * (args->lr - args->min_lr) * (1.0 + cos(M_PI * progress));
}

void gpt_lr(const struct gpt_args *args, uint64_t step, uint64_t update_count,
            struct zinf_lr_value *ret_value)
{
	struct zinf_lr_options options;
	int r;

	assert(update_count < step);
	if (args->lr_kind == 0) {
		*ret_value = (struct zinf_lr_value){ .lr = own_lr(args, update_count + 1) };
		return;
	}
	options = schedule_of(args);
	r = zinf_lr_at(&options, update_count, ret_value);
	assert(r == 0); /* gpt_lr_check() */
	(void)r;
}
