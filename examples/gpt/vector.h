/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the layers' loops are made of. Each loop works element by element, or sums in 16 fixed
 * lanes, and -ffp-contract=off forbids fusing: so the compiler may use any vector width and the
 * bits stay the same. exp() is written out so that it can be vectorised and does not depend on the
 * C library.
 */
#pragma once

#include <stdint.h>
#include <string.h>

/* The same loop compiled for several instruction sets, chosen when the program is loaded. Not
 * under sanitizers: their runtimes are not up yet when the choice is made. Not by clang: up to 14
 * it gives the chooser another name than the function, and callers in other files do not find
 * it. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(ZI_SANITIZED)
#define GPT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GPT_CLONES
#endif

#define GPT_LANES 16u

/* e^x. Against f64: |err| <= 3e-7 rel. on [-87, 88], beyond which x is taken as that bound; NaN
 * stays NaN. x = n ln 2 + r, |r| <= ln(2)/2; Taylor's polynomial of degree 7, whose rest is below
 * 6e-9. */
static inline float gpt_exp(float x)
{
	const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
	float shifted, n, r, y, scale;
	int32_t bits;

	x = x < -87.0f ? -87.0f : x;
	x = x > 88.0f ? 88.0f : x;
	shifted = x * 1.44269504f + magic;
	n = shifted - magic;
	r = x - n * 0.693359375f; /* ln 2 in two parts; the product with the first one is exact */
	r = r - n * -2.12194440e-4f;
	y = 1.0f / 5040.0f;
	y = y * r + 1.0f / 720.0f;
	y = y * r + 1.0f / 120.0f;
	y = y * r + 1.0f / 24.0f;
	y = y * r + 1.0f / 6.0f;
	y = y * r + 0.5f;
	y = y * r + 1.0f;
	y = y * r + 1.0f;
	memcpy(&bits, &shifted, sizeof(bits));
	bits = (int32_t)((uint32_t)(bits - 0x4b400000 + 127) << 23); /* 2^n; 0x4b400000 is magic */
	memcpy(&scale, &bits, sizeof(scale));
	return y * scale;
}

/* Joins 16 lanes pairwise. */
static inline float gpt_join_lanes(float lanes[GPT_LANES])
{
	for (unsigned width = GPT_LANES / 2; width; width /= 2)
		for (unsigned i = 0; i < width; i++)
			lanes[i] += lanes[i + width];
	return lanes[0];
}

/* sum of x[i]. x: (count,). */
static inline float gpt_sum(const float *x, uint64_t count)
{
	float lanes[GPT_LANES] = { 0 };
	uint64_t i = 0;

	for (; i + GPT_LANES <= count; i += GPT_LANES)
		for (unsigned j = 0; j < GPT_LANES; j++)
			lanes[j] += x[i + j];
	for (unsigned j = 0; i < count; i++, j++)
		lanes[j] += x[i];
	return gpt_join_lanes(lanes);
}

/* sum of x[i] * y[i]. x, y: (count,). */
static inline float gpt_dot(const float *x, const float *y, uint64_t count)
{
	float lanes[GPT_LANES] = { 0 };
	uint64_t i = 0;

	for (; i + GPT_LANES <= count; i += GPT_LANES)
		for (unsigned j = 0; j < GPT_LANES; j++)
			lanes[j] += x[i + j] * y[i + j];
	for (unsigned j = 0; i < count; i++, j++)
		lanes[j] += x[i] * y[i];
	return gpt_join_lanes(lanes);
}

/* The largest of x[i]; a NaN is passed over (exp() brings it back). count >= 1. */
static inline float gpt_max(const float *x, uint64_t count)
{
	float lanes[GPT_LANES];
	uint64_t i = 0;

	for (unsigned j = 0; j < GPT_LANES; j++)
		lanes[j] = x[0];
	for (; i + GPT_LANES <= count; i += GPT_LANES)
		for (unsigned j = 0; j < GPT_LANES; j++)
			lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
	for (; i < count; i++)
		lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
	for (unsigned j = 1; j < GPT_LANES; j++)
		lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
	return lanes[0];
}
