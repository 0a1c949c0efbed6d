/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal self attention (arXiv:1706.03762, section 3.2) on the CPU. The team computes one head of
 * one sequence as one part. Q, K and V are columns of one (N, 3C) array, so each head is a strided
 * matrix. Products leave out what lies beyond the diagonal, in steps of some rows (product.c).
 */
#include <assert.h>
#include <math.h>

#include "examples/gpt/element/softmax.h"
#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/product.h"
#include "examples/gpt/vector.h"

struct job {
	const struct gpt_attention_shape *shape;
	const float *qkv, *att, *dout; /* backward: all that it reads */
	float *new_att, *out, *dqkv;
};

/* Of a part: where its head lies in the arrays. */
struct head {
	uint64_t tokens, channels, width;
	bool is_bf16;
	float scale;
	uint64_t qkv_index, att_index, out_index;
};

/* scores: (tokens, tokens) of one head, in place. */
GPT_CLONES static void causal_softmax(uint64_t tokens, float *scores)
{
	const struct gpt_causal_softmax_args args = { tokens, tokens, scores };

	for (uint64_t t = 0; t < tokens; t++)
		gpt_causal_softmax_row(&args, t);
}

/* att, dscores: (tokens, tokens) of one head. */
GPT_CLONES static void causal_softmax_backward(uint64_t tokens, const float *att, float *dscores)
{
	const struct gpt_causal_softmax_backward_args args = { tokens, tokens, att, dscores };

	for (uint64_t t = 0; t < tokens; t++)
		gpt_causal_softmax_backward_row(&args, t);
}

static struct head head_of(const struct gpt_attention_shape *shape, uint64_t part)
{
	uint64_t t = shape->sequence_count, c = shape->channel_count;
	uint64_t sequence = part / shape->head_count, index = part % shape->head_count;
	uint64_t width = c / shape->head_count;

	assert(c % shape->head_count == 0);
	return (struct head){
		.tokens = t,
		.channels = c,
		.width = width,
		.is_bf16 = shape->is_bf16,
		.scale = 1.0f / sqrtf((float)width),
		.qkv_index = sequence * t * 3 * c + index * width,
		.att_index = part * t * t,
		.out_index = sequence * t * c + index * width,
	};
}

/* A matrix as the left factor or, with its strides exchanged, transposed. */
static struct gpt_factor by_rows(const float *data, uint64_t row_stride)
{
	return (struct gpt_factor){ data, ZINF_F32, row_stride, 1 };
}

static struct gpt_factor by_columns(const float *data, uint64_t row_stride)
{
	return (struct gpt_factor){ data, ZINF_F32, 1, row_stride };
}

/* (T, T) = left (T, width) · rightᵀ, up to the diagonal. */
static void to_square(const struct head *head, struct gpt_factor left, struct gpt_factor right,
                      float scale, float *square, void *scratch)
{
	const struct gpt_product product = {
		.row_count = head->tokens,
		.column_count = head->tokens,
		.depth = head->width,
		.left = left,
		.right = right,
		.target = { .data = square,
		            .dtype = ZINF_F32,
		            .row_stride = head->tokens,
		            .scale = scale },
		.is_bf16 = head->is_bf16,
	};

	gpt_product_square(&product, GPT_TARGET_LOWER, scratch);
}

/* (T, width) = square · right, or squareᵀ · right. */
static void from_square(const struct head *head, const float *square, bool is_transposed,
                        struct gpt_factor right, float scale, float *out, uint64_t out_stride,
                        void *scratch)
{
	const struct gpt_product product = {
		.row_count = head->tokens,
		.column_count = head->width,
		.depth = head->tokens,
		.left = is_transposed ? by_columns(square, head->tokens)
		                      : by_rows(square, head->tokens),
		.right = right,
		.target = { .data = out,
		            .dtype = ZINF_F32,
		            .row_stride = out_stride,
		            .scale = scale },
		.is_bf16 = head->is_bf16,
	};

	gpt_product_square(&product, is_transposed ? GPT_LEFT_UPPER : GPT_LEFT_LOWER, scratch);
}

static void forward_part(void *arg, uint64_t part, void *scratch)
{
	const struct job *job = arg;
	const struct head head = head_of(job->shape, part);
	uint64_t c = head.channels;
	const float *q = job->qkv + head.qkv_index, *k = q + c, *v = k + c;
	float *att = job->new_att + head.att_index;

	to_square(&head, by_rows(q, 3 * c), by_rows(k, 3 * c), head.scale, att, scratch);
	causal_softmax(head.tokens, att);
	from_square(&head, att, false, by_columns(v, 3 * c), 1, job->out + head.out_index, c,
	            scratch);
}

/* qkv: (B, T, 3, H, C/H). ret_att: (B, H, T, T), the weights, kept for backward. ret_out: (B, T,
 * C). */
void gpt_attention_forward(struct gpt_team *team, const struct gpt_attention_shape *shape,
                           const float *qkv, float *ret_att, float *ret_out)
{
	struct job job = { .shape = shape, .qkv = qkv, .new_att = ret_att, .out = ret_out };

	gpt_team_run(team, (uint64_t)shape->batch_count * shape->head_count, forward_part, &job);
}

static void backward_part(void *arg, uint64_t part, void *scratch)
{
	const struct job *job = arg;
	const struct head head = head_of(job->shape, part);
	uint64_t c = head.channels;
	const float *q = job->qkv + head.qkv_index, *k = q + c, *v = k + c;
	float *dq = job->dqkv + head.qkv_index, *dk = dq + c, *dv = dk + c;
	const float *att = job->att + head.att_index, *dout = job->dout + head.out_index;
	float *datt = scratch; /* (T, T) */

	scratch = datt + (head.tokens * head.tokens + GPT_LANES - 1) / GPT_LANES * GPT_LANES;
	from_square(&head, att, true, by_columns(dout, c), 1, dv, 3 * c, scratch);
	to_square(&head, by_rows(dout, c), by_rows(v, 3 * c), 1, datt, scratch);
	causal_softmax_backward(head.tokens, att, datt);
	from_square(&head, datt, false, by_columns(k, 3 * c), head.scale, dq, 3 * c, scratch);
	from_square(&head, datt, true, by_columns(q, 3 * c), head.scale, dk, 3 * c, scratch);
}

/* dout: (B, T, C). ret_dqkv: (B, T, 3, H, C/H), written. */
void gpt_attention_backward(struct gpt_team *team, const struct gpt_attention_shape *shape,
                            const float *qkv, const float *att, const float *dout, float *ret_dqkv)
{
	struct job job = { .shape = shape, .qkv = qkv, .att = att, .dout = dout, .dqkv = ret_dqkv };

	gpt_team_run(team, (uint64_t)shape->batch_count * shape->head_count, backward_part, &job);
}
