/* SPDX-License-Identifier: Apache-2.0 */
/* The three products of a linear layer, which the CPU and a GPU compute alike. Arrays are those of
 * struct gpt_layers_ops. */
#pragma once

#include "examples/gpt/layers.h"
#include "examples/gpt/product.h"

/* The output, begun with the bias. */
struct gpt_product gpt_linear_output(const struct gpt_linear *linear, const float *in,
                                     const void *weight, const float *bias, float *ret_out);
struct gpt_product gpt_linear_input_grad(const struct gpt_linear *linear, const void *weight,
                                         const float *dout, float *ret_din);
struct gpt_product gpt_linear_weight_grad(const struct gpt_linear *linear, const float *in,
                                          const float *dout, const struct gpt_linear_grads *grads);
