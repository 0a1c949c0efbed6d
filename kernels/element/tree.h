/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of arrays of any dtype of gradients, and the tree of docs/ARITHMETIC.md over one element
 * of every rank. Floor 1.
 *
 * The definition splits n leaves at h, the largest power of two below n. Adding neighbours level by
 * level gives that tree: with width w = 1, 2, 4, …, node i (a multiple of 2w) takes in node i + w
 * if there is one. Proof by induction over n that [0, n) is joined as the definition says: the last
 * level has w = h (the largest power of two below n), and joins node 0 = [0, h) and node
 * h = [h, n). Before it, both sides were joined by themselves, as 2w ≤ h divides h: no pair
 * straddles h, and seen from h the right side is [0, n − h), with the same pairs. A side of one
 * leaf has no partner and rises unchanged.
 */
#pragma once

#include "common/base/types.h"
#include "kernels/element/cast.h"

/* Partial sums that kern_tree_push() holds at most: one per binary digit of a number of ranks. */
#define KERN_TREE_DEPTH 7u

KERN_ELEMENT float kern_widen_at(const void *source, uint64_t index, enum zi_dtype dtype)
{
	switch (dtype) {
	case ZI_DTYPE_F32:
		return ((const float *)source)[index];
	case ZI_DTYPE_F16:
		return kern_f16_to_f32(((const uint16_t *)source)[index]);
	case ZI_DTYPE_BF16:
		return kern_bf16_to_f32(((const uint16_t *)source)[index]);
	default:
		kern_element_assert(false && "a dtype of gradients");
		return 0.0f;
	}
}

/* Rounded once; a NaN as the conversion leaves it. */
KERN_ELEMENT void kern_round_at(void *target, uint64_t index, float value, enum zi_dtype dtype)
{
	switch (dtype) {
	case ZI_DTYPE_F32:
		((float *)target)[index] = value;
		return;
	case ZI_DTYPE_F16:
		((uint16_t *)target)[index] = kern_f32_to_f16(value);
		return;
	case ZI_DTYPE_BF16:
		((uint16_t *)target)[index] = kern_f32_to_bf16(value);
		return;
	default:
		kern_element_assert(false && "a dtype that is reduced");
	}
}

/* Canonical, rounded once. */
KERN_ELEMENT void kern_narrow_at(void *target, uint64_t index, float value, enum zi_dtype dtype)
{
	kern_round_at(target, index, kern_canonical(value), dtype);
}

KERN_ELEMENT float kern_tree_at(const void *const *sources, uint32_t rank_count, uint64_t index,
                                enum zi_dtype dtype)
{
	float node[ZI_WORLD_MAX];

	for (uint32_t rank = 0; rank < rank_count; rank++)
		node[rank] = kern_widen_at(sources[rank], index, dtype);
	for (uint32_t width = 1; width < rank_count; width *= 2)
		for (uint32_t i = 0; i + width < rank_count; i += 2 * width)
			node[i] = kern_f32_add(node[i], node[i + width]);
	return node[0];
}

/*
 * The same tree, one rank after the other, for memory that holds KERN_TREE_DEPTH numbers and not
 * all: simd.h has the proof. After n ranks @partial has a sum for each one bit of n, in its place.
 */
KERN_ELEMENT void kern_tree_push(float *partial, uint32_t rank, float value)
{
	uint32_t bit = 0;

	for (; rank >> bit & 1; bit++)
		value = kern_f32_add(partial[bit], value);
	partial[bit] = value;
}

/* What the sums of all ranks add up to. @rank_count: at least 1. */
KERN_ELEMENT float kern_tree_end(const float *partial, uint32_t rank_count)
{
	uint32_t bit = 0;
	float sum;

	while (!(rank_count >> bit & 1))
		bit++;
	sum = partial[bit];
	for (bit++; bit < KERN_TREE_DEPTH; bit++)
		if (rank_count >> bit & 1)
			sum = kern_f32_add(partial[bit], sum);
	return sum;
}

/* Of an accumulator: the sum of the first micro-batch is written, those of later ones are added. */
KERN_ELEMENT void kern_accumulate_at(float *accum, uint64_t index, float sum, bool is_first)
{
	accum[index] = kern_canonical(is_first ? sum : kern_f32_add(accum[index], sum));
}
