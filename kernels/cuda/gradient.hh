/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kernels/cuda: gradients of ranks, a vector at a time. */
#pragma once

#include "kernels/cuda/vector.hh"

ALWAYS struct vector vector_add(const struct vector &a, const struct vector &b)
{
	struct vector sum;

#pragma unroll
	for (unsigned i = 0; i < VECTOR; i++)
		sum.at[i] = kern_f32_add(a.at[i], b.at[i]);
	return sum;
}

/* The tree over any number of ranks, as kern_tree_push() and kern_tree_end(). */
template <enum zi_dtype dtype>
SELDOM struct vector gradient_tree(const struct kern_cuda_gradient &gradient, uint64_t index)
{
	struct vector partial[KERN_TREE_DEPTH], sum;
	uint32_t bit = 0;

#pragma unroll 1
	for (uint32_t rank = 0; rank < gradient.source_count; rank++) {
		sum = vector_load<dtype>(kern_cuda_source(&gradient, rank), index);
#pragma unroll 1
		for (bit = 0; rank >> bit & 1; bit++)
			sum = vector_add(partial[bit], sum);
		partial[bit] = sum;
	}
	bit = 0;
#pragma unroll 1
	while (!(gradient.source_count >> bit & 1))
		bit++;
	sum = partial[bit];
#pragma unroll 1
	for (bit++; bit < KERN_TREE_DEPTH; bit++)
		if (gradient.source_count >> bit & 1)
			sum = vector_add(partial[bit], sum);
	return sum;
}

/* The sum over the ranks: of a single one, and of two, without the tree's memory. */
template <enum zi_dtype dtype>
ALWAYS struct vector gradient_sum(const struct kern_cuda_gradient &gradient, uint64_t index)
{
	struct vector sum;

	if (gradient.source_count > 2)
		return gradient_tree<dtype>(gradient, index);
	sum = vector_load<dtype>(kern_cuda_source(&gradient, 0), index);
	if (gradient.source_count == 2)
		sum = vector_add(sum, vector_load<dtype>(kern_cuda_source(&gradient, 1), index));
	return sum;
}

template <enum zi_dtype dtype>
ALWAYS struct vector gradient_reduced_of(const struct kern_cuda_gradient &gradient, uint64_t index)
{
	struct vector sum = gradient_sum<dtype>(gradient, index);

	if (!gradient.is_reduced) {
#pragma unroll
		for (unsigned i = 0; i < VECTOR; i++)
			sum.at[i] = kern_optim_reduced(sum.at[i], gradient.average, dtype);
	}
	return sum;
}

/* The reduced gradient. */
ALWAYS struct vector gradient_reduced(const struct kern_cuda_gradient &gradient, uint64_t index)
{
	switch (gradient.dtype) {
	case ZI_DTYPE_F32:
		return gradient_reduced_of<ZI_DTYPE_F32>(gradient, index);
	case ZI_DTYPE_F16:
		return gradient_reduced_of<ZI_DTYPE_F16>(gradient, index);
	default:
		return gradient_reduced_of<ZI_DTYPE_BF16>(gradient, index);
	}
}
