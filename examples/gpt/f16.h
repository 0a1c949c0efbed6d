/* SPDX-License-Identifier: Apache-2.0 */
/*
 * IEEE binary16 to and from f32 (docs/ARITHMETIC.md, Element types), by integer operations but for
 * denormals, and either 16-bit type by its name.
 */
#pragma once

#include <math.h>

#include "examples/gpt/bf16.h"
#include "zinf/zinf.h"

static inline float gpt_f16_widen(uint16_t x)
{
	uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
	uint32_t rest = (uint32_t)(x & 0x7fffu)
	                << 13; /* exponent and fraction, where f32 has them */

	if (rest > 0x7c00u << 13)
		return gpt_from_bits(sign | 0x7fc00000u | rest);
	if (rest == 0x7c00u << 13)
		return gpt_from_bits(sign | 0x7f800000u);
	if (rest < 0x0400u << 13) /* denormal: a multiple of 2^-24 */
		return gpt_from_bits(sign | gpt_bits((float)(x & 0x7fffu) * 0x1p-24f));
	return gpt_from_bits(sign | (rest + ((127u - 15u) << 23)));
}

/* Round to nearest, ties to even; from 65520 on infinity. A NaN keeps sign and upper bits, and
 * becomes quiet. */
static inline uint16_t gpt_f16_round(float x)
{
	uint32_t bits = gpt_bits(x) & 0x7fffffffu;
	uint16_t sign = (uint16_t)((gpt_bits(x) >> 16) & 0x8000u);
	float size = gpt_from_bits(bits);

	if (bits > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
	if (size >= 65520.0f)
		return (uint16_t)(sign | 0x7c00u);
	if (size <
	    0x1p-14f) /* beside 0.5 an f32 is a multiple of 2^-24: the sum rounds as f16 does */
		return (uint16_t)(sign | (gpt_bits(size + 0.5f) - gpt_bits(0.5f)));
	bits += 0xfffu + ((bits >> 13) & 1u);
	return (uint16_t)(sign | ((bits >> 13) - ((127u - 15u) << 10)));
}

static inline float gpt_half_widen(uint16_t x, enum zinf_dtype dtype)
{
	return dtype == ZINF_F16 ? gpt_f16_widen(x) : gpt_bf16_widen(x);
}

static inline uint16_t gpt_half_round(float x, enum zinf_dtype dtype)
{
	return dtype == ZINF_F16 ? gpt_f16_round(x) : gpt_bf16_round(x);
}
