/* SPDX-License-Identifier: Apache-2.0 */
/* Element conversions with AVX2: the template cast_simd.h over the vectors of simd_avx2.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx2.h"

#include "kernels/cast_simd.h"
#endif
