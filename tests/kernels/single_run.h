/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the optimizers: the run of one rank whose planes and gradient are all fp32. */
#pragma once

#include "kernels/optim.h"

/* @param, @exp_avg, @exp_avg_sq (NULL: there is one moment), grads[0]: (count,) f32, the caller's
 * for as long as the run is. */
static inline struct kern_optim_run single_run(float *param, float *exp_avg, float *exp_avg_sq,
                                               const void *const *grads, uint64_t count)
{
	return (struct kern_optim_run){
		.param = param,
		.exp_avg = exp_avg,
		.exp_avg_sq = exp_avg_sq,
		.grads = grads,
		.rank_count = 1,
		.element_count = count,
		.param_dtype = ZI_DTYPE_F32,
		.grad_dtype = ZI_DTYPE_F32,
	};
}
