/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers, forward and backward, on plain f32 arrays, row-major. Letters of shapes: N rows
 * (batch * sequence), B batch, T sequence, C channels, H heads, O outputs, V vocabulary.
 *
 * Gradients of parameters: @keep says whether they are added to what the buffer holds (true: a
 * later micro-batch, or a second use of the same parameter) or replace it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* linear.c: out = in · weightᵀ + bias */
void gpt_linear_forward(uint64_t rows, uint64_t inputs, uint64_t outputs, const float *in,
                        const float *weight, const float *bias, float *ret_out);
void gpt_linear_backward(uint64_t rows, uint64_t inputs, uint64_t outputs, const float *in,
                         const float *weight, const float *dout, bool keep, float *ret_din,
                         float *dweight, float *dbias);

/* layernorm.c: out = (in - mean) / sqrt(var + 1e-5) * weight + bias, over the channels */
void gpt_layernorm_forward(uint64_t rows, uint64_t channels, const float *in, const float *weight,
                           const float *bias, float *ret_out, float *ret_stats);
void gpt_layernorm_backward(uint64_t rows, uint64_t channels, const float *in, const float *weight,
                            const float *stats, const float *dout, bool keep, float *din,
                            float *dweight, float *dbias);

/* gelu.c: the tanh approximation that GPT-2 uses */
void gpt_gelu_forward(uint64_t count, const float *in, float *ret_out);
void gpt_gelu_backward(uint64_t count, const float *in, const float *dout, float *ret_din);

/* attention.c: causal, several heads */
struct gpt_attention_shape {
	uint32_t batch_count;
	uint32_t sequence_count;
	uint32_t channel_count;
	uint32_t head_count;
};
void gpt_attention_forward(const struct gpt_attention_shape *shape, const float *qkv,
                           float *ret_att, float *ret_out);
void gpt_attention_backward(const struct gpt_attention_shape *shape, const float *qkv,
                            const float *att, const float *dout, float *scratch, float *ret_dqkv);

/* embedding.c: out = wte[token] + wpe[position] */
void gpt_embedding_forward(uint32_t batch_count, uint32_t sequence_count, uint32_t channel_count,
                           const uint8_t *tokens, const float *wte, const float *wpe,
                           float *ret_out);
void gpt_embedding_backward(uint32_t batch_count, uint32_t sequence_count, uint32_t channel_count,
                            const uint8_t *tokens, const float *dout, bool keep_wte, bool keep_wpe,
                            float *dwte, float *dwpe);

/* loss.c: softmax and cross entropy */
double gpt_loss_forward(uint64_t rows, uint64_t classes, const uint8_t *targets, float *logits);
void gpt_loss_backward(uint64_t rows, uint64_t classes, const uint8_t *targets, float scale,
                       float *probabilities);

void gpt_add(uint64_t count, const float *x, const float *y, float *ret_out);
