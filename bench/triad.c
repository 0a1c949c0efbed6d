/* SPDX-License-Identifier: Apache-2.0 */
/* The triad in plain C, AVX2 and AVX-512; see triad.h. */
#include "bench/triad.h"

static void triad_c(float *a, const float *b, const float *c, float s, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		a[i] = b[i] + s * c[i];
}

static void update_c(float *a, const float *b, const float *c, float s, uint64_t count)
{
	(void)c;
	for (uint64_t i = 0; i < count; i++)
		a[i] = a[i] + s * b[i];
}

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET_AVX2   __attribute__((target("avx2,fma")))
#define TARGET_AVX512 __attribute__((target("avx512f")))

TARGET_AVX2 static void triad_avx2(float *a, const float *b, const float *c, float s,
                                   uint64_t count)
{
	__m256 scale = _mm256_set1_ps(s);

	for (uint64_t i = 0; i < count; i += 8)
		_mm256_store_ps(a + i, _mm256_fmadd_ps(scale, _mm256_load_ps(c + i),
		                                       _mm256_load_ps(b + i)));
}

TARGET_AVX2 static void triad_avx2_stream(float *a, const float *b, const float *c, float s,
                                          uint64_t count)
{
	__m256 scale = _mm256_set1_ps(s);

	for (uint64_t i = 0; i < count; i += 8)
		_mm256_stream_ps(a + i, _mm256_fmadd_ps(scale, _mm256_load_ps(c + i),
		                                        _mm256_load_ps(b + i)));
	_mm_sfence();
}

TARGET_AVX512 static void triad_avx512(float *a, const float *b, const float *c, float s,
                                       uint64_t count)
{
	__m512 scale = _mm512_set1_ps(s);

	for (uint64_t i = 0; i < count; i += 16)
		_mm512_store_ps(a + i, _mm512_fmadd_ps(scale, _mm512_load_ps(c + i),
		                                       _mm512_load_ps(b + i)));
}

TARGET_AVX512 static void triad_avx512_stream(float *a, const float *b, const float *c, float s,
                                              uint64_t count)
{
	__m512 scale = _mm512_set1_ps(s);

	for (uint64_t i = 0; i < count; i += 16)
		_mm512_stream_ps(a + i, _mm512_fmadd_ps(scale, _mm512_load_ps(c + i),
		                                        _mm512_load_ps(b + i)));
	_mm_sfence();
}

TARGET_AVX2 static void update_avx2(float *a, const float *b, const float *c, float s,
                                    uint64_t count)
{
	__m256 scale = _mm256_set1_ps(s);

	(void)c;
	for (uint64_t i = 0; i < count; i += 8)
		_mm256_store_ps(a + i, _mm256_fmadd_ps(scale, _mm256_load_ps(b + i),
		                                       _mm256_load_ps(a + i)));
}

TARGET_AVX512 static void update_avx512(float *a, const float *b, const float *c, float s,
                                        uint64_t count)
{
	__m512 scale = _mm512_set1_ps(s);

	(void)c;
	for (uint64_t i = 0; i < count; i += 16)
		_mm512_store_ps(a + i, _mm512_fmadd_ps(scale, _mm512_load_ps(b + i),
		                                       _mm512_load_ps(a + i)));
}
#else
#define update_avx2         update_c
#define update_avx512       update_c
#define triad_avx2          triad_c
#define triad_avx512        triad_c
#define triad_avx2_stream   triad_c
#define triad_avx512_stream triad_c
#endif

/**
 * triad_plain() - the triad with ordinary stores
 * @isa: what the machine can run
 */
triad_fn triad_plain(enum kern_isa isa)
{
	if (isa == KERN_ISA_AVX512)
		return triad_avx512;
	return isa == KERN_ISA_AVX2 ? triad_avx2 : triad_c;
}

/**
 * triad_stream() - the triad with non-temporal stores (plain C: with ordinary ones)
 * @isa: what the machine can run
 */
triad_fn triad_stream(enum kern_isa isa)
{
	if (isa == KERN_ISA_AVX512)
		return triad_avx512_stream;
	return isa == KERN_ISA_AVX2 ? triad_avx2_stream : triad_c;
}

/**
 * triad_update() - the update in place
 * @isa: what the machine can run
 */
triad_fn triad_update(enum kern_isa isa)
{
	if (isa == KERN_ISA_AVX512)
		return update_avx512;
	return isa == KERN_ISA_AVX2 ? update_avx2 : update_c;
}
