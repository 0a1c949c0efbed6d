/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two families of schedules, for lr.c, which has checked what they are given. Floor 2, pure.
 * All in f64, in the order of operations of the originals: the values have the same bits.
 */
#pragma once

#include "zinf/lr.h"

#define ZI_LR_KIND_COUNT 16u /* behind the last kind */
/* Counts that an f64 holds exactly. */
#define ZI_LR_COUNT_MAX ((1ull << 53) - 1)

/* What the optimizer's lr is multiplied with at update @t, for the kinds of Hugging Face. */
double zi_lr_transformers_factor(const struct zinf_lr_options *options, uint64_t t);
/* The value at update @t, for the kinds of DeepSpeed. */
void zi_lr_deepspeed_value(const struct zinf_lr_options *options, uint64_t t,
                           struct zinf_lr_value *ret_value);

/* Python's max(): @a unless @b is greater, so that a NaN in @b gives @a. */
static inline double zi_lr_max(double a, double b)
{
	return b > a ? b : a;
}

/* a - b, negative where b is the greater; exact below 2^53. */
static inline double zi_lr_difference(uint64_t a, uint64_t b)
{
	return a >= b ? (double)(a - b) : -(double)(b - a);
}
