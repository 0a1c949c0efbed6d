/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers, forward and backward, on plain f32 arrays, row-major; matrices of parameters and of
 * their gradients may be of 16 bits. A team computes (team.h). Letters of shapes: N rows
 * (batch * sequence), B batch, T sequence, C channels, H heads, O outputs, V vocabulary.
 *
 * Gradients of parameters: @keep says whether they are added to what the buffer holds (true: a
 * later micro-batch, or a second use of the same parameter) or replace it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/team.h"
#include "zinf/zinf.h"

/* linear.c: out = in · weightᵀ + bias */
struct gpt_linear {
	uint64_t rows, inputs, outputs;
	enum zinf_dtype weight_dtype;
};
struct gpt_linear_grads {
	float *in;    /* (N, C) f32, NULL when not wanted */
	void *weight; /* (O, C) of weight_dtype */
	float *bias;  /* (O,) f32, NULL for none */
	enum zinf_dtype weight_dtype;
	bool keeps_weight, keeps_bias;
};
void gpt_linear_forward(struct gpt_team *team, const struct gpt_linear *linear, const float *in,
                        const void *weight, const float *bias, float *ret_out);
void gpt_linear_backward(struct gpt_team *team, const struct gpt_linear *linear, const float *in,
                         const void *weight, const float *dout,
                         const struct gpt_linear_grads *grads);

/* layernorm.c: out = (in - mean) / sqrt(var + 1e-5) * weight + bias, over the channels */
struct gpt_layernorm {
	uint64_t rows, channels;
	const float *in, *weight, *bias; /* (N, C), (C,), (C,); backward needs no bias */
	float *stats;                    /* (N, 2): forward writes it */
};
void gpt_layernorm_forward(struct gpt_team *team, const struct gpt_layernorm *norm, float *ret_out);
void gpt_layernorm_backward(struct gpt_team *team, const struct gpt_layernorm *norm,
                            const float *dout, bool keep, float *din, float *dweight, float *dbias);

/* gelu.c: the tanh approximation that GPT-2 uses */
void gpt_gelu_forward(struct gpt_team *team, uint64_t count, const float *in, float *ret_out);
void gpt_gelu_backward(struct gpt_team *team, uint64_t count, const float *in, const float *dout,
                       float *ret_din);

/* attention.c: causal, several heads */
struct gpt_attention_shape {
	uint32_t batch_count;
	uint32_t sequence_count;
	uint32_t channel_count;
	uint32_t head_count;
	bool is_bf16; /* Factors of products may be rounded to bf16. */
};
void gpt_attention_forward(struct gpt_team *team, const struct gpt_attention_shape *shape,
                           const float *qkv, float *ret_att, float *ret_out);
void gpt_attention_backward(struct gpt_team *team, const struct gpt_attention_shape *shape,
                            const float *qkv, const float *att, const float *dout, float *ret_dqkv);

/* embedding.c: out = wte[token] + wpe[position] */
struct gpt_embedding {
	uint32_t batch_count, sequence_count, channel_count;
	const uint8_t *tokens; /* (B, T) */
	const void *wte, *wpe; /* (V, C), (T, C) of param_dtype */
	enum zinf_dtype param_dtype;
};
void gpt_embedding_forward(const struct gpt_embedding *embedding, float *ret_out);
void gpt_embedding_backward(const struct gpt_embedding *embedding, const float *dout, bool keep_wte,
                            bool keep_wpe, float *dwte, float *dwpe);

/* loss.c: softmax and cross entropy */
double gpt_loss_forward(uint64_t rows, uint64_t classes, const uint8_t *targets, float *logits);
void gpt_loss_backward(uint64_t rows, uint64_t classes, const uint8_t *targets, float scale,
                       float *probabilities);

void gpt_add(struct gpt_team *team, uint64_t count, const float *x, const float *y, float *ret_out);
