/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers, forward and backward, as a table with two implementations: on the CPU (layers_cpu.h)
 * and on a GPU (layers_gpu.h). The model's code calls them by the table only.
 *
 * Arrays are f32 and row-major; matrices of parameters and of their gradients may be of 16 bits.
 * All arrays lie where the layers compute: in CPU memory, or in the memory of the GPU. Then the
 * host never reads or writes them, and a call only queues the work on the GPU's stream. Letters of
 * shapes: N rows (batch * sequence), B batch, T sequence, C channels, H heads, O outputs,
 * V vocabulary.
 *
 * Gradients of parameters: @keep says whether they are added to what the buffer holds (true: a
 * later micro-batch, or a second use of the same parameter) or replace it.
 *
 * On a GPU the first call that fails is noted in struct gpt_layers and the later ones do nothing.
 * Who hands a result on looks at `error` first.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "zinf/zinf.h"

struct gpt_layers;

static inline uint64_t gpt_larger(uint64_t x, uint64_t y)
{
	return x > y ? x : y;
}

/* out = in · weightᵀ + bias */
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

/* out = (in - mean) / sqrt(var + 1e-5) * weight + bias, over the channels */
struct gpt_layernorm {
	uint64_t rows, channels;
	const float *in, *weight, *bias; /* (N, C), (C,), (C,); backward needs no bias */
	float *stats;                    /* (N, 2): forward writes it */
};

/* Causal, several heads. */
struct gpt_attention_shape {
	uint32_t batch_count;
	uint32_t sequence_count;
	uint32_t channel_count;
	uint32_t head_count;
	bool is_bf16; /* Factors of products may be rounded to bf16. */
};

/* out = wte[token] + wpe[position] */
struct gpt_embedding {
	uint32_t batch_count, sequence_count, channel_count;
	const uint8_t *tokens; /* (B, T), as tokens() returned them */
	const void *wte, *wpe; /* (V, C), (T, C) of param_dtype */
	enum zinf_dtype param_dtype;
};

/* Which array of tokens of a micro-batch. */
enum gpt_tokens { GPT_TOKENS_INPUTS, GPT_TOKENS_TARGETS, _GPT_TOKENS_COUNT };

struct gpt_layers_ops {
	/* in: (N, C) f32. weight: (O, C) of linear->weight_dtype. bias: (O,) f32, NULL for none.
	 * ret_out: (N, O) f32. */
	void (*linear_forward)(struct gpt_layers *layers, const struct gpt_linear *linear,
	                       const float *in, const void *weight, const float *bias,
	                       float *ret_out);
	/* in: (N, C), dout: (N, O), f32. weight: (O, C). */
	void (*linear_backward)(struct gpt_layers *layers, const struct gpt_linear *linear,
	                        const float *in, const void *weight, const float *dout,
	                        const struct gpt_linear_grads *grads);

	/* ret_out: (N, C). norm->stats: mean and 1 / deviation of each row. */
	void (*layernorm_forward)(struct gpt_layers *layers, const struct gpt_layernorm *norm,
	                          float *ret_out);
	/* dout: (N, C). din: (N, C), the gradient is *added* (it joins the residual stream's).
	 * dweight, dbias: (C,). */
	void (*layernorm_backward)(struct gpt_layers *layers, const struct gpt_layernorm *norm,
	                           const float *dout, bool keep, float *din, float *dweight,
	                           float *dbias);

	/* The tanh approximation that GPT-2 uses. All arrays: (count,). ret_din may be dout. */
	void (*gelu_forward)(struct gpt_layers *layers, uint64_t count, const float *in,
	                     float *ret_out);
	void (*gelu_backward)(struct gpt_layers *layers, uint64_t count, const float *in,
	                      const float *dout, float *ret_din);

	/* qkv: (B, T, 3, H, C/H). ret_att: (B, H, T, T), the weights, kept for backward. ret_out:
	 * (B, T, C). */
	void (*attention_forward)(struct gpt_layers *layers,
	                          const struct gpt_attention_shape *shape, const float *qkv,
	                          float *ret_att, float *ret_out);
	/* dout: (B, T, C). ret_dqkv: (B, T, 3, H, C/H), written. */
	void (*attention_backward)(struct gpt_layers *layers,
	                           const struct gpt_attention_shape *shape, const float *qkv,
	                           const float *att, const float *dout, float *ret_dqkv);

	/* ret_out: (B, T, C). */
	void (*embedding_forward)(struct gpt_layers *layers, const struct gpt_embedding *embedding,
	                          float *ret_out);
	/* dout: (B, T, C). dwte: (V, C), dwpe: (T, C). */
	void (*embedding_backward)(struct gpt_layers *layers, const struct gpt_embedding *embedding,
	                           const float *dout, bool keep_wte, bool keep_wpe, float *dwte,
	                           float *dwpe);

	/* Softmax and cross entropy. logits: (N, V), become probabilities. targets: (N,), of
	 * tokens(). ret_loss: the mean in nats, in the host's memory; the rows are summed in f64,
	 * in order. Waits for the GPU. Return: 0; the layers' error. */
	int (*loss_forward)(struct gpt_layers *layers, uint64_t rows, uint64_t classes,
	                    const uint8_t *targets, float *logits, double *ret_loss);
	/* probabilities: (N, V), become the gradient of scale * N * loss with respect to the
	 * logits. */
	void (*loss_backward)(struct gpt_layers *layers, uint64_t rows, uint64_t classes,
	                      const uint8_t *targets, float scale, float *probabilities);

	/* ret_out = x + y, element by element. ret_out may be x or y. */
	void (*add)(struct gpt_layers *layers, uint64_t count, const float *x, const float *y,
	            float *ret_out);
	void (*copy)(struct gpt_layers *layers, uint64_t count, const float *source,
	             float *ret_target);
	void (*zero)(struct gpt_layers *layers, uint64_t count, float *ret_out);
	/* f32 to and from a 16-bit type. */
	void (*widen)(struct gpt_layers *layers, uint64_t count, const uint16_t *source,
	              enum zinf_dtype dtype, float *target);
	void (*narrow)(struct gpt_layers *layers, uint64_t count, const float *source,
	               enum zinf_dtype dtype, bool keep, uint16_t *target);

	/* Where layers read the tokens that the host has: @tokens itself, or a copy on the GPU,
	 * which holds until the next call with the same @which. tokens: (count,) */
	const uint8_t *(*tokens)(struct gpt_layers *layers, enum gpt_tokens which,
	                         const uint8_t *tokens, uint64_t count);
	/* Copies to the host's memory, and waits for the GPU. Return: 0; the layers' error. */
	int (*fetch)(struct gpt_layers *layers, const void *source, size_t bytes, void *ret_target);

	void (*free)(struct gpt_layers *layers);
};

struct gpt_layers {
	const struct gpt_layers_ops *ops;
	int error; /* of the first call that failed; 0: none, as always on the CPU */
};
