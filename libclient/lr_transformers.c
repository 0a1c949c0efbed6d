/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedules of Hugging Face's transformers (optimization.py of 5.23), as factors of the
 * optimizer's learning rate. Floor 2, pure. W: warm-up, N: total, c: cycles, m: lowest ratio. The
 * order of operations is theirs; ZINF_LR_CONSTANT has no warm-up.
 */
#include <assert.h>
#include <math.h>

#include "libclient/lr_private.h"

/* How far the way from W to N is gone, or 1 + that past N. */
static double progress_of(const struct zinf_lr_options *options, uint64_t t)
{
	return zi_lr_difference(t, options->warmup_count) /
	       zi_lr_max(1, zi_lr_difference(options->total_count, options->warmup_count));
}

/* @cycle_count waves over [0, 1], from 1. */
static double wave(double cycle_count, double progress)
{
	return 0.5 * (1.0 + cos(M_PI * cycle_count * 2.0 * progress));
}

/* From [0, 1] to [m, 1]. */
static double lift(const struct zinf_lr_options *options, double factor)
{
	return zi_lr_max(0, factor * (1.0 - options->min_ratio) + options->min_ratio);
}

static double restarts(const struct zinf_lr_options *options, double progress)
{
	if (progress >= 1.0)
		return 0;
	return zi_lr_max(0, 0.5 * (1.0 + cos(M_PI * fmod(options->cycle_count * progress, 1.0))));
}

static double polynomial(const struct zinf_lr_options *options, uint64_t t)
{
	double range = options->lr - options->lr_end;
	double left;

	if (t > options->total_count)
		return options->lr_end / options->lr;
	left = 1 - (double)(t - options->warmup_count) /
	                   (double)(options->total_count - options->warmup_count);
	return (range * pow(left, options->power) + options->lr_end) / options->lr;
}

/* From a warm-up's end on, 1 / sqrt of the way in units of the timescale. */
static double inverse_sqrt(const struct zinf_lr_options *options, uint64_t t)
{
	uint64_t timescale = options->timescale;

	if (timescale == 0)
		timescale = options->warmup_count ? options->warmup_count : 10000;
	return 1.0 / sqrt((double)(t - options->warmup_count + timescale) / (double)timescale);
}

/* It counts from 1, in the warm-up and behind it, and is not held at its end: past N the wave goes
 * on. */
static double cosine_warmup_min(const struct zinf_lr_options *options, uint64_t t)
{
	double warmup = (double)options->warmup_count, ratio = options->warmup_ratio;
	double progress;

	if (t < options->warmup_count) {
		if (ratio < 0)
			return ((double)t + 1.0) / zi_lr_max(1.0, warmup);
		return ratio + (1.0 - ratio) * (double)t / zi_lr_max(1, warmup - 1);
	}
	progress =
		((double)t - warmup + 1.0) / zi_lr_max(1.0, (double)options->total_count - warmup);
	return lift(options, wave(options->cycle_count, progress));
}

static double warmup_stable_decay(const struct zinf_lr_options *options, uint64_t t)
{
	double progress;

	if (t < options->warmup_count) {
		progress = (double)t / (double)options->warmup_count;
		if (options->warmup_shape == ZINF_LR_SHAPE_COSINE)
			progress = 0.5 * (1.0 - cos(M_PI * progress));
		else if (options->warmup_shape == ZINF_LR_SHAPE_SQRT)
			progress = 1.0 - sqrt(1.0 - progress);
		return lift(options, progress);
	}
	t -= options->warmup_count;
	if (t < options->stable_count)
		return 1.0;
	t -= options->stable_count;
	if (t >= options->decay_count)
		return options->min_ratio;
	progress = (double)t / (double)options->decay_count;
	if (options->decay_shape == ZINF_LR_SHAPE_COSINE)
		return lift(options, wave(options->cycle_count, progress));
	if (options->decay_shape == ZINF_LR_SHAPE_SQRT)
		return lift(options, 1.0 - sqrt(progress));
	return lift(options, 1.0 - progress);
}

double zi_lr_transformers_factor(const struct zinf_lr_options *options, uint64_t t)
{
	if (options->kind == ZINF_LR_CONSTANT)
		return 1.0;
	if (options->kind == ZINF_LR_COSINE_WARMUP_MIN)
		return cosine_warmup_min(options, t);
	if (options->kind == ZINF_LR_WARMUP_STABLE_DECAY)
		return warmup_stable_decay(options, t);
	if (t < options->warmup_count)
		return (double)t / (double)options->warmup_count;
	switch (options->kind) {
	case ZINF_LR_CONSTANT_WARMUP:
		return 1.0;
	case ZINF_LR_LINEAR:
		return zi_lr_max(0, zi_lr_difference(options->total_count, t) /
		                            zi_lr_max(1, zi_lr_difference(options->total_count,
		                                                          options->warmup_count)));
	case ZINF_LR_COSINE:
		return zi_lr_max(0, wave(options->cycle_count, progress_of(options, t)));
	case ZINF_LR_COSINE_RESTARTS:
		return restarts(options, progress_of(options, t));
	case ZINF_LR_POLYNOMIAL:
		return polynomial(options, t);
	case ZINF_LR_INVERSE_SQRT:
		return inverse_sqrt(options, t);
	default:
		assert(options->kind == ZINF_LR_COSINE_MIN);
		return lift(options, wave(options->cycle_count, progress_of(options, t)));
	}
}
