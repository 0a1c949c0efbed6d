/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation over the channels (arXiv:1607.06450), with GPT-2's epsilon. */
#include <math.h>
#include <string.h>

#include "examples/gpt/layers.h"
#include "examples/gpt/vector.h"

#define EPSILON 1e-5f

/* in, ret_out: (N, C). weight, bias: (C,). ret_stats: (N, 2), mean and 1 / deviation of each
 * row. */
GPT_CLONES void gpt_layernorm_forward(uint64_t rows, uint64_t channels, const float *in,
                                      const float *weight, const float *bias, float *ret_out,
                                      float *ret_stats)
{
	for (uint64_t row = 0; row < rows; row++) {
		const float *x = in + row * channels;
		float *y = ret_out + row * channels;
		float mean = gpt_sum(x, channels) / (float)channels;
		float scale;

		for (uint64_t i = 0; i < channels; i++)
			y[i] = x[i] - mean;
		scale = 1.0f / sqrtf(gpt_dot(y, y, channels) / (float)channels + EPSILON);
		for (uint64_t i = 0; i < channels; i++)
			y[i] = y[i] * scale * weight[i] + bias[i];
		ret_stats[2 * row] = mean;
		ret_stats[2 * row + 1] = scale;
	}
}

/* din: (N, C), the gradient is *added* (it joins the residual stream's). dweight, dbias: (C,).
 * With h = (in - mean) * scale and e = dout * weight: din += scale * (e - mean(e) - h mean(e
 * h)). */
GPT_CLONES void gpt_layernorm_backward(uint64_t rows, uint64_t channels, const float *in,
                                       const float *weight, const float *stats, const float *dout,
                                       bool keep, float *din, float *dweight, float *dbias)
{
	if (!keep) {
		memset(dweight, 0, channels * sizeof(*dweight));
		memset(dbias, 0, channels * sizeof(*dbias));
	}
	for (uint64_t row = 0; row < rows; row++) {
		const float *x = in + row * channels;
		const float *dy = dout + row * channels;
		float *dx = din + row * channels;
		float mean = stats[2 * row], scale = stats[2 * row + 1];
		float lanes_e[GPT_LANES] = { 0 }, lanes_eh[GPT_LANES] = { 0 };
		float mean_e, mean_eh;

		for (uint64_t i = 0; i < channels; i++) {
			dweight[i] += dy[i] * ((x[i] - mean) * scale);
			dbias[i] += dy[i];
		}
		for (uint64_t i = 0; i < channels; i += GPT_LANES) {
			uint64_t width = channels - i < GPT_LANES ? channels - i : GPT_LANES;

			for (uint64_t j = 0; j < width; j++) {
				float e = dy[i + j] * weight[i + j];

				lanes_e[j] += e;
				lanes_eh[j] += e * ((x[i + j] - mean) * scale);
			}
		}
		mean_e = gpt_join_lanes(lanes_e) / (float)channels;
		mean_eh = gpt_join_lanes(lanes_eh) / (float)channels;
		for (uint64_t i = 0; i < channels; i++) {
			float h = (x[i] - mean) * scale;

			dx[i] += scale * (dy[i] * weight[i] - mean_e - h * mean_eh);
		}
	}
}
