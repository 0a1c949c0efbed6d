/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kernels/: sums of squares in vectors; see simd.h, norm.c. Floor 1. */
#pragma once

#include "kernels/simd.h"

#define NORM_SUMS (KERN_LANES / VEC_F64_LANES)

/* The 16 lanes are NORM_SUMS vectors in order: element i of each 16 meets lane i. */
VEC_INLINE double norm_block(const void *source, uint64_t index, vec unscale, enum zi_dtype dtype)
{
	vec_f64 sum[NORM_SUMS];
	double lane[KERN_LANES];

	for (unsigned j = 0; j < NORM_SUMS; j++)
		sum[j] = vec_f64_zero();
	for (uint64_t i = 0; i < ZI_BLOCK_ELEMENTS; i += KERN_LANES) {
#pragma GCC unroll 2
		for (unsigned j = 0; j < KERN_LANES / VEC_LANES; j++) {
			vec x = vec_load(source, index + i + j * VEC_LANES, dtype);

			x = vec_mul(x, unscale);
			sum[2 * j] = vec_f64_add_square(sum[2 * j], x, 0);
			sum[2 * j + 1] = vec_f64_add_square(sum[2 * j + 1], x, 1);
		}
	}
	for (unsigned j = 0; j < NORM_SUMS; j++)
		vec_f64_store(lane + j * VEC_F64_LANES, sum[j]);
	for (unsigned width = KERN_LANES / 2; width > 0; width /= 2)
		for (unsigned j = 0; j < width; j++)
			lane[j] += lane[j + width];
	return kern_canonical_f64(lane[0]);
}

VEC_INLINE void norm_loop(double *block_sums, const void *source, uint64_t element_count,
                          float unscale, enum zi_dtype dtype)
{
	for (uint64_t i = 0; i < element_count; i += ZI_BLOCK_ELEMENTS)
		*block_sums++ = norm_block(source, i, vec_set(unscale), dtype);
}

void VEC_NAME(kern_norm_blocks)(double *block_sums, const void *source, uint64_t element_count,
                                float unscale, enum zi_dtype dtype)
{
	if (dtype == ZI_DTYPE_F32)
		norm_loop(block_sums, source, element_count, unscale, ZI_DTYPE_F32);
	else if (dtype == ZI_DTYPE_F16)
		norm_loop(block_sums, source, element_count, unscale, ZI_DTYPE_F16);
	else
		norm_loop(block_sums, source, element_count, unscale, ZI_DTYPE_BF16);
}
