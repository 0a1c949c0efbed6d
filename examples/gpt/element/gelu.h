/* SPDX-License-Identifier: Apache-2.0 */
/* GELU, the tanh approximation (arXiv:1606.08415, section 2). */
#pragma once

#include <stdint.h>

#include "examples/gpt/element/exp.h"

#define GPT_ROOT_2_PI  0.7978845608f /* sqrt(2 / pi) */
#define GPT_GELU_CUBIC 0.044715f

/* tanh of the inner term. By exp(), as tanh(u) = 1 - 2 / (exp(2u) + 1). */
GPT_ELEMENT float gpt_gelu_tanh(float x)
{
	float u = GPT_ROOT_2_PI * (x + GPT_GELU_CUBIC * x * x * x);

	return 1.0f - 2.0f / (gpt_exp(2.0f * u) + 1.0f);
}

GPT_ELEMENT float gpt_gelu(float x)
{
	return 0.5f * x * (1.0f + gpt_gelu_tanh(x));
}

/* The gradient of the input @x, from that of the output. */
GPT_ELEMENT float gpt_gelu_grad(float x, float dout)
{
	float t = gpt_gelu_tanh(x);
	float du = GPT_ROOT_2_PI * (1.0f + 3.0f * GPT_GELU_CUBIC * x * x);

	return dout * (0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * du);
}

/* All arrays: (count,). */
struct gpt_gelu_forward_args {
	uint64_t count;
	const float *in;
	float *out;
};

GPT_ELEMENT void gpt_gelu_forward_item(const struct gpt_gelu_forward_args *args, uint64_t i)
{
	args->out[i] = gpt_gelu(args->in[i]);
}

struct gpt_gelu_backward_args {
	uint64_t count;
	const float *in, *dout;
	float *din; /* may be dout */
};

GPT_ELEMENT void gpt_gelu_backward_item(const struct gpt_gelu_backward_args *args, uint64_t i)
{
	args->din[i] = gpt_gelu_grad(args->in[i], args->dout[i]);
}
