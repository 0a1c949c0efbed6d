/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Squared norm in fixed blocks and the finite check it contains (docs/ARITHMETIC.md). Floor 1.
 */
#pragma once

#include "common/base/types.h"

/* block_sums: (element_count / ZI_BLOCK_ELEMENTS,) f64, the sum of squares of each block of
 * widen(source) × unscale. Not finite when an element is not. source: (n,) of @dtype, whole
 * blocks. */
void kern_norm_blocks(double *block_sums, const void *source, uint64_t element_count, float unscale,
                      enum zi_dtype dtype);
/* The tree over the global index: consumes block_sums (overwritten). 0 for block_count 0. */
double kern_norm_join(double *block_sums, uint64_t block_count);
