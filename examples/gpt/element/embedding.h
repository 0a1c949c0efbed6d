/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of tokens and positions. Each item is an element of what is written. */
#pragma once

#include <stdint.h>

#include "examples/gpt/bf16.h"
#include "examples/gpt/element/element.h"

struct gpt_embedding_forward_args {
	uint64_t count; /* N * C */
	uint64_t channels, sequence;
	const uint8_t *tokens; /* (N,) */
	const void *wte, *wpe; /* (V, C), (T, C), f32 or bf16 */
	float *out;            /* (N, C) */
	uint32_t is_bf16;
	uint32_t reserved;
};

GPT_ELEMENT float gpt_embedding_value(const void *data, uint64_t index, uint32_t is_bf16)
{
	return is_bf16 ? gpt_bf16_widen(((const uint16_t *)data)[index])
	               : ((const float *)data)[index];
}

GPT_ELEMENT void gpt_embedding_forward_item(const struct gpt_embedding_forward_args *args,
                                            uint64_t i)
{
	uint64_t c = args->channels, row = i / c, channel = i % c;

	args->out[i] =
		gpt_embedding_value(args->wte, args->tokens[row] * c + channel, args->is_bf16) +
		gpt_embedding_value(args->wpe, row % args->sequence * c + channel, args->is_bf16);
}

/* dwte (+)= the rows of dout that have this token, in the order of the rows. */
struct gpt_token_grads_args {
	uint64_t count; /* V * C */
	uint64_t channels, rows;
	const uint8_t *tokens; /* (N,) */
	const float *dout;     /* (N, C) */
	float *dwte;           /* (V, C) */
	uint32_t is_adding;
	uint32_t reserved;
};

GPT_ELEMENT void gpt_token_grads_item(const struct gpt_token_grads_args *args, uint64_t i)
{
	uint64_t c = args->channels, token = i / c, channel = i % c;
	float sum = args->is_adding ? args->dwte[i] : 0;

	for (uint64_t row = 0; row < args->rows; row++)
		if (args->tokens[row] == token)
			sum += args->dout[row * c + channel];
	args->dwte[i] = sum;
}

/* dwpe (+)= the rows of dout at this position, in the order of the sequences. */
struct gpt_position_grads_args {
	uint64_t count; /* T * C */
	uint64_t batch_count;
	const float *dout; /* (B, T, C) */
	float *dwpe;       /* (T, C) */
	uint32_t is_adding;
	uint32_t reserved;
};

GPT_ELEMENT void gpt_position_grads_item(const struct gpt_position_grads_args *args, uint64_t i)
{
	float sum = args->is_adding ? args->dwpe[i] : 0;

	for (uint64_t b = 0; b < args->batch_count; b++)
		sum += args->dout[b * args->count + i];
	args->dwpe[i] = sum;
}
