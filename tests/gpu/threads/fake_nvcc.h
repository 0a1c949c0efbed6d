/* SPDX-License-Identifier: Apache-2.0 */
/* Included before a .cu file that is compiled as C++ for the CPU: the words of CUDA that
 * examples/gpt/gpu and kernels/cuda use. Blocks run one after the other, so shared memory is
 * static. */
#pragma once

#include <math.h>

#include "tests/gpu/threads/fake_threads.h"

#define __CUDACC__    1
#define __CUDA_ARCH__ 800
#define __host__
#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(threads)
#define threadIdx fake_thread
#define blockIdx  fake_block
#define blockDim  fake_block_shape
#define gridDim   fake_grid_shape

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

/* An access of 16 bytes. */
struct __attribute__((aligned(16), may_alias)) uint4 {
	unsigned x, y, z, w;
};

static inline float __fadd_rn(float a, float b)
{
	return a + b;
}

static inline float __fmul_rn(float a, float b)
{
	return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
	return a / b;
}

static inline float __fsqrt_rn(float a)
{
	return sqrtf(a);
}

static inline float __fmaf_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}

static inline double __dadd_rn(double a, double b)
{
	return a + b;
}

static inline double __dmul_rn(double a, double b)
{
	return a * b;
}

static inline int __clz(int value)
{
	return __builtin_clz((unsigned)value);
}
