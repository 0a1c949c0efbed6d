/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of squares in AVX-512: norm_simd.h over simd_avx512.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx512.h"

#include "kernels/norm_simd.h"
#endif
