/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kernels/: sums over ranks in vectors; see simd.h, reduce.c. Floor 1. */
#pragma once

#include "kernels/simd.h"

/* What becomes of a tree sum. */
enum reduce_end {
	REDUCE_ROUND, /* × average, rounded to the sources' dtype */
	REDUCE_SET,   /* the accumulator, fp32 */
	REDUCE_ADD,   /* added to the accumulator, fp32 */
};

struct reduce_work {
	void *target;
	const void *const *sources;
	uint32_t rank_count;
	uint64_t count; /* whole vectors */
	float average;
};

VEC_INLINE void reduce_loop(const struct reduce_work *work, enum reduce_end end,
                            enum zi_dtype dtype, uint32_t ranks)
{
	const void *held[VEC_RANKS_HELD];
	const void *const *sources = vec_sources_hold(held, work->sources, ranks);
	const uint64_t count = work->count;
	void *target = work->target;
	vec average = vec_set(work->average);

	for (uint64_t i = 0; i < count; i += VEC_LANES) {
		vec sum = vec_tree(sources, ranks, work->rank_count, i, dtype);

		if (end == REDUCE_ROUND)
			sum = vec_mul(sum, average);
		if (end == REDUCE_ADD)
			sum = vec_add(vec_load(target, i, ZI_DTYPE_F32), sum);
		sum = vec_canonical(sum);
		vec_store(target, i, sum, end == REDUCE_ROUND ? dtype : ZI_DTYPE_F32);
	}
}

VEC_INLINE void reduce_ranks(const struct reduce_work *work, enum reduce_end end,
                             enum zi_dtype dtype)
{
	if (work->rank_count == 1)
		reduce_loop(work, end, dtype, 1);
	else if (work->rank_count == 2)
		reduce_loop(work, end, dtype, 2);
	else if (work->rank_count == 4)
		reduce_loop(work, end, dtype, 4);
	else
		reduce_loop(work, end, dtype, VEC_RANKS_ANY);
}

VEC_INLINE void reduce_dtype(const struct reduce_work *work, enum reduce_end end,
                             enum zi_dtype dtype)
{
	if (dtype == ZI_DTYPE_F32)
		reduce_ranks(work, end, ZI_DTYPE_F32);
	else if (dtype == ZI_DTYPE_F16)
		reduce_ranks(work, end, ZI_DTYPE_F16);
	else
		reduce_ranks(work, end, ZI_DTYPE_BF16);
}

void VEC_NAME(kern_reduce)(void *target, const void *const *sources, uint32_t rank_count,
                           uint64_t element_count, const struct kern_reduce_options *options)
{
	struct reduce_work work = {
		.target = target,
		.sources = sources,
		.rank_count = rank_count,
		.count = element_count - element_count % VEC_LANES,
		.average = options->average,
	};
	uint64_t width = options->dtype == ZI_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
	const void *rest[ZI_WORLD_MAX];

	reduce_dtype(&work, REDUCE_ROUND, options->dtype);
	if (work.count == element_count)
		return;
	vec_sources_rest(rest, sources, rank_count, work.count, options->dtype);
	kern_reduce_ref((char *)target + work.count * width, rest, rank_count,
	                element_count - work.count, options);
}

void VEC_NAME(kern_accumulate)(float *accum, const void *const *sources, uint32_t rank_count,
                               uint64_t element_count, bool is_first, enum zi_dtype dtype)
{
	struct reduce_work work = {
		.target = accum,
		.sources = sources,
		.rank_count = rank_count,
		.count = element_count - element_count % VEC_LANES,
	};
	const void *rest[ZI_WORLD_MAX];

	if (is_first)
		reduce_dtype(&work, REDUCE_SET, dtype);
	else
		reduce_dtype(&work, REDUCE_ADD, dtype);
	if (work.count == element_count)
		return;
	vec_sources_rest(rest, sources, rank_count, work.count, dtype);
	kern_accumulate_ref(accum + work.count, rest, rank_count, element_count - work.count,
	                    is_first, dtype);
}

VEC_INLINE void finish_loop(void *target, const float *accum, uint64_t count, float average,
                            enum zi_dtype dtype)
{
	for (uint64_t i = 0; i < count; i += VEC_LANES) {
		vec sum = vec_mul(vec_load_f32(accum + i), vec_set(average));

		vec_store(target, i, vec_canonical(sum), dtype);
	}
}

void VEC_NAME(kern_finish)(void *target, const float *accum, uint64_t element_count,
                           const struct kern_reduce_options *options)
{
	uint64_t width = options->dtype == ZI_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
	uint64_t whole = element_count - element_count % VEC_LANES;

	if (options->dtype == ZI_DTYPE_F32)
		finish_loop(target, accum, whole, options->average, ZI_DTYPE_F32);
	else if (options->dtype == ZI_DTYPE_F16)
		finish_loop(target, accum, whole, options->average, ZI_DTYPE_F16);
	else
		finish_loop(target, accum, whole, options->average, ZI_DTYPE_BF16);
	if (whole < element_count)
		kern_finish_ref((char *)target + whole * width, accum + whole,
		                element_count - whole, options);
}
