/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sum of squares of a block: the definition (docs/ARITHMETIC.md, "Norm and finite check"). Floor 1.
 *
 * The product of two fp32 is exact in f64 (48 bits of 53, and no exponent leaves f64's range), so
 * it does not matter whether a version fuses it with the addition.
 */
#include "kernels/table.h"
#include "kernels/tree.h"

/* kern_norm_blocks() element by element. */
void kern_norm_blocks_ref(double *block_sums, const void *source, uint64_t element_count,
                          float unscale, enum zi_dtype dtype)
{
	for (uint64_t block = 0; block < element_count / ZI_BLOCK_ELEMENTS; block++) {
		double lane[KERN_LANES] = { 0.0 };

		for (uint64_t i = 0; i < ZI_BLOCK_ELEMENTS; i++) {
			float x = kern_widen_at(source, block * ZI_BLOCK_ELEMENTS + i, dtype);

			x *= unscale;
			lane[i % KERN_LANES] += (double)x * (double)x;
		}
		for (uint32_t width = KERN_LANES / 2; width > 0; width /= 2)
			for (uint32_t j = 0; j < width; j++)
				lane[j] += lane[j + width];
		block_sums[block] = kern_canonical_f64(lane[0]);
	}
}
