/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sum over ranks: the definition (docs/ARITHMETIC.md, "Reduction over ranks"). Floor 1.
 */
#include "kernels/element/tree.h"
#include "kernels/table.h"

/* kern_reduce() element by element. */
void kern_reduce_ref(void *target, const void *const *sources, uint32_t rank_count,
                     uint64_t element_count, const struct kern_reduce_options *options)
{
	for (uint64_t i = 0; i < element_count; i++) {
		float sum = kern_tree_at(sources, rank_count, i, options->dtype);

		kern_narrow_at(target, i, kern_f32_mul(sum, options->average), options->dtype);
	}
}

/* kern_reduce_accumulate() element by element. */
void kern_accumulate_ref(float *accum, const void *const *sources, uint32_t rank_count,
                         uint64_t element_count, bool is_first, enum zi_dtype dtype)
{
	for (uint64_t i = 0; i < element_count; i++) {
		float sum = kern_tree_at(sources, rank_count, i, dtype);

		kern_accumulate_at(accum, i, sum, is_first);
	}
}

/* kern_reduce_finish() element by element. */
void kern_finish_ref(void *target, const float *accum, uint64_t element_count,
                     const struct kern_reduce_options *options)
{
	for (uint64_t i = 0; i < element_count; i++)
		kern_narrow_at(target, i, kern_f32_mul(accum[i], options->average), options->dtype);
}
