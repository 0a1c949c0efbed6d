/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/: XXH3 (64 bits, seed 0) of more than 240 bytes, stripe by stripe from a
 * register, for loops that hash several arrays while they compute on them. Floor 1.
 *
 * The input is cut into stripes of 64 bytes, 16 to a block; stripe n of a block is mixed with the
 * secret from byte 8n on, and after each block that is not the last the accumulators are scrambled.
 * The last 64 bytes of the input are a stripe of their own, whatever they overlap. Source: the XXH3
 * of xxHash 0.8, whose header gives secret, constants and the last mixing.
 */
#pragma once

#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX512
#include <immintrin.h>
#include <stdint.h>
#include <xxhash.h>

#define HASH_STRIPE_BYTES  64u
#define HASH_BLOCK_STRIPES 16u
#define HASH_BLOCK_BYTES   (HASH_BLOCK_STRIPES * HASH_STRIPE_BYTES)
#define HASH_KEY_BYTES     8u /* that the secret moves on by with each stripe */
#define HASH_INLINE        static inline __attribute__((always_inline))

typedef __m512i hash_stripe;

HASH_INLINE hash_stripe hash_load(const void *source)
{
	return _mm512_loadu_si512(source);
}

/* The accumulators of an input's beginning. */
HASH_INLINE hash_stripe hash_begin(void)
{
	static const uint64_t words[8] = XXH3_INIT_ACC;

	return hash_load(words);
}

/* The secret for the first stripe of a block. */
HASH_INLINE const unsigned char *hash_key(void)
{
	return XXH3_kSecret;
}

HASH_INLINE hash_stripe hash_mix(hash_stripe accum, hash_stripe stripe, const unsigned char *key)
{
	hash_stripe keyed = _mm512_xor_si512(stripe, hash_load(key));
	hash_stripe product = _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32));
	hash_stripe swapped = _mm512_shuffle_epi32(stripe, (_MM_PERM_ENUM)_MM_SHUFFLE(1, 0, 3, 2));

	return _mm512_add_epi64(product, _mm512_add_epi64(accum, swapped));
}

/* After each block but the last: (x ^ x >> 47 ^ secret) × prime, mod 2^64. */
HASH_INLINE hash_stripe hash_scramble(hash_stripe accum)
{
	const hash_stripe prime = _mm512_set1_epi64((long long)XXH_PRIME32_1);
	hash_stripe x = _mm512_xor_si512(accum, _mm512_srli_epi64(accum, 47));
	hash_stripe low, high;

	x = _mm512_xor_si512(x,
	                     hash_load(XXH3_kSecret + XXH_SECRET_DEFAULT_SIZE - HASH_STRIPE_BYTES));
	low = _mm512_mul_epu32(x, prime);
	high = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), prime);
	return _mm512_add_epi64(low, _mm512_slli_epi64(high, 32));
}

/*
 * The hash of an input of @bytes: @accum has taken whole blocks of it, scrambled; from @rest on, at
 * least 64 bytes, it has not.
 */
static inline uint64_t hash_end(hash_stripe accum, const void *rest, uint64_t rest_bytes,
                                uint64_t bytes)
{
	const char *start = rest;
	const char *last = start + rest_bytes - HASH_STRIPE_BYTES;
	uint64_t words[8];

	for (; rest_bytes > HASH_BLOCK_BYTES; rest_bytes -= HASH_BLOCK_BYTES) {
		for (unsigned i = 0; i < HASH_BLOCK_STRIPES; i++, start += HASH_STRIPE_BYTES)
			accum = hash_mix(accum, hash_load(start), hash_key() + i * HASH_KEY_BYTES);
		accum = hash_scramble(accum);
	}
	for (uint64_t i = 0; i < (rest_bytes - 1) / HASH_STRIPE_BYTES; i++)
		accum = hash_mix(accum, hash_load(start + i * HASH_STRIPE_BYTES),
		                 hash_key() + i * HASH_KEY_BYTES);
	/* 7 and 11: the offsets that XXH3 gives its last stripe and its last mixing. */
	accum = hash_mix(accum, hash_load(last),
	                 hash_key() + XXH_SECRET_DEFAULT_SIZE - HASH_STRIPE_BYTES - 7);
	_mm512_storeu_si512(words, accum);
	return XXH3_mergeAccs(words, hash_key() + 11, bytes * XXH_PRIME64_1);
}
