/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element functions: the arithmetic of one element, or of one row, for C and for CUDA. The layers
 * on the CPU, the kernels of gpu/layers.cu and the fake GPU of the tests call the same functions,
 * so all of them give the same bits. Neither compiler may fuse a product and a sum:
 * -ffp-contract=off and -fmad=false.
 */
#pragma once

#ifdef __CUDACC__
#define GPT_ELEMENT static inline __host__ __device__
#else
/* Always: a loop that is compiled for several instruction sets (vector.h) takes it in. */
#define GPT_ELEMENT static inline __attribute__((always_inline))
#endif
