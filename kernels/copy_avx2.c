/* SPDX-License-Identifier: Apache-2.0 */
/* Copying to several places in AVX2: copy_simd.h over simd_avx2.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx2.h"

#include "kernels/copy_simd.h"
#endif
