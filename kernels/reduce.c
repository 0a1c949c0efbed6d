/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sum over ranks: the public functions (docs/ARITHMETIC.md, "Reduction over ranks"). Floor 1.
 */
#include "kernels/reduce.h"
#include "common/base/assert.h"
#include "kernels/table.h"

/**
 * kern_reduce() - sum along the tree, average, round once
 * @target: (element_count,) of @options->dtype; may be exactly one of the sources
 * @sources: rank_count pointers to (element_count,) of @options->dtype, in rank order
 * @rank_count: 1 … ZI_WORLD_MAX
 * @element_count: any
 * @options: dtype (F32, F16, BF16) and the average factor
 *
 * A NaN comes out as the positive quiet one without payload. Context: any thread.
 */
void kern_reduce(void *target, const void *const *sources, uint32_t rank_count,
                 uint64_t element_count, const struct kern_reduce_options *options)
{
	const struct kern_table *table = kern_table();
	kern_env saved;

	assert(rank_count > 0);
	assert(rank_count <= ZI_WORLD_MAX);

	kern_env_enter(&saved);
	table->reduce(target, sources, rank_count, element_count, options);
	kern_env_leave(&saved);
}

/**
 * kern_reduce_accumulate() - add one micro-batch's tree sum, unrounded
 * @accum: (element_count,) f32; written when @is_first, else added to
 * @sources: rank_count pointers to (element_count,) of @dtype, in rank order
 * @rank_count: 1 … ZI_WORLD_MAX
 * @element_count: any
 * @is_first: this is micro-batch 0
 * @dtype: of the sources (F32, F16, BF16)
 *
 * A NaN comes out as the positive quiet one without payload. Context: any thread.
 */
void kern_reduce_accumulate(float *accum, const void *const *sources, uint32_t rank_count,
                            uint64_t element_count, bool is_first, enum zi_dtype dtype)
{
	const struct kern_table *table = kern_table();
	kern_env saved;

	assert(rank_count > 0);
	assert(rank_count <= ZI_WORLD_MAX);

	kern_env_enter(&saved);
	table->accumulate(accum, sources, rank_count, element_count, is_first, dtype);
	kern_env_leave(&saved);
}

/**
 * kern_reduce_finish() - average the accumulator, round once
 * @target: (element_count,) of @options->dtype; may be @accum when that is F32
 * @accum: (element_count,) f32
 * @element_count: any
 * @options: dtype of @target and the average factor
 *
 * Context: any thread.
 */
void kern_reduce_finish(void *target, const float *accum, uint64_t element_count,
                        const struct kern_reduce_options *options)
{
	const struct kern_table *table = kern_table();
	kern_env saved;

	kern_env_enter(&saved);
	table->finish(target, accum, element_count, options);
	kern_env_leave(&saved);
}
