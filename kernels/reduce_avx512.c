/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks in AVX-512: reduce_simd.h over simd_avx512.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx512.h"

#include "kernels/reduce_simd.h"
#endif
