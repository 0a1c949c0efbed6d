/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of arrays. */
#include "kernels/cuda/vector.hh"

END(widen)
END(narrow)

/* From @dtype to f32. */
template <enum zi_dtype dtype> ALWAYS void all_widen(const struct kern_cuda_widen_args &args)
{
	each_vector(index, args.element_count)
	{
		if (index + VECTOR <= args.element_count)
			vector_store<ZI_DTYPE_F32>(
				kern_cuda_at(args.target), index,
				vector_load<dtype>(kern_cuda_at(args.source), index));
		else
			end_widen(args, index);
	}
}

/* As kern_widen(). */
KERNEL(widen, kern_cuda_widen_args)
{
	if (args.dtype == ZI_DTYPE_F16)
		all_widen<ZI_DTYPE_F16>(args);
	else
		all_widen<ZI_DTYPE_BF16>(args);
}

/* From f32 to @dtype. */
template <enum zi_dtype dtype> ALWAYS void all_narrow(const struct kern_cuda_narrow_args &args)
{
	each_vector(index, args.element_count)
	{
		if (index + VECTOR <= args.element_count)
			vector_store<dtype>(
				kern_cuda_at(args.target), index,
				vector_load<ZI_DTYPE_F32>(kern_cuda_at(args.source), index));
		else
			end_narrow(args, index);
	}
}

/* As kern_narrow(). */
KERNEL(narrow, kern_cuda_narrow_args)
{
	if (args.dtype == ZI_DTYPE_F16)
		all_narrow<ZI_DTYPE_F16>(args);
	else
		all_narrow<ZI_DTYPE_BF16>(args);
}
