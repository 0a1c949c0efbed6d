/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element functions: the arithmetic of one element, for C, C++ and CUDA. The reference on the CPU
 * (the files *_ref.c), the kernels of GPUs (cuda/) and the fake GPU of the tests call the same
 * functions, so all of them give the same bits (docs/ARITHMETIC.md). Floor 1.
 *
 * An element function makes each operation on floats by a function of this header. On a GPU that is
 * an intrinsic, which rounds to nearest, keeps denormals, and is never fused with another one. On a
 * CPU it is plain C, compiled with -ffp-contract=off. A fused multiply-add happens exactly where
 * kern_f32_fma() is written.
 */
#pragma once

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define KERN_ELEMENT static inline __attribute__((always_inline)) __host__ __device__
#else
#define KERN_ELEMENT static inline
#endif

#ifdef __CUDA_ARCH__

/* The CPU's callers check their arguments, and so does whoever launches a kernel. */
#define kern_element_assert(condition) ((void)0)

KERN_ELEMENT float kern_f32_add(float a, float b)
{
	return __fadd_rn(a, b);
}

KERN_ELEMENT float kern_f32_mul(float a, float b)
{
	return __fmul_rn(a, b);
}

KERN_ELEMENT float kern_f32_div(float a, float b)
{
	return __fdiv_rn(a, b);
}

KERN_ELEMENT float kern_f32_sqrt(float a)
{
	return __fsqrt_rn(a);
}

KERN_ELEMENT float kern_f32_fma(float a, float b, float c)
{
	return __fmaf_rn(a, b, c);
}

KERN_ELEMENT double kern_f64_add(double a, double b)
{
	return __dadd_rn(a, b);
}

KERN_ELEMENT double kern_f64_mul(double a, double b)
{
	return __dmul_rn(a, b);
}

/* @value: not 0. */
KERN_ELEMENT uint32_t kern_leading_zeros(uint32_t value)
{
	return (uint32_t)__clz((int)value);
}

#else

#define kern_element_assert(condition) assert(condition)

KERN_ELEMENT float kern_f32_add(float a, float b)
{
	return a + b;
}

KERN_ELEMENT float kern_f32_mul(float a, float b)
{
	return a * b;
}

KERN_ELEMENT float kern_f32_div(float a, float b)
{
	return a / b;
}

KERN_ELEMENT float kern_f32_sqrt(float a)
{
	return sqrtf(a);
}

/* a × b + c, rounded once. */
KERN_ELEMENT float kern_f32_fma(float a, float b, float c)
{
	return fmaf(a, b, c);
}

KERN_ELEMENT double kern_f64_add(double a, double b)
{
	return a + b;
}

KERN_ELEMENT double kern_f64_mul(double a, double b)
{
	return a * b;
}

/* @value: not 0. */
KERN_ELEMENT uint32_t kern_leading_zeros(uint32_t value)
{
	return (uint32_t)__builtin_clz(value);
}

#endif
