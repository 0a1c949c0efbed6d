/* SPDX-License-Identifier: Apache-2.0 */
/* Element conversions with AVX-512: the template cast_simd.h over the vectors of simd_avx512.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx512.h"

#include "kernels/cast_simd.h"
#endif
