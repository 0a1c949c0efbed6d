/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of squares in AVX2: norm_simd.h over simd_avx2.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx2.h"

#include "kernels/norm_simd.h"
#endif
