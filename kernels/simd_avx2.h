/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/: the vector operations that the *_simd.h templates are written in, for AVX2,
 * FMA and F16C. simd_avx512.h has the same names and says what they mean. Floor 1.
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "kernels/table.h"

#define VEC_NAME(operation) operation##_avx2
#define VEC_LANES           8u
#define VEC_F64_LANES       4u
#define VEC_INLINE          static inline __attribute__((always_inline))

typedef __m256 vec;
typedef __m256d vec_f64;

VEC_INLINE vec vec_set(float value)
{
	return _mm256_set1_ps(value);
}

VEC_INLINE vec vec_load_f32(const float *source)
{
	return _mm256_loadu_ps(source);
}

VEC_INLINE vec vec_load_f16(const uint16_t *source)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)source));
}

VEC_INLINE vec vec_load_bf16(const uint16_t *source)
{
	__m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)source));

	return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

VEC_INLINE void vec_store_f32(float *target, vec x)
{
	_mm256_storeu_ps(target, x);
}

VEC_INLINE void vec_store_f16(uint16_t *target, vec x)
{
	_mm_storeu_si128((__m128i *)target, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* The 16-bit values of lanes that are at most 0xffff. */
VEC_INLINE __m128i vec_pack16(__m256i lanes)
{
	return _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
}

VEC_INLINE void vec_store_bf16(uint16_t *target, vec x)
{
	__m256i high = _mm256_srli_epi32(_mm256_castps_si256(x), 16);

	_mm_storeu_si128((__m128i *)target, vec_pack16(high));
}

VEC_INLINE void vec_stream_f32(float *target, vec x)
{
	_mm256_stream_ps(target, x);
}

VEC_INLINE void vec_stream_f16(uint16_t *target, vec x)
{
	_mm_stream_si128((__m128i *)target, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

VEC_INLINE void vec_stream_bf16(uint16_t *target, vec x)
{
	__m256i high = _mm256_srli_epi32(_mm256_castps_si256(x), 16);

	_mm_stream_si128((__m128i *)target, vec_pack16(high));
}

VEC_INLINE void vec_stream_bits(void *target, const void *bits)
{
	_mm256_stream_si256((__m256i *)target, _mm256_loadu_si256((const __m256i *)bits));
}

VEC_INLINE vec vec_add(vec x, vec y)
{
	return _mm256_add_ps(x, y);
}

VEC_INLINE vec vec_mul(vec x, vec y)
{
	return _mm256_mul_ps(x, y);
}

VEC_INLINE vec vec_min(vec x, vec y)
{
	return _mm256_blendv_ps(_mm256_min_ps(x, y), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

VEC_INLINE vec vec_max(vec x, vec y)
{
	return _mm256_blendv_ps(_mm256_max_ps(x, y), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

VEC_INLINE vec vec_div(vec x, vec y)
{
	return _mm256_div_ps(x, y);
}

VEC_INLINE vec vec_sqrt(vec x)
{
	return _mm256_sqrt_ps(x);
}

VEC_INLINE vec vec_fma(vec x, vec y, vec z)
{
	return _mm256_fmadd_ps(x, y, z);
}

VEC_INLINE vec vec_lion_move(vec c, vec minus_step, vec step)
{
	vec zero = _mm256_setzero_ps();
	vec move = _mm256_mul_ps(c, _mm256_set1_ps(-0.0f));

	move = _mm256_blendv_ps(move, minus_step, _mm256_cmp_ps(c, zero, _CMP_GT_OQ));
	return _mm256_blendv_ps(move, step, _mm256_cmp_ps(c, zero, _CMP_LT_OQ));
}

VEC_INLINE vec vec_canonical(vec x)
{
	vec is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);

	return _mm256_blendv_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(KERN_NAN_BITS)), is_nan);
}

VEC_INLINE vec vec_round_bf16(vec x)
{
	vec is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
	__m256i bits = _mm256_castps_si256(x);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	__m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
	__m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32((int)0x80000000u));
	__m256i nan = _mm256_or_si256(sign, _mm256_set1_epi32(KERN_NAN_BITS));

	rounded = _mm256_and_si256(rounded, _mm256_set1_epi32((int)0xffff0000u));
	return _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(nan), is_nan);
}

VEC_INLINE vec vec_join(const uint16_t *param, const int16_t *remainder)
{
	__m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)param));
	__m256i low = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)remainder));

	return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(high, 16), low));
}

VEC_INLINE void vec_split_param(uint16_t *param, vec canonical)
{
	__m256i bits = _mm256_castps_si256(canonical);
	__m256i high = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);

	_mm_storeu_si128((__m128i *)param, vec_pack16(high));
}

VEC_INLINE void vec_split_remainder(int16_t *remainder, vec canonical)
{
	__m256i bits = _mm256_castps_si256(canonical);
	__m256i low = _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));

	_mm_storeu_si128((__m128i *)remainder, vec_pack16(low));
}

VEC_INLINE vec vec_round_f16(vec x)
{
	return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

VEC_INLINE vec vec_join_f16(const uint16_t *param, const int32_t *remainder)
{
	__m256i wide = _mm256_castps_si256(vec_load_f16(param));
	__m256i rest = _mm256_loadu_si256((const __m256i *)remainder);

	return _mm256_castsi256_ps(_mm256_add_epi32(wide, rest));
}

VEC_INLINE vec vec_remainder_f16(vec canonical)
{
	__m256i wide = _mm256_castps_si256(vec_round_f16(canonical));

	return _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(canonical), wide));
}

VEC_INLINE vec_f64 vec_f64_zero(void)
{
	return _mm256_setzero_pd();
}

VEC_INLINE vec_f64 vec_f64_add_square(vec_f64 sum, vec x, unsigned half)
{
	__m128 part = half ? _mm256_extractf128_ps(x, 1) : _mm256_castps256_ps128(x);
	vec_f64 wide = _mm256_cvtps_pd(part);

	return _mm256_fmadd_pd(wide, wide, sum);
}

VEC_INLINE void vec_f64_store(double *target, vec_f64 x)
{
	_mm256_storeu_pd(target, x);
}
