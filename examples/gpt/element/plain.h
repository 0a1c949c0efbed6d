/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels over plain arrays: sums, copies of a bias, changes of type. Each item is an element. */
#pragma once

#include <stdint.h>

#include "examples/gpt/bf16.h"
#include "examples/gpt/element/element.h"

/* out = x + y. (count,). */
struct gpt_add_args {
	uint64_t count;
	const float *x, *y;
	float *out; /* may be x or y */
};

GPT_ELEMENT void gpt_add_item(const struct gpt_add_args *args, uint64_t i)
{
	args->out[i] = args->x[i] + args->y[i];
}

/* Each row of out becomes the bias. out: (count / columns, columns). */
struct gpt_fill_rows_args {
	uint64_t count;
	uint64_t columns;
	const float *bias;
	float *out;
};

GPT_ELEMENT void gpt_fill_rows_item(const struct gpt_fill_rows_args *args, uint64_t i)
{
	args->out[i] = args->bias[i % args->columns];
}

/* bf16 → f32. (count,). */
struct gpt_widen_args {
	uint64_t count;
	const uint16_t *source;
	float *target;
};

GPT_ELEMENT void gpt_widen_item(const struct gpt_widen_args *args, uint64_t i)
{
	args->target[i] = gpt_bf16_widen(args->source[i]);
}

/* f32 → bf16, instead of what is there or added to it. (count,). */
struct gpt_narrow_args {
	uint64_t count;
	const float *source;
	uint16_t *target;
	uint32_t is_adding;
	uint32_t reserved;
};

GPT_ELEMENT void gpt_narrow_item(const struct gpt_narrow_args *args, uint64_t i)
{
	float x = args->source[i];

	args->target[i] = gpt_bf16_round(args->is_adding ? gpt_bf16_widen(args->target[i]) + x : x);
}
