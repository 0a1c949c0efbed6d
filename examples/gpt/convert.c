/* SPDX-License-Identifier: Apache-2.0 */
/* f32 to and from the 16-bit types, on the CPU. */
#include "examples/gpt/f16.h"
#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/vector.h"

/* target: (count,) f32. source: (count,) bf16 or f16. */
GPT_CLONES void gpt_widen(uint64_t count, const uint16_t *source, enum zinf_dtype dtype,
                          float *target)
{
	for (uint64_t i = 0; i < count; i++)
		target[i] = gpt_half_widen(source[i], dtype);
}

GPT_CLONES static void round_into(uint64_t count, const float *source, enum zinf_dtype dtype,
                                  uint16_t *target)
{
	for (uint64_t i = 0; i < count; i++)
		target[i] = gpt_half_round(source[i], dtype);
}

/* docs/ARITHMETIC.md, gradients reduced per step. */
GPT_CLONES static void add_into(uint64_t count, const float *source, enum zinf_dtype dtype,
                                uint16_t *target)
{
	for (uint64_t i = 0; i < count; i++)
		target[i] = gpt_half_round(gpt_half_widen(target[i], dtype) + source[i], dtype);
}

/* target: (count,) bf16 or f16. @keep: a later micro-batch of a buffer. */
void gpt_narrow(uint64_t count, const float *source, enum zinf_dtype dtype, bool keep,
                uint16_t *target)
{
	if (keep)
		add_into(count, source, dtype, target);
	else
		round_into(count, source, dtype, target);
}
