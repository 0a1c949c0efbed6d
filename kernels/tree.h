/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/: the tree of docs/ARITHMETIC.md over one element of every rank. Floor 1.
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

#include "common/base/assert.h"
#include "common/base/types.h"
#include "kernels/cast.h"
#include "kernels/table.h"

static inline float kern_widen_at(const void *source, uint64_t index, enum zi_dtype dtype)
{
	switch (dtype) {
	case ZI_DTYPE_F32:
		return ((const float *)source)[index];
	case ZI_DTYPE_F16:
		return kern_f16_to_f32(((const uint16_t *)source)[index]);
	case ZI_DTYPE_BF16:
		return kern_bf16_to_f32(((const uint16_t *)source)[index]);
	default:
		assert(false && "a dtype of gradients");
		return 0.0f;
	}
}

/* Canonical, rounded once. */
static inline void kern_narrow_at(void *target, uint64_t index, float value, enum zi_dtype dtype)
{
	value = kern_canonical(value);
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
		assert(false && "a dtype that is reduced");
	}
}

static inline float kern_tree_at(const void *const *sources, uint32_t rank_count, uint64_t index,
                                 enum zi_dtype dtype)
{
	float node[ZI_WORLD_MAX];

	for (uint32_t rank = 0; rank < rank_count; rank++)
		node[rank] = kern_widen_at(sources[rank], index, dtype);
	for (uint32_t width = 1; width < rank_count; width *= 2)
		for (uint32_t i = 0; i + width < rank_count; i += 2 * width)
			node[i] += node[i + width];
	return node[0];
}
