/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kernels/: copying to several places in vectors; see simd.h, copy.c. Floor 1. */
#pragma once

#include <string.h>

#include "kernels/simd.h"

#define COPY_VEC_BYTES  (VEC_LANES * (uint64_t)sizeof(float))
#define COPY_LINE_BYTES 64u

/* Streams whole lines; every target is aligned to a vector. */
static void copy_stream(void *const *targets, uint32_t target_count, const char *source,
                        uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += COPY_LINE_BYTES) {
		_mm_prefetch(source + i + VEC_AHEAD_ELEMENTS * sizeof(float), _MM_HINT_T0);
		for (uint32_t t = 0; t < target_count; t++)
			for (uint64_t k = 0; k < COPY_LINE_BYTES; k += COPY_VEC_BYTES)
				vec_stream_bits((char *)targets[t] + i + k, source + i + k);
	}
	_mm_sfence(); /* before whoever reads next is told */
}

void VEC_NAME(kern_copy)(void *const *targets, uint32_t target_count, const void *source,
                         uint64_t bytes, bool is_streaming)
{
	uint64_t whole = bytes - bytes % COPY_LINE_BYTES;
	bool is_aligned = is_streaming;

	for (uint32_t t = 0; t < target_count; t++)
		is_aligned &= (uintptr_t)targets[t] % COPY_VEC_BYTES == 0;
	if (!is_aligned) {
		kern_copy_ref(targets, target_count, source, bytes, false);
		return;
	}
	copy_stream(targets, target_count, source, whole);
	for (uint32_t t = 0; t < target_count; t++)
		memmove((char *)targets[t] + whole, (const char *)source + whole, bytes - whole);
}
