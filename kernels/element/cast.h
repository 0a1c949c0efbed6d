/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions of one element: the definition (docs/ARITHMETIC.md, "Element types"), in integer
 * operations only, so that no rounding mode or flush-to-zero can touch it. Floor 1.
 */
#pragma once

#include "kernels/element/element.h"

#define KERN_NAN_BITS     0x7fc00000u /* every NaN that arithmetic produces, when it is stored */
#define KERN_NAN_BITS_F64 0x7ff8000000000000ull
#define KERN_F32_INFINITY 0x7f800000u
#define KERN_F32_QUIET    0x00400000u
#define KERN_F16_EXPONENT 0x7c00u
#define KERN_F16_QUIET    0x0200u

KERN_ELEMENT uint32_t kern_f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof bits);
	return bits;
}

KERN_ELEMENT float kern_f32_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

KERN_ELEMENT bool kern_f32_bits_are_nan(uint32_t bits)
{
	return (bits & 0x7fffffffu) > KERN_F32_INFINITY;
}

/*
 * Which of two NaN operands an instruction passes on depends on operand order, which is the
 * compiler's choice, and a GPU's instructions make a NaN of their own. So every NaN that is stored
 * is this one, and all versions agree on all bits.
 */
KERN_ELEMENT float kern_canonical(float value)
{
	return kern_f32_bits_are_nan(kern_f32_bits(value)) ? kern_f32_from_bits(KERN_NAN_BITS)
	                                                   : value;
}

KERN_ELEMENT double kern_canonical_f64(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof bits);
	if ((bits & 0x7fffffffffffffffull) > 0x7ff0000000000000ull)
		bits = KERN_NAN_BITS_F64;
	memcpy(&value, &bits, sizeof value);
	return value;
}

KERN_ELEMENT float kern_bf16_to_f32(uint16_t value)
{
	return kern_f32_from_bits((uint32_t)value << 16);
}

/* Round to nearest, ties to even. */
KERN_ELEMENT uint16_t kern_f32_to_bf16(float value)
{
	uint32_t bits = kern_f32_bits(value);
	uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
	uint32_t nan = (bits >> 16 & 0x8000u) | 0x7fc0u;

	return (uint16_t)(kern_f32_bits_are_nan(bits) ? nan : rounded);
}

/* IEEE binary16 to binary32, exact. A NaN keeps sign and payload and becomes quiet (as VCVTPH2PS
 * does). Without branches, which the threads of a GPU would take one after the other. */
KERN_ELEMENT float kern_f16_to_f32(uint16_t value)
{
	uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
	uint32_t magnitude = value & 0x7fffu;
	/* Normal: move the exponent's bias from 15 to 127. */
	uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
	uint32_t infinite = KERN_F32_INFINITY | magnitude << 13;
	/* Denormal: magnitude × 2^-24. Shift the leading one to bit 10, where it is implied. */
	uint32_t shift = kern_leading_zeros(magnitude | 1u) - 21u;
	uint32_t denormal = (127u - 14u - shift) << 23 | (magnitude << (shift & 31u) & 0x03ffu)
	                                                         << 13;
	uint32_t bits = magnitude ? denormal : 0;

	bits = magnitude >= 0x0400u ? normal : bits;
	bits = magnitude >= KERN_F16_EXPONENT ? infinite : bits;
	bits |= magnitude > KERN_F16_EXPONENT ? KERN_F32_QUIET : 0;
	return kern_f32_from_bits(sign | bits);
}

/* IEEE binary32 to binary16, to nearest, ties to even. Overflow becomes infinity; a NaN keeps its
 * sign and the upper ten bits of its payload and becomes quiet (as VCVTPS2PH does). Without
 * branches, as above. */
KERN_ELEMENT uint16_t kern_f32_to_f16(float value)
{
	uint32_t bits = kern_f32_bits(value);
	uint32_t sign = bits >> 16 & 0x8000u;
	uint32_t magnitude = bits & 0x7fffffffu;
	uint32_t exponent = magnitude >> 23;
	uint32_t nan = KERN_F16_EXPONENT | KERN_F16_QUIET | (magnitude >> 13 & 0x03ffu);
	/* Normal; a carry out of the fraction is right as it is. */
	uint32_t normal =
		(magnitude - ((127u - 15u) << 23) + 0x0fffu + (magnitude >> 13 & 1u)) >> 13;
	/* Denormal: round fraction × 2^(exponent − 150) to a multiple of 2^-24. From 2^-26 down all
	 * of it is below half of that. */
	uint32_t fraction = (magnitude & 0x007fffffu) | 0x00800000u;
	uint32_t shift = 126u - (exponent > 127u - 15u ? 127u - 15u : exponent);
	uint32_t result;

	shift = shift > 25u ? 25u : shift;
	result = (fraction + (1u << (shift - 1u)) - 1u + (fraction >> shift & 1u)) >> shift;
	result = exponent >= 127u - 14u ? normal : result;
	result = exponent >= 127u + 16u ? KERN_F16_EXPONENT : result; /* 65536 and above */
	result = magnitude > KERN_F32_INFINITY ? nan : result;
	return (uint16_t)(sign | result);
}

/* fp32 master → bf16 plane + signed 16-bit remainder; exact inverse of kern_join(). */
KERN_ELEMENT void kern_split(float master, uint16_t *ret_param, int16_t *ret_remainder)
{
	uint32_t bits = kern_f32_bits(master);
	uint32_t high;

	if (kern_f32_bits_are_nan(bits))
		bits = KERN_NAN_BITS;
	high = (bits + 0x8000u) >> 16;
	*ret_param = (uint16_t)high;
	*ret_remainder = (int16_t)(uint16_t)(bits - (high << 16));
}

KERN_ELEMENT float kern_join(uint16_t param, int16_t remainder)
{
	return kern_f32_from_bits(((uint32_t)param << 16) + (uint32_t)(int32_t)remainder);
}

/* fp32 master → f16 plane + what its bits differ by from the f16's, mod 2^32, NaN as above; exact
 * inverse of kern_join_f16(), also of what f16 cannot hold: the remainder of a master beyond its
 * range is the distance to infinity. */
KERN_ELEMENT void kern_split_f16(float master, uint16_t *ret_param, int32_t *ret_remainder)
{
	uint32_t bits = kern_f32_bits(master);
	uint16_t param;

	if (kern_f32_bits_are_nan(bits))
		bits = KERN_NAN_BITS;
	param = kern_f32_to_f16(kern_f32_from_bits(bits));
	*ret_param = param;
	*ret_remainder = (int32_t)(bits - kern_f32_bits(kern_f16_to_f32(param)));
}

KERN_ELEMENT float kern_join_f16(uint16_t param, int32_t remainder)
{
	return kern_f32_from_bits(kern_f32_bits(kern_f16_to_f32(param)) + (uint32_t)remainder);
}
