/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kernels/: element conversions in vectors; see simd.h, cast.c. Floor 1. */
#pragma once

#include "kernels/simd.h"

VEC_INLINE void widen_loop(float *target, const void *source, uint64_t count, enum zi_dtype dtype)
{
	for (uint64_t i = 0; i < count; i += VEC_LANES)
		vec_store_f32(target + i, vec_load(source, i, dtype));
}

VEC_INLINE void narrow_loop(void *target, const float *source, uint64_t count, enum zi_dtype dtype)
{
	for (uint64_t i = 0; i < count; i += VEC_LANES)
		vec_store(target, i, vec_load_f32(source + i), dtype);
}

void VEC_NAME(kern_widen)(float *target, const void *source, uint64_t element_count,
                          enum zi_dtype dtype)
{
	uint64_t whole = dtype == ZI_DTYPE_F32 ? 0 : element_count - element_count % VEC_LANES;

	if (dtype == ZI_DTYPE_F16)
		widen_loop(target, source, whole, ZI_DTYPE_F16);
	else if (dtype == ZI_DTYPE_BF16)
		widen_loop(target, source, whole, ZI_DTYPE_BF16);
	if (whole < element_count)
		kern_widen_ref(target + whole, (const uint16_t *)source + whole,
		               element_count - whole, dtype);
}

void VEC_NAME(kern_narrow)(void *target, const float *source, uint64_t element_count,
                           enum zi_dtype dtype)
{
	uint64_t whole = dtype == ZI_DTYPE_F32 ? 0 : element_count - element_count % VEC_LANES;

	if (dtype == ZI_DTYPE_F16)
		narrow_loop(target, source, whole, ZI_DTYPE_F16);
	else if (dtype == ZI_DTYPE_BF16)
		narrow_loop(target, source, whole, ZI_DTYPE_BF16);
	if (whole < element_count)
		kern_narrow_ref((uint16_t *)target + whole, source + whole, element_count - whole,
		                dtype);
}
