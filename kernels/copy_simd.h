/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kernels/: copying to several places in vectors; see simd.h, copy.c. Floor 1. */
#pragma once

#include <string.h>

#include "kernels/simd.h"

#define COPY_VEC_BYTES  (VEC_LANES * (uint64_t)sizeof(float))
#define COPY_LINE_BYTES 64u
/* As far as sums of few ranks ask ahead (combine_simd.h). */
#define COPY_AHEAD_BYTES 8192u

/* Streams whole lines; every target begins with one. */
static void copy_stream(void *const *targets, uint32_t target_count, const char *source,
                        uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += COPY_LINE_BYTES) {
		_mm_prefetch(source + i + COPY_AHEAD_BYTES, _MM_HINT_T0);
		for (uint32_t t = 0; t < target_count; t++)
			for (uint64_t k = 0; k < COPY_LINE_BYTES; k += COPY_VEC_BYTES)
				vec_stream_bits((char *)targets[t] + i + k, source + i + k);
	}
	_mm_sfence(); /* before whoever reads next is told */
}

/* By plain stores, target by target. */
static void copy_few(void *const *targets, uint32_t target_count, const char *source,
                     uint64_t begin, uint64_t end)
{
	for (uint32_t t = 0; t < target_count && begin < end; t++)
		memmove((char *)targets[t] + begin, source + begin, end - begin);
}

void VEC_NAME(kern_copy)(void *const *targets, uint32_t target_count, const void *source,
                         uint64_t bytes, bool is_streaming)
{
	uintptr_t first = target_count ? (uintptr_t)targets[0] : 0;
	uint64_t head = -first % COPY_LINE_BYTES, whole;
	void *lines[ZI_WORLD_MAX];
	bool is_possible = is_streaming && bytes >= head;

	for (uint32_t t = 0; t < target_count; t++)
		is_possible &= ((uintptr_t)targets[t] - first) % COPY_LINE_BYTES == 0;
	if (!is_possible) {
		kern_copy_ref(targets, target_count, source, bytes, false);
		return;
	}
	for (uint32_t t = 0; t < target_count; t++)
		lines[t] = (char *)targets[t] + head;
	whole = (bytes - head) / COPY_LINE_BYTES * COPY_LINE_BYTES;
	copy_few(targets, target_count, source, 0, head);
	copy_stream(lines, target_count, (const char *)source + head, whole);
	copy_few(targets, target_count, source, head + whole, bytes);
}
