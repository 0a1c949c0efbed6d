/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers on a GPU. Everything is queued on the device's stream, in the order of the calls.
 * Kernels and the CPU call the same element functions, and sums have the same order:
 *
 *   layer                    order of its sums, on the CPU as well      on a GPU
 *   layer norm, softmax,     16 lanes, joined pairwise (lanes.h)        16 threads a row
 *     loss
 *   gradients of biases and  over the rows, from the first one          terms of a tile by 512
 *     layer norms                                                       threads, sums by one each
 *   gradient of wte          over the rows, from the first one          a thread an element, which
 *                                                                       looks at all tokens
 *   gradient of wpe          over the sequences                         a thread an element
 *   matrix products          that of OpenBLAS                           that of cuBLAS
 *
 * With bf16 parameters both factors of a product are rounded to bf16, and cuBLAS sums in f32.
 * Attention multiplies GPT_SQUARE_ROWS rows of all heads at a time, as on the CPU: half of the
 * arithmetic of whole squares, for T / 64 calls a product.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/device.h"
#include "examples/gpt/layers.h"
#include "examples/gpt/model.h"

/* Copies of factors in bf16 that one layer uses at a time. */
enum gpt_narrowed {
	GPT_NARROWED_WIDE,
	GPT_NARROWED_SQUARE,
	GPT_NARROWED_HEADS,
	_GPT_NARROWED_COUNT
};

struct gpt_gpu_layers {
	struct gpt_layers base;
	struct gpt_device *device;
	uint64_t row_count; /* the most of N */
	uint8_t *tokens;    /* (_GPT_TOKENS_COUNT, N), on the GPU */
	uint8_t *staged;    /* the same of the host, pinned: what was copied last */
	uint64_t staged_counts[_GPT_TOKENS_COUNT];
	bool is_staging;              /* a copy of these may be under way */
	struct gpt_loss_mark *marks;  /* (N,), on the GPU */
	struct gpt_loss_mark *marked; /* (N,), the host's */
	float *square_grads;          /* (B, H, T, T), on the GPU: attention's backward */
	uint64_t *pointers;           /* on the GPU: element/heads.h, for a product's strips */
	uint16_t *narrowed[_GPT_NARROWED_COUNT]; /* on the GPU; NULL: not of bf16 */
};

/* @device: outlives it. Return: NULL: the host or the GPU has no memory (gpt_device_error()). */
struct gpt_layers *gpt_layers_gpu_new(struct gpt_device *device, const struct gpt_config *config,
                                      bool is_bf16);

/* attention_gpu.c */
void gpt_gpu_attention_forward(struct gpt_layers *layers, const struct gpt_attention_shape *shape,
                               const float *qkv, float *ret_att, float *ret_out);
void gpt_gpu_attention_backward(struct gpt_layers *layers, const struct gpt_attention_shape *shape,
                                const float *qkv, const float *att, const float *dout,
                                float *ret_dqkv);

/* layers_gpu.c: @source in bf16, in the place for it. source: (count,). */
const void *gpt_gpu_narrow(struct gpt_gpu_layers *layers, enum gpt_narrowed place, uint64_t count,
                           const float *source);
