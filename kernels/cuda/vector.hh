/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/cuda: KERN_CUDA_VECTOR elements that a thread loads, computes and stores at
 * once. They lie side by side, in accesses of 16 bytes. Elements at the end of an array that fill
 * no vector go by the functions of element/items.h.
 */
#pragma once

#include "kernels/element/items.h"

#define VECTOR KERN_CUDA_VECTOR
#define WORDS  4u /* of 32 bits, in an access */
/* A kernel takes its arguments where the launch left them, without a copy on the thread's stack. */
#define KERNEL(name, type)                                              \
	extern "C" __global__ void __launch_bounds__(KERN_CUDA_THREADS) \
		kern_cuda_##name(const __grid_constant__ struct type args)
/* What seldom runs takes no registers from what does. */
#define SELDOM __device__ static __attribute__((noinline))
#define ALWAYS __device__ static inline __attribute__((always_inline))

/* end_NAME(args, index): the elements from @index on, which fill no vector. */
#define END(name)                                                                          \
	SELDOM void end_##name(const struct kern_cuda_##name##_args &args, uint64_t index) \
	{                                                                                  \
		for (uint64_t i = index; i < args.element_count; i++)                      \
			kern_cuda_##name##_item(&args, i);                                 \
	}

struct vector {
	float at[VECTOR];
};

struct words {
	uint32_t at[WORDS];
};

ALWAYS uint64_t thread_number()
{
	return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
}

ALWAYS uint64_t thread_count()
{
	return gridDim.x * (uint64_t)blockDim.x;
}

/* The first elements of all vectors of this thread, those that are not whole included. */
#define each_vector(i, count) \
	for (uint64_t i = thread_number() * VECTOR; i < (count); i += thread_count() * VECTOR)

ALWAYS struct words words_load(const void *source)
{
	const uint4 four = *(const uint4 *)source;
	struct words words = { { four.x, four.y, four.z, four.w } };

	return words;
}

ALWAYS void words_store(void *target, const struct words &words)
{
	uint4 four;

	four.x = words.at[0];
	four.y = words.at[1];
	four.z = words.at[2];
	four.w = words.at[3];
	*(uint4 *)target = four;
}

/* Element @i of 16 bits. */
ALWAYS uint16_t half_of(const struct words &words, unsigned i)
{
	return (uint16_t)(words.at[i / 2] >> i % 2 * 16);
}

ALWAYS void half_put(struct words &words, unsigned i, uint16_t half)
{
	if (i % 2)
		words.at[i / 2] |= (uint32_t)half << 16;
	else
		words.at[i / 2] = half;
}

/* 32-bit elements from @index on, as bits. */
ALWAYS void wide_load(const void *source, uint64_t index, uint32_t (&bits)[VECTOR])
{
	const struct words low = words_load((const uint32_t *)source + index);
	const struct words high = words_load((const uint32_t *)source + index + WORDS);

#pragma unroll
	for (unsigned i = 0; i < WORDS; i++) {
		bits[i] = low.at[i];
		bits[WORDS + i] = high.at[i];
	}
}

ALWAYS void wide_store(void *target, uint64_t index, const uint32_t (&bits)[VECTOR])
{
	struct words low, high;

#pragma unroll
	for (unsigned i = 0; i < WORDS; i++) {
		low.at[i] = bits[i];
		high.at[i] = bits[WORDS + i];
	}
	words_store((uint32_t *)target + index, low);
	words_store((uint32_t *)target + index + WORDS, high);
}

template <enum zi_dtype dtype> ALWAYS struct vector vector_load(const void *source, uint64_t index)
{
	struct vector vector;

	if constexpr (dtype == ZI_DTYPE_F32) {
		uint32_t bits[VECTOR];

		wide_load(source, index, bits);
#pragma unroll
		for (unsigned i = 0; i < VECTOR; i++)
			vector.at[i] = kern_f32_from_bits(bits[i]);
	} else {
		const struct words words = words_load((const uint16_t *)source + index);

#pragma unroll
		for (unsigned i = 0; i < VECTOR; i++)
			vector.at[i] = dtype == ZI_DTYPE_F16 ? kern_f16_to_f32(half_of(words, i))
			                                     : kern_bf16_to_f32(half_of(words, i));
	}
	return vector;
}

/* Each element is rounded once; a NaN as the conversion leaves it. */
template <enum zi_dtype dtype>
ALWAYS void vector_store(void *target, uint64_t index, const struct vector &vector)
{
	if constexpr (dtype == ZI_DTYPE_F32) {
		uint32_t bits[VECTOR];

#pragma unroll
		for (unsigned i = 0; i < VECTOR; i++)
			bits[i] = kern_f32_bits(vector.at[i]);
		wide_store(target, index, bits);
	} else {
		struct words words;

#pragma unroll
		for (unsigned i = 0; i < VECTOR; i++)
			half_put(words, i,
			         dtype == ZI_DTYPE_F16 ? kern_f32_to_f16(vector.at[i])
			                               : kern_f32_to_bf16(vector.at[i]));
		words_store((uint16_t *)target + index, words);
	}
}
