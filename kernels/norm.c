/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norm and finite check: the public functions (docs/ARITHMETIC.md, "Norm and finite check").
 * Floor 1.
 */
#include "kernels/norm.h"
#include "common/base/assert.h"
#include "kernels/table.h"

/**
 * kern_norm_blocks() - sum of squares of each block of ZI_BLOCK_ELEMENTS
 * @block_sums: (element_count / ZI_BLOCK_ELEMENTS,) f64, written
 * @source: (element_count,) of @dtype, beginning at a block of the global index
 * @element_count: whole blocks
 * @unscale: multiplied onto each element in fp32 first
 * @dtype: of @source (F32, F16, BF16)
 *
 * Not finite exactly where a product with @unscale is not: squares of fp32 cannot overflow f64. A
 * NaN comes out as the positive quiet one. Context: any thread.
 */
void kern_norm_blocks(double *block_sums, const void *source, uint64_t element_count, float unscale,
                      enum zi_dtype dtype)
{
	const struct kern_table *table = kern_table();
	kern_env saved;

	assert(element_count % ZI_BLOCK_ELEMENTS == 0);

	kern_env_enter(&saved);
	table->norm_blocks(block_sums, source, element_count, unscale, dtype);
	kern_env_leave(&saved);
}

/* Out of line, so that no operation is moved across the environment's borders. */
static __attribute__((noinline)) double join(double *node, uint64_t count)
{
	return kern_norm_join_nodes(node, count);
}

/**
 * kern_norm_join() - join block sums along the tree over the global index
 * @block_sums: (block_count,) f64, consumed: its contents are undefined afterwards
 * @block_count: any
 *
 * Return: the sum of squares, 0 for no blocks. Context: any thread.
 */
double kern_norm_join(double *block_sums, uint64_t block_count)
{
	kern_env saved;
	double sum;

	if (block_count == 0)
		return 0.0;
	kern_env_enter(&saved);
	sum = join(block_sums, block_count);
	kern_env_leave(&saved);
	return sum;
}
