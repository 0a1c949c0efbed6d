/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal self attention on a GPU: the products of attention.c for all heads of all sequences at
 * once, a strip of rows after the other.
 */
#include <assert.h>
#include <math.h>

#include "examples/gpt/cublas.h"
#include "examples/gpt/layers_gpu.h"
#include "examples/gpt/product.h"

/* A matrix of the first head. Strides in elements. */
struct matrix {
	const void *data;
	uint64_t line_stride,
		depth_stride; /* as of struct gpt_factor; a target's depth_stride: 1 */
	uint64_t sequence_stride, head_stride;
};

/* target (T, columns) = scale * left (T, depth) · right (depth, columns), in each head. */
struct heads_product {
	struct matrix left, right, target;
	uint64_t columns, depth;
	enum gpt_triangle triangle;
	float scale;
};

/* A layer's shape, and where its arrays lie. */
struct attention {
	struct gpt_gpu_layers *layers;
	const struct gpt_attention_shape *shape;
	uint64_t tokens, channels, width;
	float scale;
};

static struct attention attention_of(struct gpt_layers *layers,
                                     const struct gpt_attention_shape *shape)
{
	uint64_t width = shape->channel_count / shape->head_count;

	assert(shape->channel_count % shape->head_count == 0);
	return (struct attention){
		.layers = (struct gpt_gpu_layers *)layers,
		.shape = shape,
		.tokens = shape->sequence_count,
		.channels = shape->channel_count,
		.width = width,
		.scale = 1.0f / sqrtf((float)width),
	};
}

static uint64_t element_bytes(enum zinf_dtype dtype)
{
	return dtype == ZINF_F32 ? sizeof(float) : sizeof(uint16_t);
}

static struct gpt_head_matrix pointers_of(const struct matrix *matrix, uint64_t strip_stride,
                                          enum zinf_dtype dtype)
{
	uint64_t bytes = element_bytes(dtype);

	return (struct gpt_head_matrix){
		.address = (uint64_t)matrix->data,
		.sequence_bytes = matrix->sequence_stride * bytes,
		.head_bytes = matrix->head_stride * bytes,
		.strip_bytes = strip_stride * bytes,
	};
}

/* Writes the addresses of all strips. A strip begins GPT_SQUARE_ROWS rows further down; where the
 * left factor is zero before the diagonal, also so much deeper. */
static void point(const struct attention *attention, const struct heads_product *product,
                  enum zinf_dtype factor_dtype)
{
	uint64_t sequences = attention->shape->batch_count, heads = attention->shape->head_count;
	uint64_t strips = (attention->tokens + GPT_SQUARE_ROWS - 1) / GPT_SQUARE_ROWS;
	uint64_t deeper = product->triangle == GPT_LEFT_UPPER ? GPT_SQUARE_ROWS : 0;
	const struct gpt_head_pointers_args args = {
		.count = strips * GPT_HEAD_MATRICES * sequences * heads,
		.heads = heads,
		.sequences = sequences,
		.matrices = {
			pointers_of(&product->left,
			            GPT_SQUARE_ROWS * product->left.line_stride +
			                    deeper * product->left.depth_stride,
			            factor_dtype),
			pointers_of(&product->right, deeper * product->right.depth_stride,
			            factor_dtype),
			pointers_of(&product->target,
			            GPT_SQUARE_ROWS * product->target.line_stride, ZINF_F32),
		},
		.pointers = attention->layers->pointers,
	};

	gpt_device_launch(attention->layers->device, GPT_KERNEL_head_pointers, &args);
}

