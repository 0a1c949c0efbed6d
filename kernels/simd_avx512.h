/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/: the vector operations that the *_simd.h templates are written in, for
 * AVX-512 F, BW, DQ, VL. simd_avx2.h has the same names. Floor 1.
 *
 * Conversions to and from bf16 are integer operations: VCVTNEPS2BF16 flushes denormals.
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "kernels/table.h"

#define VEC_NAME(operation) operation##_avx512
#define VEC_LANES           16u
#define VEC_F64_LANES       8u
#define VEC_INLINE          static inline __attribute__((always_inline))

typedef __m512 vec;
typedef __m512d vec_f64;

VEC_INLINE vec vec_set(float value)
{
	return _mm512_set1_ps(value);
}

VEC_INLINE vec vec_load_f32(const float *source)
{
	return _mm512_loadu_ps(source);
}

VEC_INLINE vec vec_load_f16(const uint16_t *source)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)source));
}

VEC_INLINE vec vec_load_bf16(const uint16_t *source)
{
	__m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)source));

	return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

VEC_INLINE void vec_store_f32(float *target, vec x)
{
	_mm512_storeu_ps(target, x);
}

VEC_INLINE void vec_store_f16(uint16_t *target, vec x)
{
	_mm256_storeu_si256((__m256i *)target, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* The upper 16 bits of each lane are its bf16. */
VEC_INLINE void vec_store_bf16(uint16_t *target, vec x)
{
	__m512i high = _mm512_srli_epi32(_mm512_castps_si512(x), 16);

	_mm256_storeu_si256((__m256i *)target, _mm512_cvtepi32_epi16(high));
}

/* What of a store passes by the cache; @target aligned to the bytes that are written. */
VEC_INLINE void vec_stream_f32(float *target, vec x)
{
	_mm512_stream_ps(target, x);
}

VEC_INLINE void vec_stream_f16(uint16_t *target, vec x)
{
	_mm256_stream_si256((__m256i *)target, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

VEC_INLINE void vec_stream_bf16(uint16_t *target, vec x)
{
	__m512i high = _mm512_srli_epi32(_mm512_castps_si512(x), 16);

	_mm256_stream_si256((__m256i *)target, _mm512_cvtepi32_epi16(high));
}

VEC_INLINE void vec_stream_bits(void *target, const void *bits)
{
	_mm512_stream_si512((__m512i *)target, _mm512_loadu_si512(bits));
}

VEC_INLINE vec vec_add(vec x, vec y)
{
	return _mm512_add_ps(x, y);
}

VEC_INLINE vec vec_mul(vec x, vec y)
{
	return _mm512_mul_ps(x, y);
}

/* x < y ? x : y, and NaN when x or y is */
VEC_INLINE vec vec_min(vec x, vec y)
{
	__mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

	return _mm512_mask_mov_ps(_mm512_min_ps(x, y), is_nan, x);
}

/* x > y ? x : y, and NaN when x or y is */
VEC_INLINE vec vec_max(vec x, vec y)
{
	__mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

	return _mm512_mask_mov_ps(_mm512_max_ps(x, y), is_nan, x);
}

VEC_INLINE vec vec_div(vec x, vec y)
{
	return _mm512_div_ps(x, y);
}

VEC_INLINE vec vec_sqrt(vec x)
{
	return _mm512_sqrt_ps(x);
}

/* x × y + z, rounded once */
VEC_INLINE vec vec_fma(vec x, vec y, vec z)
{
	return _mm512_fmadd_ps(x, y, z);
}

/* c > 0 ? minus_step : c < 0 ? step : −(c × 0), for which c × −0 is one rounding, not two signs;
 * NaN when c is */
VEC_INLINE vec vec_lion_move(vec c, vec minus_step, vec step)
{
	vec zero = _mm512_setzero_ps();
	vec move = _mm512_mul_ps(c, _mm512_set1_ps(-0.0f));

	move = _mm512_mask_mov_ps(move, _mm512_cmp_ps_mask(c, zero, _CMP_GT_OQ), minus_step);
	return _mm512_mask_mov_ps(move, _mm512_cmp_ps_mask(c, zero, _CMP_LT_OQ), step);
}

/* kern_canonical() */
VEC_INLINE vec vec_canonical(vec x)
{
	__mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

	return _mm512_mask_mov_ps(x, is_nan, _mm512_castsi512_ps(_mm512_set1_epi32(KERN_NAN_BITS)));
}

/* Round to a bf16 value, to nearest even, NaN to the quiet one of its sign; still fp32. */
VEC_INLINE vec vec_round_bf16(vec x)
{
	__mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
	__m512i bits = _mm512_castps_si512(x);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
	__m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32((int)0x80000000u));
	__m512i nan = _mm512_or_si512(sign, _mm512_set1_epi32(KERN_NAN_BITS));

	rounded = _mm512_and_si512(rounded, _mm512_set1_epi32((int)0xffff0000u));
	return _mm512_castsi512_ps(_mm512_mask_mov_epi32(rounded, is_nan, nan));
}

/* kern_join() */
VEC_INLINE vec vec_join(const uint16_t *param, const int16_t *remainder)
{
	__m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)param));
	__m512i low = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)remainder));

	return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 16), low));
}

/* The param half of kern_split(), of canonical lanes. */
VEC_INLINE void vec_split_param(uint16_t *param, vec canonical)
{
	__m512i bits = _mm512_castps_si512(canonical);
	__m512i high = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), 16);

	_mm256_storeu_si256((__m256i *)param, _mm512_cvtepi32_epi16(high));
}

/* The other half: (bits − (p << 16)) mod 2^16 is the lower half of bits. */
VEC_INLINE void vec_split_remainder(int16_t *remainder, vec canonical)
{
	__m512i bits = _mm512_castps_si512(canonical);

	_mm256_storeu_si256((__m256i *)remainder, _mm512_cvtepi32_epi16(bits));
}

/* Round to an f16 value, to nearest even; still fp32. */
VEC_INLINE vec vec_round_f16(vec x)
{
	return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* kern_join_f16() */
VEC_INLINE vec vec_join_f16(const uint16_t *param, const int32_t *remainder)
{
	__m512i wide = _mm512_castps_si512(vec_load_f16(param));
	__m512i rest = _mm512_loadu_si512(remainder);

	return _mm512_castsi512_ps(_mm512_add_epi32(wide, rest));
}

/* The remainder of kern_split_f16(), of canonical lanes: bits, whatever number they look like. */
VEC_INLINE vec vec_remainder_f16(vec canonical)
{
	__m512i wide = _mm512_castps_si512(vec_round_f16(canonical));

	return _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_castps_si512(canonical), wide));
}

VEC_INLINE vec_f64 vec_f64_zero(void)
{
	return _mm512_setzero_pd();
}

/* sum + x², x being lanes 0 … 7 or 8 … 15 widened */
VEC_INLINE vec_f64 vec_f64_add_square(vec_f64 sum, vec x, unsigned half)
{
	__m256 part = half ? _mm512_extractf32x8_ps(x, 1) : _mm512_castps512_ps256(x);
	vec_f64 wide = _mm512_cvtps_pd(part);

	return _mm512_fmadd_pd(wide, wide, sum);
}

VEC_INLINE void vec_f64_store(double *target, vec_f64 x)
{
	_mm512_storeu_pd(target, x);
}
