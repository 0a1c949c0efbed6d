/* SPDX-License-Identifier: Apache-2.0 */
/* Token and position embeddings. */
#include <string.h>

#include "examples/gpt/layers.h"
#include "examples/gpt/model.h"

/* tokens: (B, T). wte: (V, C). wpe: (T, C). ret_out: (B, T, C). */
void gpt_embedding_forward(uint32_t batch_count, uint32_t sequence_count, uint32_t channel_count,
                           const uint8_t *tokens, const float *wte, const float *wpe,
                           float *ret_out)
{
	uint64_t c = channel_count;

	for (uint64_t row = 0; row < (uint64_t)batch_count * sequence_count; row++)
		gpt_add(c, wte + tokens[row] * c, wpe + row % sequence_count * c,
		        ret_out + row * c);
}

/* dout: (B, T, C). dwte: (V, C), dwpe: (T, C). Rows are added in the order of the batch, so the sum
 * of a token that occurs often is always the same. */
void gpt_embedding_backward(uint32_t batch_count, uint32_t sequence_count, uint32_t channel_count,
                            const uint8_t *tokens, const float *dout, bool keep_wte, bool keep_wpe,
                            float *dwte, float *dwpe)
{
	uint64_t c = channel_count;

	if (!keep_wte)
		memset(dwte, 0, GPT_VOCAB * c * sizeof(*dwte));
	if (!keep_wpe)
		memset(dwpe, 0, sequence_count * c * sizeof(*dwpe));
	for (uint64_t row = 0; row < (uint64_t)batch_count * sequence_count; row++) {
		float *token = dwte + tokens[row] * c;
		float *position = dwpe + row % sequence_count * c;

		gpt_add(c, token, dout + row * c, token);
		gpt_add(c, position, dout + row * c, position);
	}
}
