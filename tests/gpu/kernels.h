/* SPDX-License-Identifier: Apache-2.0 */
/* Host versions of kernels, found by name. */
#pragma once

#include <stdint.h>

#include "tests/gpu/fake_gpu.h"

/* The kernels that every fake GPU knows. */
extern const struct fake_kernel fake_kernels[];
extern const uint32_t fake_kernel_count;
/* Those of examples/gpt. */
extern const struct fake_kernel fake_gpt_kernels[];
extern const uint32_t fake_gpt_kernel_count;
/* Those of kernels/cuda.h, in the order of enum kern_cuda_kernel. */
extern const struct fake_kernel fake_state_kernels[];
extern const uint32_t fake_state_kernel_count;
