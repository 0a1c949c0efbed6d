/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation over the channels (arXiv:1607.06450), with GPT-2's epsilon: a row forward, a
 * row backward, and the terms of a column's sums. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "examples/gpt/element/columns.h"
#include "examples/gpt/element/lanes.h"

#define GPT_NORM_EPSILON 1e-5f

struct gpt_norm_forward_args {
	uint64_t count; /* N rows */
	uint64_t channels;
	const float *in, *weight, *bias; /* (N, C), (C,), (C,) */
	float *stats;                    /* (N, 2): mean and 1 / deviation, written */
	float *out;                      /* (N, C) */
};

GPT_ELEMENT void gpt_norm_forward_row(const struct gpt_norm_forward_args *args, uint64_t row)
{
	uint64_t channels = args->channels;
	const float *x = args->in + row * channels;
	const float *weight = args->weight, *bias = args->bias;
	float *y = args->out + row * channels;
	float mean = gpt_sum(x, channels) / (float)channels;
	float scale;

	gpt_each_own(i, channels)
		y[i] = x[i] - mean;
	scale = 1.0f / sqrtf(gpt_dot(y, y, channels) / (float)channels + GPT_NORM_EPSILON);
	gpt_each_own(i, channels)
		y[i] = y[i] * scale * weight[i] + bias[i];
	if (gpt_is_first_lane()) {
		args->stats[2 * row] = mean;
		args->stats[2 * row + 1] = scale;
	}
}

struct gpt_norm_backward_args {
	uint64_t count; /* N rows */
	uint64_t channels;
	const float *in, *weight, *stats, *dout; /* (N, C), (C,), (N, 2), (N, C) */
	float *din;                              /* (N, C), added to */
};

/* With h = (in - mean) * scale and e = dout * weight:
 * din += scale * (e - mean(e) - h mean(e h)). */
GPT_ELEMENT void gpt_norm_backward_row(const struct gpt_norm_backward_args *args, uint64_t row)
{
	uint64_t channels = args->channels, i = 0;
	const float *x = args->in + row * channels, *weight = args->weight;
	const float *dy = args->dout + row * channels;
	float *dx = args->din + row * channels;
	float mean = args->stats[2 * row], scale = args->stats[2 * row + 1];
	float lanes_e[GPT_LANE_SLOTS] = { 0 }, lanes_eh[GPT_LANE_SLOTS] = { 0 };
	float mean_e, mean_eh;

	for (; i + GPT_LANES <= channels; i += GPT_LANES)
		gpt_each_lane(lane, slot) {
			float e = dy[i + lane] * weight[i + lane];

			lanes_e[slot] += e;
			lanes_eh[slot] += e * ((x[i + lane] - mean) * scale);
		}
	gpt_each_lane(lane, slot)
		if (i + lane < channels) {
			float e = dy[i + lane] * weight[i + lane];

			lanes_e[slot] += e;
			lanes_eh[slot] += e * ((x[i + lane] - mean) * scale);
		}
	mean_e = gpt_join_lanes(lanes_e) / (float)channels;
	mean_eh = gpt_join_lanes(lanes_eh) / (float)channels;
	gpt_each_own(own, channels) {
		float h = (x[own] - mean) * scale;

		dx[own] += scale * (dy[own] * weight[own] - mean_e - h * mean_eh);
	}
}

/* Gradients of weight (first) and bias (second): sums over the rows, in their order. */
struct gpt_norm_columns_args {
	uint64_t count; /* C columns */
	uint64_t rows;
	const float *in, *stats, *dout; /* (N, C), (N, 2), (N, C) */
	float *dweight, *dbias;         /* (C,) */
	uint32_t is_adding;             /* to what is there */
	uint32_t reserved;
};

GPT_ELEMENT float gpt_norm_weight_term(float x, float dy, float mean, float scale)
{
	return dy * ((x - mean) * scale);
}

GPT_ELEMENT struct gpt_column gpt_norm_columns_begin(const struct gpt_norm_columns_args *args,
                                                     uint64_t column)
{
	struct gpt_column sums = { 0, 0 };

	if (args->is_adding) {
		sums.first = args->dweight[column];
		sums.second = args->dbias[column];
	}
	return sums;
}

GPT_ELEMENT struct gpt_column gpt_norm_columns_term(const struct gpt_norm_columns_args *args,
                                                    uint64_t row, uint64_t column)
{
	uint64_t i = row * args->count + column;
	struct gpt_column term;

	term.first = gpt_norm_weight_term(args->in[i], args->dout[i], args->stats[2 * row],
	                                  args->stats[2 * row + 1]);
	term.second = args->dout[i];
	return term;
}

GPT_ELEMENT void gpt_norm_columns_end(const struct gpt_norm_columns_args *args, uint64_t column,
                                      struct gpt_column sums)
{
	args->dweight[column] = sums.first;
	args->dbias[column] = sums.second;
}
