/* SPDX-License-Identifier: Apache-2.0 */
/* Copying to several places in AVX-512: copy_simd.h over simd_avx512.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx512.h"

#include "kernels/copy_simd.h"
#endif
