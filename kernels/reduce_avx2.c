/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks with AVX2: the template reduce_simd.h over the vectors of simd_avx2.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx2.h"

#include "kernels/reduce_simd.h"
#endif
