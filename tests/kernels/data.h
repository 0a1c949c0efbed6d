/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test data for kernels: numbers of every kind from a seed, and buffers that notice a write beyond
 * their end.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/types.h"
#include "kernels/cast.h"
#include "kernels/kernels.h"

enum data_kind {
	DATA_ORDINARY, /* about 2^-20 … 2^4, both signs: what training sees */
	DATA_DENORMAL, /* denormals, zeros of both signs, the smallest normals */
	DATA_EXTREME,  /* the largest finite values, infinities, ones */
	DATA_WILD,     /* any bits: NaNs of both signs, quiet and signalling, too */
	_DATA_COUNT,
};

/* xorshift64*, Vigna 2016. */
static inline uint64_t data_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dull;
}

static inline uint32_t data_f32_bits(uint64_t *state, enum data_kind kind)
{
	static const uint32_t extremes[] = { 0x7f7fffffu, 0x7f7f8000u, 0x7f800000u, 0x3f800000u,
		                             0x7f000000u, 0x00000000u, 0x7f7f7fffu, 0x5f000000u };
	static const uint32_t specials[] = { 0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0x7f800000u,
		                             0x00000001u, 0x00000000u, 0x7f808000u, 0x7fbfffffu };
	uint64_t random = data_random(state);
	uint32_t bits = (uint32_t)(random >> 32);
	uint32_t sign = bits & 0x80000000u;

	switch (kind) {
	case DATA_ORDINARY:
		return sign | (107u + (uint32_t)(random % 25u)) << 23 | (bits & 0x7fffffu);
	case DATA_DENORMAL:
		return random % 5u ? bits & 0x80ffffffu : sign;
	case DATA_EXTREME:
		return sign | extremes[random % 8u];
	default:
		return random % 3u ? bits : sign | specials[random / 3u % 8u];
	}
}

/* As those of f32, with a fraction whose lower bits are drawn as well. */
static inline uint64_t data_f64_bits(uint64_t *state, enum data_kind kind)
{
	uint32_t bits = data_f32_bits(state, kind);
	uint64_t rest = kind == DATA_EXTREME || bits << 1 == 0 ? 0 : data_random(state) >> 32;
	uint64_t exponent = bits >> 23 & 0xffu;

	if (kind == DATA_ORDINARY)
		exponent += 1023 - 127;
	else if (exponent == 0xff)
		exponent = 0x7ff;
	else if (exponent > 1)
		exponent += 0x7fe - 0xfe; /* the largest stay the largest */
	return (uint64_t)(bits >> 31) << 63 | exponent << 52 | (uint64_t)(bits & 0x7fffffu) << 29 |
	       (kind == DATA_WILD && exponent == 0x7ff ? 0 : rest & 0x1fffffffu);
}

/* @target: (count,) of @dtype. 16-bit types get the upper bits of the same numbers, f16 with the
 * kinds moved into its own range. */
static inline void data_fill(void *target, uint64_t count, enum zi_dtype dtype, enum data_kind kind,
                             uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1u;

	for (uint64_t i = 0; i < count && dtype == ZI_DTYPE_F64; i++)
		((uint64_t *)target)[i] = data_f64_bits(&state, kind);
	for (uint64_t i = 0; i < count && dtype != ZI_DTYPE_F64; i++) {
		uint32_t bits = data_f32_bits(&state, kind);

		if (dtype == ZI_DTYPE_F32)
			((uint32_t *)target)[i] = bits;
		else if (dtype == ZI_DTYPE_BF16 || kind == DATA_WILD)
			((uint16_t *)target)[i] = (uint16_t)(bits >> 16);
		else if (kind == DATA_DENORMAL)
			((uint16_t *)target)[i] =
				(uint16_t)(bits >> 16 & 0x8000u) | (bits & 0x3ffu);
		else
			((uint16_t *)target)[i] = kern_f32_to_f16(kern_f32_from_bits(bits));
	}
}

/* Pairs that the step is specialised on. */
struct data_dtypes {
	enum zi_dtype param, grad;
};

static const struct data_dtypes data_dtypes[] = {
	{ ZI_DTYPE_F32, ZI_DTYPE_F32 },  { ZI_DTYPE_F32, ZI_DTYPE_BF16 },
	{ ZI_DTYPE_BF16, ZI_DTYPE_F32 }, { ZI_DTYPE_BF16, ZI_DTYPE_BF16 },
	{ ZI_DTYPE_F16, ZI_DTYPE_F32 },  { ZI_DTYPE_F16, ZI_DTYPE_F16 },
};
#define DATA_DTYPE_PAIRS (sizeof(data_dtypes) / sizeof(data_dtypes[0]))

#define DATA_GUARD_BYTES 64u
#define DATA_GUARD       0xa5

/* @bytes and a guard behind them; @offset_bytes shifts the start away from 64-byte alignment. */
static inline void *data_new(uint64_t bytes, uint64_t offset_bytes)
{
	uint64_t all = (offset_bytes + bytes + DATA_GUARD_BYTES + 63u) & ~63ull;
	char *memory = aligned_alloc(64, all);

	if (!memory)
		abort();
	memset(memory, DATA_GUARD, all);
	return memory + offset_bytes;
}

static inline void data_free(void *data, uint64_t offset_bytes)
{
	free((char *)data - offset_bytes);
}

static inline bool data_guard_holds(const void *data, uint64_t bytes)
{
	const unsigned char *guard = (const unsigned char *)data + bytes;

	for (unsigned i = 0; i < DATA_GUARD_BYTES; i++)
		if (guard[i] != DATA_GUARD)
			return false;
	return true;
}

/* Index of the first differing byte, -1 for none. */
static inline int64_t data_difference(const void *a, const void *b, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (((const char *)a)[i] != ((const char *)b)[i])
			return (int64_t)i;
	return -1;
}
