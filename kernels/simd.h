/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/: what the templates share, in terms of simd_avx2.h or simd_avx512.h, one of
 * which is included before. Floor 1.
 *
 * How the templates are specialised: every function is inlined into its caller, and dtypes,
 * optimizers and rank counts are constants there, so that a branch on them costs nothing and each
 * combination becomes a loop of its own without branches. Elements beyond the last whole vector are
 * left to the reference, which has the same bits by definition.
 */
#pragma once

#include "common/base/assert.h"
#include "common/base/types.h"

/* @dtype is a constant at every call. */
VEC_INLINE vec vec_load(const void *source, uint64_t index, enum zi_dtype dtype)
{
	if (dtype == ZI_DTYPE_F32)
		return vec_load_f32((const float *)source + index);
	if (dtype == ZI_DTYPE_F16)
		return vec_load_f16((const uint16_t *)source + index);
	return vec_load_bf16((const uint16_t *)source + index);
}

/*
 * Ask for what the loop will need this many elements later. A step reads up to ten streams, more
 * than the hardware follows well: with one thread on Zen 5 the step over bf16 gradients of two
 * ranks went from 0.88 to 1.11 of the STREAM triad (256 elements: 1.00; 1024: 1.10), a param copy
 * from 0.87 to 1.07. Beyond the end of an array a prefetch does nothing.
 */
#define VEC_AHEAD_ELEMENTS 512u

VEC_INLINE void vec_prefetch(const void *source, uint64_t index, enum zi_dtype dtype)
{
	uint64_t width = dtype == ZI_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);

	_mm_prefetch((const char *)source + (index + VEC_AHEAD_ELEMENTS) * width, _MM_HINT_T0);
}

/* Load one of several streams. */
VEC_INLINE vec vec_fetch(const void *source, uint64_t index, enum zi_dtype dtype)
{
	vec_prefetch(source, index, dtype);
	return vec_load(source, index, dtype);
}

/* Rounds once. */
VEC_INLINE void vec_store(void *target, uint64_t index, vec x, enum zi_dtype dtype)
{
	if (dtype == ZI_DTYPE_F32)
		vec_store_f32((float *)target + index, x);
	else if (dtype == ZI_DTYPE_F16)
		vec_store_f16((uint16_t *)target + index, x);
	else
		vec_store_bf16((uint16_t *)target + index, vec_round_bf16(x));
}

#define VEC_RANKS_ANY 0u

/* The tree over 1 … 4 sources, written out. @ranks is a constant where speed matters. */
VEC_INLINE vec vec_tree_few(const void *const *sources, uint32_t ranks, uint64_t index,
                            enum zi_dtype dtype)
{
	vec low, high;

	low = vec_fetch(sources[0], index, dtype);
	if (ranks == 1)
		return low;
	low = vec_add(low, vec_fetch(sources[1], index, dtype));
	if (ranks == 2)
		return low;
	high = vec_fetch(sources[2], index, dtype);
	if (ranks == 4)
		high = vec_add(high, vec_fetch(sources[3], index, dtype));
	return vec_add(low, high);
}

/* At most this many partial sums wait at once: one per bit of a number of fours. */
#define VEC_TREE_DEPTH 5u

static_assert(ZI_WORLD_MAX / 4 < 1u << VEC_TREE_DEPTH, "the stack holds the tree of any world");

/*
 * The tree over any number of ranks, in rank order and without recursion: a binary counter over
 * fours (over single ranks it branches four times as often: half as fast with 8 ranks). After k
 * fours the stack holds one sum for each one bit of k, the largest run of ranks first; a new four
 * joins as many of them as the counter carries. The remaining runs of n leaves and, last, the tree
 * of its one to three odd ranks, are joined from the right: b1 + (b2 + (b3 + …)), where b1 > b2 > …
 * are the binary digits of n. That is the tree of docs/ARITHMETIC.md: if n is a power of two there
 * is one run, complete; otherwise b1 is the largest power of two below n, and the rest follows by
 * induction.
 */
VEC_INLINE vec vec_tree_any(const void *const *sources, uint32_t rank_count, uint64_t index,
                            enum zi_dtype dtype)
{
	const uint32_t fours = rank_count / 4;
	const uint32_t odd = rank_count % 4;
	vec partial[VEC_TREE_DEPTH];
	uint32_t depth = 0;
	vec sum;

	for (uint32_t four = 0; four < fours; four++) {
		sum = vec_tree_few(sources + (uint64_t)4 * four, 4, index, dtype);
		for (uint32_t carry = four; carry & 1; carry >>= 1)
			sum = vec_add(partial[--depth], sum);
		partial[depth++] = sum;
	}
	if (odd)
		sum = vec_tree_few(sources + (uint64_t)4 * fours, odd, index, dtype);
	else
		sum = partial[--depth];
	while (depth)
		sum = vec_add(partial[--depth], sum);
	return sum;
}

/* @ranks: 1, 2, 4 (constants), or VEC_RANKS_ANY for @rank_count of them. */
VEC_INLINE vec vec_tree(const void *const *sources, uint32_t ranks, uint32_t rank_count,
                        uint64_t index, enum zi_dtype dtype)
{
	if (ranks == VEC_RANKS_ANY)
		return vec_tree_any(sources, rank_count, index, dtype);
	return vec_tree_few(sources, ranks, index, dtype);
}

/* The constant rank counts keep their pointers in registers: a store of the loop could otherwise
 * change the caller's array, as far as the compiler knows. */
#define VEC_RANKS_HELD 4u

VEC_INLINE const void *const *vec_sources_hold(const void **ret_held, const void *const *sources,
                                               uint32_t ranks)
{
	if (ranks == VEC_RANKS_ANY)
		return sources;
	for (uint32_t rank = 0; rank < ranks; rank++)
		ret_held[rank] = sources[rank];
	return ret_held;
}

/* Where the sources go on at @index; @ret_rest has room for ZI_WORLD_MAX. */
static inline void vec_sources_rest(const void **ret_rest, const void *const *sources,
                                    uint32_t rank_count, uint64_t index, enum zi_dtype dtype)
{
	uint64_t width = dtype == ZI_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);

	assert(rank_count <= ZI_WORLD_MAX);
	for (uint32_t rank = 0; rank < rank_count; rank++)
		ret_rest[rank] = (const char *)sources[rank] + index * width;
}
