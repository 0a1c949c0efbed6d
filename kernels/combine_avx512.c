/* SPDX-License-Identifier: Apache-2.0 */
/* Joining the ranks' elements in AVX-512: combine_simd.h over simd_avx512.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx512.h"

#include "kernels/combine_simd.h"
#endif
