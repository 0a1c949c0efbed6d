/* SPDX-License-Identifier: Apache-2.0 */
/* Finite differences for the tests of the example: fillers and one comparison. */
#pragma once

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

#include "examples/gpt/rng.h"

/* values: (count,), normal with the given deviation, the same for the same stream. */
static inline void fill_normal(float *values, uint64_t count, uint64_t stream, double deviation)
{
	struct gpt_rng rng = gpt_rng_init(stream, GPT_RNG_VALUES, 77, 0, 0);

	for (uint64_t i = 0; i < count; i++)
		values[i] = (float)(deviation * gpt_rng_normal(&rng));
}

static inline double dot_f64(const float *x, const float *y, uint64_t count)
{
	double sum = 0;

	for (uint64_t i = 0; i < count; i++)
		sum += (double)x[i] * (double)y[i];
	return sum;
}

/* The value of a layer's outputs as one number. */
typedef double (*value_fn)(void *arg);

/*
 * Checks the gradient @grad of value(arg) with respect to @x, element by element, by central
 * differences. x, grad: (count,). Tolerance: f32 rounding of the value over the step, and the third
 * derivative; 2 % of the gradient's own size is far from any wrong sign, factor or index.
 */
static inline void expect_gradient(value_fn value, void *arg, float *x, const float *grad,
                                   uint64_t count, const char *what)
{
	const float step = 1e-2f;
	double largest = 0;

	for (uint64_t i = 0; i < count; i++)
		largest = fmax(largest, fabs((double)grad[i]));
	cr_assert_gt(largest, 1e-3, "%s: a gradient of nothing proves nothing", what);
	for (uint64_t i = 0; i < count; i++) {
		float saved = x[i];
		double above, below, numeric;

		x[i] = saved + step;
		above = value(arg);
		x[i] = saved - step;
		below = value(arg);
		x[i] = saved;
		numeric = (above - below) / (2.0 * (double)step);
		cr_assert_float_eq((double)grad[i], numeric, 0.02 * largest + 2e-4,
		                   "%s[%llu]: gradient %g, difference %g", what,
		                   (unsigned long long)i, (double)grad[i], numeric);
	}
}
