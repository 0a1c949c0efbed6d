/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax of a row: of the causal attention, forward and backward, and of the loss. */
#pragma once

#include <stdint.h>

#include "examples/gpt/element/exp.h"
#include "examples/gpt/element/lanes.h"

/* Row t of each square becomes the softmax over its first t + 1 entries, and zeros. */
struct gpt_causal_softmax_args {
	uint64_t count; /* rows: (squares * tokens) */
	uint64_t tokens;
	float *scores; /* (squares, tokens, tokens), in place */
};

GPT_ELEMENT void gpt_causal_softmax_row(const struct gpt_causal_softmax_args *args, uint64_t index)
{
	uint64_t tokens = args->tokens, entries = index % tokens + 1;
	float *row = args->scores + index * tokens;
	float max = gpt_max(row, entries);
	float inverse;

	gpt_lanes_sync(); /* All lanes have read row[0]. */
	gpt_each_own(s, entries)
		row[s] = gpt_exp(row[s] - max);
	inverse = 1.0f / gpt_sum(row, entries);
	gpt_each_own(s, entries)
		row[s] *= inverse;
	gpt_each_own(s, tokens - entries)
		row[entries + s] = 0;
}

/* dscores: from the gradient of the weights @att to that of the scores. */
struct gpt_causal_softmax_backward_args {
	uint64_t count; /* rows */
	uint64_t tokens;
	const float *att; /* (squares, tokens, tokens) */
	float *dscores;   /* in place */
};

GPT_ELEMENT void
gpt_causal_softmax_backward_row(const struct gpt_causal_softmax_backward_args *args, uint64_t index)
{
	uint64_t tokens = args->tokens, entries = index % tokens + 1;
	const float *a = args->att + index * tokens;
	float *d = args->dscores + index * tokens;
	float mean = gpt_dot(a, d, entries);

	gpt_each_own(s, entries)
		d[s] = a[s] * (d[s] - mean);
	gpt_each_own(s, tokens - entries)
		d[entries + s] = 0;
}

/* A row of logits becomes probabilities. */
struct gpt_softmax {
	float max, sum; /* of the logits; of their exponentials, max taken away */
};

GPT_ELEMENT struct gpt_softmax gpt_softmax_row(float *x, uint64_t classes)
{
	struct gpt_softmax softmax;

	softmax.max = gpt_max(x, classes);
	gpt_lanes_sync(); /* All lanes have read x[0]. */
	gpt_each_own(i, classes)
		x[i] = gpt_exp(x[i] - softmax.max);
	softmax.sum = gpt_sum(x, classes);
	gpt_each_own(i, classes)
		x[i] /= softmax.sum;
	return softmax;
}

/* What the loss of a row is made of: the host takes the logarithm, as a GPU's has other bits. */
struct gpt_loss_mark {
	float max, sum, target;
};

struct gpt_loss_args {
	uint64_t count; /* N rows */
	uint64_t classes;
	const uint8_t *targets;      /* (N,) */
	float *logits;               /* (N, V), become probabilities */
	struct gpt_loss_mark *marks; /* (N,) */
};

GPT_ELEMENT void gpt_loss_row(const struct gpt_loss_args *args, uint64_t row)
{
	float *x = args->logits + row * args->classes;
	float target = x[args->targets[row]];
	struct gpt_softmax softmax;

	gpt_lanes_sync(); /* All lanes have read the target's. */
	softmax = gpt_softmax_row(x, args->classes);
	if (gpt_is_first_lane()) {
		args->marks[row].max = softmax.max;
		args->marks[row].sum = softmax.sum;
		args->marks[row].target = target;
	}
}

/* Probabilities become the gradient of scale * N * loss with respect to the logits. */
struct gpt_loss_grad_args {
	uint64_t count; /* N * V elements */
	uint64_t classes;
	const uint8_t *targets; /* (N,) */
	float *probabilities;   /* (N, V), in place */
	float scale;
	uint32_t reserved;
};

GPT_ELEMENT void gpt_loss_grad_item(const struct gpt_loss_grad_args *args, uint64_t i)
{
	float p = args->probabilities[i];

	if (i % args->classes == args->targets[i / args->classes])
		p -= 1.0f;
	args->probabilities[i] = p * args->scale;
}
