/* SPDX-License-Identifier: Apache-2.0 */
/* Element conversions in AVX2: cast_simd.h over simd_avx2.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx2.h"

#include "kernels/cast_simd.h"
#endif
