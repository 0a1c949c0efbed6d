/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedules of DeepSpeed (runtime/lr_schedules.py of 0.19). Floor 2, pure. There the schedule
 * sets a value when it is made, and another one behind each update, from the update's index i: so
 * after t updates it is the value of i = t - 1, and t = 0 has one of its own.
 */
#include <assert.h>
#include <math.h>

#include "libclient/lr_private.h"

/* The second moment's, which comes with every momentum of a cycle. */
#define ONE_CYCLE_BETA2 0.99

static double range_test(const struct zinf_lr_options *options, uint64_t t)
{
	double interval = (double)t / (double)options->step_count;

	if (options->is_staircase)
		interval = floor(interval);
	return options->min_lr * (1 + options->step_rate * interval);
}

/* The shape of one cycle. */
struct cycle {
	double first, second, total; /* lengths */
	double first_stairs, second_stairs;
};

static struct cycle cycle_of(const struct zinf_lr_options *options)
{
	struct cycle cycle = { .first = (double)options->first_count,
		               .first_stairs = (double)options->first_stairs };

	cycle.second = options->second_count ? (double)options->second_count : cycle.first;
	cycle.second_stairs =
		options->second_stairs < 0 ? cycle.first_stairs : (double)options->second_stairs;
	cycle.total = cycle.first + cycle.second;
	return cycle;
}

/* How high in the cycle update @t is, from 0 to 1 and back. A stair is told from the place in the
 * cycle, which is whole: the scale itself may be a last bit below a stair. */
static double scale_of(const struct cycle *cycle, uint64_t t)
{
	double ratio = cycle->first / cycle->total;
	double turns = 1 + (double)t / cycle->total;
	double x = turns - floor(turns);
	double stairs = x <= ratio ? cycle->first_stairs : cycle->second_stairs;
	double place = fmod((double)t, cycle->total);

	if (stairs == 0)
		return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
	if (place <= cycle->first)
		return floor(place * stairs / cycle->first) / stairs;
	return floor((cycle->total - place) * stairs / cycle->second) / stairs;
}

static void one_cycle(const struct zinf_lr_options *options, uint64_t t,
                      struct zinf_lr_value *value)
{
	struct cycle cycle = cycle_of(options);
	double decays, scale;

	value->has_betas = options->cycles_momentum;
	value->beta2 = ONE_CYCLE_BETA2;
	if (t == 0) {
		/* The momentum begins at its least and is at its greatest one update later: so it
		 * is there. */
		value->lr = options->min_lr;
		value->beta1 = options->min_momentum;
	} else if ((double)(t - 1) < cycle.total) {
		scale = scale_of(&cycle, t);
		value->lr = options->min_lr + (options->max_lr - options->min_lr) * scale;
		value->beta1 = options->max_momentum -
		               (options->max_momentum - options->min_momentum) * scale;
	} else {
		value->lr = options->min_lr;
		value->beta1 = options->max_momentum;
		if (options->decay_step_count == 0)
			return;
		decays = ((double)(t - 1) - cycle.total + 1) / options->decay_step_count;
		if (options->decay_lr_rate != 0)
			value->lr = options->min_lr / (1 + options->decay_lr_rate * decays);
		if (options->decay_momentum_rate != 0)
			value->beta1 =
				options->max_momentum * (1 + options->decay_momentum_rate * decays);
	}
}

/* A warm-up of less than two updates is one of two: the logarithm of its length is divided by. */
static uint64_t warmup_of(const struct zinf_lr_options *options)
{
	return options->warmup_count < 2 ? 2 : options->warmup_count;
}

/* From 0 to 1 over the warm-up. @i: below warmup_of(). */
static double warmup_rise(const struct zinf_lr_options *options, uint64_t i)
{
	double warmup = (double)warmup_of(options);

	if (options->warmup_shape == ZINF_LR_SHAPE_LINEAR)
		return (double)i / warmup;
	return 1.0 / log(warmup) * log((double)(i + 1));
}

/* WARMUP and WARMUP_DECAY. */
static double warmup(const struct zinf_lr_options *options, uint64_t t)
{
	double max_lr = options->max_lr, rise = 1;
	uint64_t i = t - 1;

	if (t == 0)
		return options->min_lr;
	if (i < warmup_of(options))
		rise = warmup_rise(options, i);
	else if (options->kind == ZINF_LR_WARMUP_DECAY)
		rise = zi_lr_max(0, zi_lr_difference(options->total_count, i) /
		                            zi_lr_max(1, zi_lr_difference(options->total_count,
		                                                          warmup_of(options))));
	if (options->kind == ZINF_LR_WARMUP && max_lr < 0)
		max_lr = options->lr;
	return options->min_lr + (max_lr - options->min_lr) * rise;
}

static double warmup_cosine_ratio(const struct zinf_lr_options *options, uint64_t t)
{
	uint64_t warmup = warmup_of(options), i = t - 1;
	double progress;

	if (t == 0)
		return 0;
	if (i < warmup)
		return options->warmup_ratio +
		       warmup_rise(options, i) * (1.0 - options->warmup_ratio);
	progress = (double)(i - warmup + 1) /
	           zi_lr_max(1, zi_lr_difference(options->total_count, warmup));
	if (progress > 1)
		progress = 1;
	return zi_lr_max(0, options->min_ratio +
	                            (1.0 - options->min_ratio) * ((1 + cos(M_PI * progress)) / 2));
}

void zi_lr_deepspeed_value(const struct zinf_lr_options *options, uint64_t t,
                           struct zinf_lr_value *ret_value)
{
	struct zinf_lr_value value = { 0 };

	switch (options->kind) {
	case ZINF_LR_RANGE_TEST:
		value.lr = range_test(options, t);
		break;
	case ZINF_LR_ONE_CYCLE:
		one_cycle(options, t, &value);
		break;
	case ZINF_LR_WARMUP:
	case ZINF_LR_WARMUP_DECAY:
		value.lr = warmup(options, t);
		break;
	default:
		assert(options->kind == ZINF_LR_WARMUP_COSINE);
		value.lr = options->lr * warmup_cosine_ratio(options, t);
	}
	*ret_value = value;
}
