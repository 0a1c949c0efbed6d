/* SPDX-License-Identifier: Apache-2.0 */
/* The three products of a linear layer. */
#include "examples/gpt/linear_product.h"

struct gpt_product gpt_linear_output(const struct gpt_linear *linear, const float *in,
                                     const void *weight, const float *bias, float *ret_out)
{
	return (struct gpt_product){
		.row_count = linear->rows,
		.column_count = linear->outputs,
		.depth = linear->inputs,
		.left = { in, ZINF_F32, linear->inputs, 1 },
		.right = { weight, linear->weight_dtype, linear->inputs, 1 },
		.target = { .data = ret_out,
		            .dtype = ZINF_F32,
		            .row_stride = linear->outputs,
		            .bias = bias,
		            .scale = 1 },
		.is_bf16 = linear->weight_dtype == ZINF_BF16,
	};
}

/* (N, O) · (O, C) */
struct gpt_product gpt_linear_input_grad(const struct gpt_linear *linear, const void *weight,
                                         const float *dout, float *ret_din)
{
	return (struct gpt_product){
		.row_count = linear->rows,
		.column_count = linear->inputs,
		.depth = linear->outputs,
		.left = { dout, ZINF_F32, linear->outputs, 1 },
		.right = { weight, linear->weight_dtype, 1, linear->inputs },
		.target = { .data = ret_din,
		            .dtype = ZINF_F32,
		            .row_stride = linear->inputs,
		            .scale = 1 },
		.is_bf16 = linear->weight_dtype == ZINF_BF16,
	};
}

/* (O, N) · (N, C) */
struct gpt_product gpt_linear_weight_grad(const struct gpt_linear *linear, const float *in,
                                          const float *dout, const struct gpt_linear_grads *grads)
{
	return (struct gpt_product){
		.row_count = linear->outputs,
		.column_count = linear->inputs,
		.depth = linear->rows,
		.left = { dout, ZINF_F32, 1, linear->outputs },
		.right = { in, ZINF_F32, 1, linear->inputs },
		.target = { .data = grads->weight,
		            .dtype = grads->weight_dtype,
		            .row_stride = linear->inputs,
		            .is_adding = grads->keeps_weight,
		            .scale = 1 },
		.is_bf16 = linear->weight_dtype == ZINF_BF16,
	};
}
