/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sum of squares of a block: the definition (docs/ARITHMETIC.md, "Norm and finite check"). Floor 1.
 */
#include "kernels/element/tree.h"
#include "kernels/table.h"

/* kern_norm_blocks() element by element. */
void kern_norm_blocks_ref(double *block_sums, const void *source, uint64_t element_count,
                          float unscale, enum zi_dtype dtype)
{
	for (uint64_t block = 0; block < element_count / ZI_BLOCK_ELEMENTS; block++) {
		double lane[KERN_LANES] = { 0.0 };

		for (uint64_t i = 0; i < ZI_BLOCK_ELEMENTS; i++) {
			float x = kern_widen_at(source, block * ZI_BLOCK_ELEMENTS + i, dtype);

			lane[i % KERN_LANES] =
				kern_norm_add(lane[i % KERN_LANES], kern_f32_mul(x, unscale));
		}
		block_sums[block] = kern_norm_join_lanes(lane);
	}
}
