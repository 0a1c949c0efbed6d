/* SPDX-License-Identifier: Apache-2.0 */
/* Token and position embeddings. */
#include <string.h>

#include "examples/gpt/f16.h"
#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/model.h"
#include "examples/gpt/vector.h"

static float element(const void *data, uint64_t index, enum zinf_dtype dtype)
{
	return dtype == ZINF_F32 ? ((const float *)data)[index]
	                         : gpt_half_widen(((const uint16_t *)data)[index], dtype);
}

/* ret_out: (B, T, C). */
void gpt_embedding_forward(const struct gpt_embedding *embedding, float *ret_out)
{
	uint64_t c = embedding->channel_count, t = embedding->sequence_count;

	for (uint64_t row = 0; row < embedding->batch_count * t; row++)
		for (uint64_t i = 0; i < c; i++)
			ret_out[row * c + i] =
				element(embedding->wte, embedding->tokens[row] * c + i,
			                embedding->param_dtype) +
				element(embedding->wpe, row % t * c + i, embedding->param_dtype);
}

GPT_CLONES static void add_to(uint64_t count, const float *x, float *sums)
{
	for (uint64_t i = 0; i < count; i++)
		sums[i] += x[i];
}

/* dout: (B, T, C). dwte: (V, C), dwpe: (T, C). Rows are added in the order of the batch, so the sum
 * of a token that occurs often is always the same. */
void gpt_embedding_backward(const struct gpt_embedding *embedding, const float *dout, bool keep_wte,
                            bool keep_wpe, float *dwte, float *dwpe)
{
	uint64_t c = embedding->channel_count, t = embedding->sequence_count;

	if (!keep_wte)
		memset(dwte, 0, GPT_VOCAB * c * sizeof(*dwte));
	if (!keep_wpe)
		memset(dwpe, 0, t * c * sizeof(*dwpe));
	for (uint64_t row = 0; row < embedding->batch_count * t; row++) {
		add_to(c, dout + row * c, dwte + embedding->tokens[row] * c);
		add_to(c, dout + row * c, dwpe + row % t * c);
	}
}
