/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal self attention (arXiv:1706.03762, section 3.2), head by head. Q, K and V are columns of
 * one (N, 3C) array, so each head is a strided matrix that BLAS takes as it lies. The products run
 * over the whole T x T square; what lies above the diagonal is set to zero, which costs less than
 * products over triangles would save at these sizes.
 */
#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "examples/gpt/layers.h"
#include "examples/gpt/vector.h"

/* scores, in place: row t becomes the softmax over its first t + 1 entries, and zeros. */
GPT_CLONES static void causal_softmax(uint64_t tokens, float *scores)
{
	for (uint64_t t = 0; t < tokens; t++) {
		float *row = scores + t * tokens;
		float max = gpt_max(row, t + 1);
		float inverse;

		for (uint64_t s = 0; s <= t; s++)
			row[s] = gpt_exp(row[s] - max);
		inverse = 1.0f / gpt_sum(row, t + 1);
		for (uint64_t s = 0; s <= t; s++)
			row[s] *= inverse;
		memset(row + t + 1, 0, (tokens - t - 1) * sizeof(*row));
	}
}

/* dscores, in place: from the gradient of the weights @att to that of the scores. */
GPT_CLONES static void causal_softmax_backward(uint64_t tokens, const float *att, float *dscores)
{
	for (uint64_t t = 0; t < tokens; t++) {
		const float *a = att + t * tokens;
		float *d = dscores + t * tokens;
		float mean = gpt_dot(a, d, t + 1);

		for (uint64_t s = 0; s <= t; s++)
			d[s] = a[s] * (d[s] - mean);
		memset(d + t + 1, 0, (tokens - t - 1) * sizeof(*d));
	}
}

/* qkv: (B, T, 3, H, C/H). ret_att: (B, H, T, T), the weights, kept for backward. ret_out: (B, T,
 * C). */
void gpt_attention_forward(const struct gpt_attention_shape *shape, const float *qkv,
                           float *ret_att, float *ret_out)
{
	int t = (int)shape->sequence_count, c = (int)shape->channel_count;
	int width = (int)(shape->channel_count / shape->head_count);
	float scale = 1.0f / sqrtf((float)width);
	size_t square = (size_t)t * (size_t)t;

	assert(shape->channel_count % shape->head_count == 0);
	for (uint32_t b = 0; b < shape->batch_count; b++) {
		for (uint32_t h = 0; h < shape->head_count; h++) {
			const float *q = qkv + (size_t)b * t * 3 * c + (size_t)h * width;
			const float *k = q + c, *v = q + 2 * (size_t)c;
			float *att = ret_att + ((size_t)b * shape->head_count + h) * square;
			float *out = ret_out + (size_t)b * t * c + (size_t)h * width;

			cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, t, t, width, scale, q,
			            3 * c, k, 3 * c, 0.0f, att, t);
			causal_softmax(shape->sequence_count, att);
			cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, t, width, t, 1.0f,
			            att, t, v, 3 * c, 0.0f, out, c);
		}
	}
}

/* dout: (B, T, C). scratch: (T, T). ret_dqkv: (B, T, 3, H, C/H), written. */
void gpt_attention_backward(const struct gpt_attention_shape *shape, const float *qkv,
                            const float *att, const float *dout, float *scratch, float *ret_dqkv)
{
	int t = (int)shape->sequence_count, c = (int)shape->channel_count;
	int width = (int)(shape->channel_count / shape->head_count);
	float scale = 1.0f / sqrtf((float)width);
	size_t square = (size_t)t * (size_t)t;

	for (uint32_t b = 0; b < shape->batch_count; b++) {
		for (uint32_t h = 0; h < shape->head_count; h++) {
			size_t start = (size_t)b * t * 3 * c + (size_t)h * width;
			const float *q = qkv + start;
			const float *k = q + c, *v = q + 2 * (size_t)c;
			float *dq = ret_dqkv + start, *dk = dq + c, *dv = dq + 2 * (size_t)c;
			const float *a = att + ((size_t)b * shape->head_count + h) * square;
			const float *d = dout + (size_t)b * t * c + (size_t)h * width;

			cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, t, width, t, 1.0f, a,
			            t, d, c, 0.0f, dv, 3 * c);
			cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, t, t, width, 1.0f, d,
			            c, v, 3 * c, 0.0f, scratch, t);
			causal_softmax_backward(shape->sequence_count, a, scratch);
			cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, t, width, t, scale,
			            scratch, t, k, 3 * c, 0.0f, dq, 3 * c);
			cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, t, width, t, scale,
			            scratch, t, q, 3 * c, 0.0f, dk, 3 * c);
		}
	}
}
