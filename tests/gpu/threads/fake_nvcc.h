/* SPDX-License-Identifier: Apache-2.0 */
/* Included before a .cu file that is compiled as C++ for the CPU: the words of CUDA that
 * examples/gpt/gpu uses. Blocks run one after the other, so shared memory is static. */
#pragma once

#include "tests/gpu/threads/fake_threads.h"

#define __CUDACC__    1
#define __CUDA_ARCH__ 800
#define __host__
#define __device__
#define __global__
#define __shared__ static
#define threadIdx  fake_thread
#define blockIdx   fake_block
#define blockDim   fake_block_shape
#define gridDim    fake_grid_shape

static inline void __syncthreads(void)
{
	fake_syncthreads();
}

static inline void __syncwarp(unsigned mask)
{
	fake_syncwarp(mask);
}

static inline float __shfl_sync(unsigned mask, float value, unsigned source, unsigned width)
{
	return fake_shuffle(mask, value, source % width);
}

/* Lanes that have no source keep their own value. */
static inline float __shfl_down_sync(unsigned mask, float value, unsigned delta, unsigned width)
{
	unsigned lane = fake_thread.x % width;

	return fake_shuffle(mask, value, lane + delta < width ? lane + delta : lane);
}
