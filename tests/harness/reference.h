/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trainer.h must end with, computed plainly in one process: docs/ARITHMETIC.md written down
 * once more, without any of the project's own kernels (not even its conversions), so that a mistake
 * there cannot hide here.
 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tests/harness/trainer.h"

static inline float reference_from_bf16(uint16_t value)
{
	uint32_t bits = (uint32_t)value << 16;
	float result;

	memcpy(&result, &bits, sizeof(result));
	return result;
}

/* Nearest, ties to even; the values here are finite or infinite, never NaN. */
static inline uint16_t reference_to_bf16(float value)
{
	uint32_t bits, dropped;
	uint16_t kept;

	memcpy(&bits, &value, sizeof(bits));
	kept = (uint16_t)(bits >> 16);
	dropped = bits & 0xffffu;
	if (dropped > 0x8000u || (dropped == 0x8000u && (kept & 1)))
		kept++;
	return kept;
}

static inline float reference_from_f16(uint16_t value)
{
	int exponent = value >> 10 & 31, fraction = value & 1023;
	double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

	if (exponent == 31)
		size = INFINITY; /* never NaN, as below */
	return (float)(value & 0x8000 ? -size : size);
}

/* A whole number of what f16's values lie apart at that size; rint() gives the even one of two. */
static inline uint16_t reference_to_f16(float value)
{
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	double size = fabs((double)value);
	int exponent;
	double bits;

	(void)frexp(size, &exponent);
	exponent = size < 0x1p-14 ? -14 : exponent - 1;
	if (exponent > 15)
		return sign | 0x7c00;
	bits = 1024.0 * (exponent + 14) + rint(ldexp(size, 10 - exponent));
	return sign | (bits < 0x7c00 ? (uint16_t)bits : 0x7c00);
}

static inline float reference_from_half(uint16_t value, enum zinf_dtype dtype)
{
	return dtype == ZINF_F16 ? reference_from_f16(value) : reference_from_bf16(value);
}

static inline uint16_t reference_to_half(float value, enum zinf_dtype dtype)
{
	return dtype == ZINF_F16 ? reference_to_f16(value) : reference_to_bf16(value);
}

/* To a type of floats and back. */
static inline float reference_round(float value, enum zinf_dtype dtype)
{
	return dtype == ZINF_F32 ? value
	                         : reference_from_half(reference_to_half(value, dtype), dtype);
}

/* Of one step. */
struct reference_step {
	bool is_skipped;
	double norm; /* NaN when it was not computed */
	double clip;
};

/* Trains settings->steps steps of options.world_size ranks. @parameters: (trainer_dump_bytes(),).
 * @steps: (settings->steps + 1,), by step; may be NULL. False: no memory. */
bool reference_train(const struct trainer_settings *settings, unsigned char *parameters,
                     struct reference_step *steps);
/* NULL when @dump equals the reference at settings->steps; else where it first differs (static). */
const char *reference_difference(const struct trainer_settings *settings,
                                 const unsigned char *dump);
