/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 to and from f32 by integer operations (docs/ARITHMETIC.md, Element types). */
#pragma once

#include <stdint.h>
#include <string.h>

#include "examples/gpt/element/element.h"

GPT_ELEMENT uint32_t gpt_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

GPT_ELEMENT float gpt_from_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

GPT_ELEMENT float gpt_bf16_widen(uint16_t x)
{
	return gpt_from_bits((uint32_t)x << 16);
}

/* Round to nearest, ties to even; a NaN becomes the quiet one of its sign. */
GPT_ELEMENT uint16_t gpt_bf16_round(float x)
{
	uint32_t bits = gpt_bits(x);
	uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
	uint32_t quiet = ((bits >> 16) & 0x8000u) | 0x7fc0u;

	return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}