/* As gpt_product_square() does it for one head. */
static void multiply(const struct attention *attention, const struct heads_product *product)
{
	const struct gpt_factor left = { .line_stride = product->left.line_stride,
		                         .depth_stride = product->left.depth_stride };
	const struct gpt_factor right = { .line_stride = product->right.line_stride,
		                          .depth_stride = product->right.depth_stride };
	const enum zinf_dtype dtype = attention->shape->is_bf16 ? ZINF_BF16 : ZINF_F32;
	uint32_t count = attention->shape->batch_count * attention->shape->head_count;
	const uint64_t *pointers = attention->layers->pointers;

	point(attention, product, dtype);
	for (uint64_t row = 0; row < attention->tokens; row += GPT_SQUARE_ROWS) {
		uint64_t rest = attention->tokens - row;
		uint64_t rows = rest < GPT_SQUARE_ROWS ? rest : GPT_SQUARE_ROWS;
		uint64_t first = product->triangle == GPT_LEFT_UPPER ? row : 0;
		uint64_t end = product->triangle == GPT_LEFT_LOWER ? row + rows : product->depth;
		struct gpt_gemm gemm = {
			.rows = rows,
			.columns = product->triangle == GPT_TARGET_LOWER ? row + rows
			                                                 : product->columns,
			.depth = end - first,
			.target_stride = product->target.line_stride,
			.factor_dtype = dtype,
			.target_dtype = ZINF_F32,
			.scale = product->scale,
		};

		gpt_gemm_factors(&gemm, &left, &right);
		gpt_device_gemm_batch(attention->layers->device, &gemm, pointers, count);
		pointers += GPT_HEAD_MATRICES * count;
	}
}

/* ---- the matrices of a layer ---- */

/* Q, K or V: columns of the (N, 3C) array, by rows. */
static struct matrix part_of(const struct attention *attention, const void *qkv,
                             enum zinf_dtype dtype, uint64_t part)
{
	uint64_t c = attention->channels;

	return (struct matrix){ .data = (const char *)qkv + part * c * element_bytes(dtype),
		                .line_stride = 3 * c,
		                .depth_stride = 1,
		                .sequence_stride = attention->tokens * 3 * c,
		                .head_stride = attention->width };
}

/* (T, T) of each head, by rows. */
static struct matrix square_of(const struct attention *attention, const void *squares)
{
	uint64_t t = attention->tokens;

	return (struct matrix){ .data = squares,
		                .line_stride = t,
		                .depth_stride = 1,
		                .sequence_stride = attention->shape->head_count * t * t,
		                .head_stride = t * t };
}

/* Columns of the (N, C) array, by rows. */
static struct matrix heads_of(const struct attention *attention, const void *heads)
{
	return (struct matrix){ .data = heads,
		                .line_stride = attention->channels,
		                .depth_stride = 1,
		                .sequence_stride = attention->tokens * attention->channels,
		                .head_stride = attention->width };
}

/* The same matrix, read along the other dimension. */
static struct matrix turned(struct matrix matrix)
{
	uint64_t line_stride = matrix.line_stride;

	matrix.line_stride = matrix.depth_stride;
	matrix.depth_stride = line_stride;
	return matrix;
}

/* (T, T) = left (T, width) · rightᵀ, up to the diagonal. */
static void to_square(const struct attention *attention, struct matrix left, struct matrix right,
                      float scale, float *squares)
{
	const struct heads_product product = { .left = left,
		                               .right = right,
		                               .target = square_of(attention, squares),
		                               .columns = attention->tokens,
		                               .depth = attention->width,
		                               .triangle = GPT_TARGET_LOWER,
		                               .scale = scale };

	multiply(attention, &product);
}

/* (T, width) = square · right, or squareᵀ · right. */
static void from_square(const struct attention *attention, const void *squares, bool is_transposed,
                        struct matrix right, float scale, struct matrix target)
{
	const struct matrix square = square_of(attention, squares);
	const struct heads_product product = {
		.left = is_transposed ? turned(square) : square,
		.right = turned(right),
		.target = target,
		.columns = attention->width,
		.depth = attention->tokens,
		.triangle = is_transposed ? GPT_LEFT_UPPER : GPT_LEFT_LOWER,
		.scale = scale,
	};

