/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sum over ranks along the fixed binary tree (docs/ARITHMETIC.md, "Reduction over ranks"). Floor 1.
 */
#pragma once

#include "common/base/types.h"

struct kern_reduce_options {
	enum zi_dtype dtype; /* of the sources, and of kern_reduce()'s target */
	float average;       /* multiplied after the tree, before the one rounding */
};

/* target: (n,) of dtype = round(tree(sources) × average). target may be one of the sources (each
 * element is read from every source before it is written). sources: rank_count pointers to (n,). */
void kern_reduce(void *target, const void *const *sources, uint32_t rank_count,
                 uint64_t element_count, const struct kern_reduce_options *options);

/* accum: (n,) f32 = tree(sources) when @is_first, else accum + tree(sources). No average here. */
void kern_reduce_accumulate(float *accum, const void *const *sources, uint32_t rank_count,
                            uint64_t element_count, bool is_first, enum zi_dtype dtype);

/* target: (n,) of dtype = round(accum × average). */
void kern_reduce_finish(void *target, const float *accum, uint64_t element_count,
                        const struct kern_reduce_options *options);
