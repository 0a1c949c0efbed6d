/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element conversions (docs/ARITHMETIC.md, "Element types"). Scalar inlines are the definition;
 * the array forms give the same bits. Counts are arbitrary (not only whole blocks). Floor 1.
 */
#pragma once

#include <stdint.h>
#include <string.h>

#include "common/base/types.h"

static inline uint32_t kern_f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static inline float kern_f32_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

static inline float kern_bf16_to_f32(uint16_t value)
{
	return kern_f32_from_bits((uint32_t)value << 16);
}

/* Round to nearest, ties to even. */
static inline uint16_t kern_f32_to_bf16(float value)
{
	uint32_t bits = kern_f32_bits(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)((bits >> 16 & 0x8000u) | 0x7fc0u);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* fp32 master → bf16 plane + signed 16-bit remainder; exact inverse of kern_join(). */
static inline void kern_split(float master, uint16_t *ret_param, int16_t *ret_remainder)
{
	uint32_t bits = kern_f32_bits(master);
	uint32_t high;

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		bits = 0x7fc00000u;
	high = (bits + 0x8000u) >> 16;
	*ret_param = (uint16_t)high;
	*ret_remainder = (int16_t)(uint16_t)(bits - (high << 16));
}

static inline float kern_join(uint16_t param, int16_t remainder)
{
	return kern_f32_from_bits(((uint32_t)param << 16) + (uint32_t)(int32_t)remainder);
}

float kern_f16_to_f32(uint16_t value);
uint16_t kern_f32_to_f16(float value);

/* fp32 master → f16 plane + what its bits differ by from the f16's, mod 2^32, NaN as above; exact
 * inverse of kern_join_f16(), also of what f16 cannot hold: the remainder of a master beyond its
 * range is the distance to infinity. */
static inline void kern_split_f16(float master, uint16_t *ret_param, int32_t *ret_remainder)
{
	uint32_t bits = kern_f32_bits(master);
	uint16_t param;

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		bits = 0x7fc00000u;
	param = kern_f32_to_f16(kern_f32_from_bits(bits));
	*ret_param = param;
	*ret_remainder = (int32_t)(bits - kern_f32_bits(kern_f16_to_f32(param)));
}

static inline float kern_join_f16(uint16_t param, int32_t remainder)
{
	return kern_f32_from_bits(kern_f32_bits(kern_f16_to_f32(param)) + (uint32_t)remainder);
}

/* target: (n,) f32. source: (n,) of @dtype. */
void kern_widen(float *target, const void *source, uint64_t element_count, enum zi_dtype dtype);
/* target: (n,) of @dtype, rounded once. source: (n,) f32. */
void kern_narrow(void *target, const float *source, uint64_t element_count, enum zi_dtype dtype);