	multiply(attention, &product);
}

/* ---- the layer ---- */

/* @source, or its copy in bf16. */
static const void *factor_of(const struct attention *attention, enum gpt_narrowed place,
                             uint64_t count, const float *source)
{
	return attention->shape->is_bf16 ? gpt_gpu_narrow(attention->layers, place, count, source)
	                                 : source;
}

static uint64_t rows_of(const struct attention *attention)
{
	return attention->shape->batch_count * attention->tokens;
}

static uint64_t squares_count(const struct attention *attention)
{
	return rows_of(attention) * attention->shape->head_count * attention->tokens;
}

static void note(struct gpt_layers *layers, const struct attention *attention)
{
	layers->error = gpt_device_error(attention->layers->device);
}

void gpt_gpu_attention_forward(struct gpt_layers *layers, const struct gpt_attention_shape *shape,
                               const float *qkv, float *ret_att, float *ret_out)
{
	const struct attention attention = attention_of(layers, shape);
	const enum zinf_dtype dtype = shape->is_bf16 ? ZINF_BF16 : ZINF_F32;
	const struct gpt_causal_softmax_args softmax = {
		.count = rows_of(&attention) * shape->head_count,
		.tokens = attention.tokens,
		.scores = ret_att,
	};
	const void *factors = factor_of(&attention, GPT_NARROWED_WIDE,
	                                rows_of(&attention) * 3 * attention.channels, qkv);
	const void *squares;

	to_square(&attention, part_of(&attention, factors, dtype, 0),
	          part_of(&attention, factors, dtype, 1), attention.scale, ret_att);
	gpt_device_launch(attention.layers->device, GPT_KERNEL_causal_softmax, &softmax);
	squares = factor_of(&attention, GPT_NARROWED_SQUARE, squares_count(&attention), ret_att);
	from_square(&attention, squares, false, part_of(&attention, factors, dtype, 2), 1,
	            heads_of(&attention, ret_out));
	note(layers, &attention);
}

void gpt_gpu_attention_backward(struct gpt_layers *layers, const struct gpt_attention_shape *shape,
                                const float *qkv, const float *att, const float *dout,
                                float *ret_dqkv)
{
	const struct attention attention = attention_of(layers, shape);
	const enum zinf_dtype dtype = shape->is_bf16 ? ZINF_BF16 : ZINF_F32;
	float *datt = attention.layers->square_grads;
	const struct gpt_causal_softmax_backward_args softmax = {
		.count = rows_of(&attention) * shape->head_count,
		.tokens = attention.tokens,
		.att = att,
		.dscores = datt,
	};
	const void *factors = factor_of(&attention, GPT_NARROWED_WIDE,
	                                rows_of(&attention) * 3 * attention.channels, qkv);
	const void *grads = factor_of(&attention, GPT_NARROWED_HEADS,
	                              rows_of(&attention) * attention.channels, dout);
	const void *squares =
		factor_of(&attention, GPT_NARROWED_SQUARE, squares_count(&attention), att);

	from_square(&attention, squares, true, heads_of(&attention, grads), 1,
	            part_of(&attention, ret_dqkv, ZINF_F32, 2));
	to_square(&attention, heads_of(&attention, grads), part_of(&attention, factors, dtype, 2),
	          1, datt);
	gpt_device_launch(attention.layers->device, GPT_KERNEL_causal_softmax_backward, &softmax);
	squares = factor_of(&attention, GPT_NARROWED_SQUARE, squares_count(&attention), datt);
	from_square(&attention, squares, false, part_of(&attention, factors, dtype, 1),
	            attention.scale, part_of(&attention, ret_dqkv, ZINF_F32, 0));
	from_square(&attention, squares, true, part_of(&attention, factors, dtype, 0),
	            attention.scale, part_of(&attention, ret_dqkv, ZINF_F32, 1));
	note(layers, &attention);
}
