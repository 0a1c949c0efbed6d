/* SPDX-License-Identifier: Apache-2.0 */
/* Joining the ranks' elements in AVX2: combine_simd.h over simd_avx2.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx2.h"

#include "kernels/combine_simd.h"
#endif
