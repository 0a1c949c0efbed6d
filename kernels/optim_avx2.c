/* SPDX-License-Identifier: Apache-2.0 */
/* The fused step in AVX2: optim_simd.h over simd_avx2.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx2.h"

#include "kernels/optim_simd.h"
#endif
