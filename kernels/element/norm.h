/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sum of squares of a block, and the tree over blocks (docs/ARITHMETIC.md, "Norm and finite
 * check"). Floor 1.
 *
 * A block has KERN_LANES lanes: lane j adds the squares of the elements j, j + 16, j + 32, … in
 * this order. The product of two fp32 is exact in f64 (48 bits of 53, and no exponent leaves f64's
 * range), so it does not matter whether a version fuses it with the addition.
 */
#pragma once

#include "kernels/element/cast.h"

#define KERN_LANES 16u /* of the norm, and what a run of the optimizer is a multiple of */

/* @lane: the sum so far. */
KERN_ELEMENT double kern_norm_add(double lane, float x)
{
	return kern_f64_add(lane, kern_f64_mul((double)x, (double)x));
}

/* lane: (KERN_LANES,), overwritten. Return: the sum of the block. */
KERN_ELEMENT double kern_norm_join_lanes(double *lane)
{
	for (uint32_t width = KERN_LANES / 2; width > 0; width /= 2)
		for (uint32_t j = 0; j < width; j++)
			lane[j] = kern_f64_add(lane[j], lane[j + width]);
	return kern_canonical_f64(lane[0]);
}

/* node: (count,), overwritten; count >= 1. Level by level, as tree.h proves. The sums of all
 * aligned groups of 2^k nodes are the nodes of the same tree. */
KERN_ELEMENT double kern_norm_join_nodes(double *node, uint64_t count)
{
	for (uint64_t width = 1; width < count; width *= 2)
		for (uint64_t i = 0; i + width < count; i += 2 * width)
			node[i] = kern_f64_add(node[i], node[i + width]);
	return kern_canonical_f64(node[0]);
}
