/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks: in one step, or over micro-batches in an accumulator. */
#include "kernels/cuda/gradient.hh"

END(reduce)
END(accumulate)
END(finish)

/* × average, canonical. */
ALWAYS struct vector averaged(const struct vector &sum, float average)
{
	struct vector vector;

#pragma unroll
	for (unsigned i = 0; i < VECTOR; i++)
		vector.at[i] = kern_canonical(kern_f32_mul(sum.at[i], average));
	return vector;
}

/* A thread reads its vector of all sources before it writes it, so the target may be one. */
template <enum zi_dtype dtype> ALWAYS void all_reduce(const struct kern_cuda_reduce_args &args)
{
	each_vector(index, args.element_count)
	{
		if (index + VECTOR <= args.element_count)
			vector_store<dtype>(kern_cuda_at(args.target), index,
			                    averaged(gradient_sum<dtype>(args.gradient, index),
			                             args.gradient.average));
		else
			end_reduce(args, index);
	}
}

/* As kern_reduce(). */
KERNEL(reduce, kern_cuda_reduce_args)
{
	switch (args.gradient.dtype) {
	case ZI_DTYPE_F32:
		all_reduce<ZI_DTYPE_F32>(args);
		return;
	case ZI_DTYPE_F16:
		all_reduce<ZI_DTYPE_F16>(args);
		return;
	default:
		all_reduce<ZI_DTYPE_BF16>(args);
	}
}

/* Gradients of @dtype. */
template <enum zi_dtype dtype>
ALWAYS void all_accumulate(const struct kern_cuda_accumulate_args &args)
{
	void *accum = kern_cuda_at(args.accum);

	each_vector(index, args.element_count)
	{
		if (index + VECTOR <= args.element_count) {
			struct vector sum = gradient_sum<dtype>(args.gradient, index);

			if (!args.is_first)
				sum = vector_add(vector_load<ZI_DTYPE_F32>(accum, index), sum);
#pragma unroll
			for (unsigned i = 0; i < VECTOR; i++)
				sum.at[i] = kern_canonical(sum.at[i]);
			vector_store<ZI_DTYPE_F32>(accum, index, sum);
		} else {
			end_accumulate(args, index);
		}
	}
}

/* As kern_reduce_accumulate(). */
KERNEL(accumulate, kern_cuda_accumulate_args)
{
	switch (args.gradient.dtype) {
	case ZI_DTYPE_F32:
		all_accumulate<ZI_DTYPE_F32>(args);
		return;
	case ZI_DTYPE_F16:
		all_accumulate<ZI_DTYPE_F16>(args);
		return;
	default:
		all_accumulate<ZI_DTYPE_BF16>(args);
	}
}

/* From the accumulator to @dtype. */
template <enum zi_dtype dtype> ALWAYS void all_finish(const struct kern_cuda_finish_args &args)
{
	each_vector(index, args.element_count)
	{
		if (index + VECTOR <= args.element_count)
			vector_store<dtype>(
				kern_cuda_at(args.target), index,
				averaged(vector_load<ZI_DTYPE_F32>(kern_cuda_at(args.accum), index),
			                 args.average));
		else
			end_finish(args, index);
	}
}

/* As kern_reduce_finish(). */
KERNEL(finish, kern_cuda_finish_args)
{
	switch (args.dtype) {
	case ZI_DTYPE_F32:
		all_finish<ZI_DTYPE_F32>(args);
		return;
	case ZI_DTYPE_F16:
		all_finish<ZI_DTYPE_F16>(args);
		return;
	default:
		all_finish<ZI_DTYPE_BF16>(args);
	}
}
