/* SPDX-License-Identifier: Apache-2.0 */
/* The fused step in AVX-512: optim_step_simd.h over simd_avx512.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx512.h"

#include "kernels/optim_step_simd.h"
#endif
