/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element conversions: the definition (docs/ARITHMETIC.md, "Element types"), in integer operations
 * alone, so that no rounding mode or flush-to-zero can touch it. Floor 1.
 */
#include <string.h>

#include "common/base/assert.h"
#include "kernels/cast.h"
#include "kernels/table.h"

#define F16_EXPONENT 0x7c00u
#define F16_QUIET    0x0200u
#define F32_QUIET    0x00400000u

/**
 * kern_f16_to_f32() - IEEE binary16 to binary32, exact
 * @value: bits of an f16
 *
 * Return: the value; a NaN keeps sign and payload and becomes quiet (as VCVTPH2PS does).
 */
float kern_f16_to_f32(uint16_t value)
{
	uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
	uint32_t magnitude = value & 0x7fffu;
	uint32_t shift;

	if (magnitude > F16_EXPONENT)
		return kern_f32_from_bits(sign | 0x7f800000u | F32_QUIET | magnitude << 13);
	if (magnitude == F16_EXPONENT)
		return kern_f32_from_bits(sign | 0x7f800000u);
	if (magnitude >= 0x0400u) /* normal: move the exponent's bias from 15 to 127 */
		return kern_f32_from_bits(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
	if (magnitude == 0)
		return kern_f32_from_bits(sign);
	/* Denormal: magnitude × 2^-24. Shift the leading one to bit 10, where it is implied. */
	shift = (uint32_t)__builtin_clz(magnitude) - 21u;
	magnitude = magnitude << shift & 0x03ffu;
	return kern_f32_from_bits(sign | (127u - 14u - shift) << 23 | magnitude << 13);
}

/**
 * kern_f32_to_f16() - IEEE binary32 to binary16, to nearest, ties to even
 * @value: any f32
 *
 * Return: bits of the f16. Overflow becomes infinity; a NaN keeps its sign and the upper ten bits
 * of its payload and becomes quiet (as VCVTPS2PH does).
 */
uint16_t kern_f32_to_f16(float value)
{
	uint32_t bits = kern_f32_bits(value);
	uint32_t sign = bits >> 16 & 0x8000u;
	uint32_t magnitude = bits & 0x7fffffffu;
	uint32_t exponent = magnitude >> 23;
	uint32_t fraction, shift, rest, half;

	if (magnitude > 0x7f800000u)
		return (uint16_t)(sign | F16_EXPONENT | F16_QUIET | (magnitude >> 13 & 0x03ffu));
	if (exponent >= 127u + 16u) /* 65536 and above, infinity */
		return (uint16_t)(sign | F16_EXPONENT);
	if (exponent >= 127u - 14u) { /* normal; a carry out of the fraction is right as it is */
		magnitude -= (127u - 15u) << 23;
		magnitude += 0x0fffu + (magnitude >> 13 & 1u);
		return (uint16_t)(sign | magnitude >> 13);
	}
	if (exponent < 127u - 25u) /* below half of the smallest denormal, 2^-24 */
		return (uint16_t)sign;
	/* Denormal: round fraction × 2^(exponent − 150) to a multiple of 2^-24. */
	fraction = (magnitude & 0x007fffffu) | 0x00800000u;
	shift = 126u - exponent;
	rest = fraction & ((1u << shift) - 1u);
	half = 1u << (shift - 1u);
	fraction >>= shift;
	fraction += rest > half || (rest == half && (fraction & 1u));
	return (uint16_t)(sign | fraction);
}

/* kern_widen() element by element. */
void kern_widen_ref(float *target, const void *source, uint64_t element_count, enum zi_dtype dtype)
{
	const uint16_t *source16 = source;

	assert(dtype >= ZI_DTYPE_F32);
	assert(dtype < _ZI_DTYPE_FLOAT_COUNT);
	switch (dtype) {
	case ZI_DTYPE_F32:
		if (target != source && element_count)
			memcpy(target, source, element_count * sizeof *target);
		return;
	case ZI_DTYPE_F16:
		for (uint64_t i = 0; i < element_count; i++)
			target[i] = kern_f16_to_f32(source16[i]);
		return;
	case ZI_DTYPE_BF16:
	default:
		for (uint64_t i = 0; i < element_count; i++)
			target[i] = kern_bf16_to_f32(source16[i]);
		return;
	}
}

/* kern_narrow() element by element. */
void kern_narrow_ref(void *target, const float *source, uint64_t element_count, enum zi_dtype dtype)
{
	uint16_t *target16 = target;

	assert(dtype >= ZI_DTYPE_F32);
	assert(dtype < _ZI_DTYPE_FLOAT_COUNT);
	switch (dtype) {
	case ZI_DTYPE_F32:
		if (target != source && element_count)
			memcpy(target, source, element_count * sizeof *source);
		return;
	case ZI_DTYPE_F16:
		for (uint64_t i = 0; i < element_count; i++)
			target16[i] = kern_f32_to_f16(source[i]);
		return;
	case ZI_DTYPE_BF16:
	default:
		for (uint64_t i = 0; i < element_count; i++)
			target16[i] = kern_f32_to_bf16(source[i]);
		return;
	}
}
