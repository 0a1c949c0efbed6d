/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/: from a run to the loop specialised on it. Whoever includes this has defined
 * optim_loop() before, always inlined: it becomes a loop of its own for each combination of dtypes
 * and rank counts. Floor 1.
 */
#pragma once

#include "kernels/optim_hashed.h"
#include "kernels/optim_simd.h"

VEC_INLINE void optim_ranks(const struct kern_optim_run *run,
                            const struct kern_optim_scalars *scalars, struct optim_shape shape,
                            struct kern_optim_hashes *ret_hashes)
{
	struct optim_shape one = shape, two = shape, four = shape, any = shape, reduced = shape;

	one.ranks = 1;
	two.ranks = 2;
	four.ranks = 4;
	any.ranks = VEC_RANKS_ANY;
	reduced.ranks = 1;
	reduced.is_reduced = true;
	if (run->is_reduced)
		optim_loop(run, scalars, reduced, ret_hashes);
	else if (run->rank_count == 1)
		optim_loop(run, scalars, one, ret_hashes);
	else if (run->rank_count == 2)
		optim_loop(run, scalars, two, ret_hashes);
	else if (run->rank_count == 4)
		optim_loop(run, scalars, four, ret_hashes);
	else
		optim_loop(run, scalars, any, ret_hashes);
}

VEC_INLINE void optim_dtypes(const struct kern_optim_run *run,
                             const struct kern_optim_scalars *scalars, struct optim_shape shape,
                             struct kern_optim_hashes *ret_hashes)
{
	struct optim_shape bf16 = shape, f32 = shape, bf16_f32 = shape, f32_bf16 = shape;
	struct optim_shape f16 = shape, f16_f32 = shape;

	bf16.param_dtype = bf16.grad_dtype = ZI_DTYPE_BF16;
	f32.param_dtype = f32.grad_dtype = ZI_DTYPE_F32;
	bf16_f32.param_dtype = f32_bf16.grad_dtype = ZI_DTYPE_BF16;
	bf16_f32.grad_dtype = f32_bf16.param_dtype = ZI_DTYPE_F32;
	f16.param_dtype = f16.grad_dtype = f16_f32.param_dtype = ZI_DTYPE_F16;
	f16_f32.grad_dtype = ZI_DTYPE_F32;
	if (run->param_dtype == ZI_DTYPE_F16 && run->grad_dtype == ZI_DTYPE_F16)
		optim_ranks(run, scalars, f16, ret_hashes);
	else if (run->param_dtype == ZI_DTYPE_F16)
		optim_ranks(run, scalars, f16_f32, ret_hashes);
	else if (run->param_dtype == run->grad_dtype && run->param_dtype == ZI_DTYPE_BF16)
		optim_ranks(run, scalars, bf16, ret_hashes);
	else if (run->param_dtype == run->grad_dtype)
		optim_ranks(run, scalars, f32, ret_hashes);
	else if (run->param_dtype == ZI_DTYPE_BF16)
		optim_ranks(run, scalars, bf16_f32, ret_hashes);
	else
		optim_ranks(run, scalars, f32_bf16, ret_hashes);
}
