/* SPDX-License-Identifier: Apache-2.0 */
/* The fused step in AVX2: optim_step_simd.h over simd_avx2.h. Floor 1. */
#if defined(__x86_64__)
#include "kernels/simd_avx2.h"

#include "kernels/optim_apart.h"
#include "kernels/optim_step_simd.h"

/* kern_optim_step_hashed() of this table: one after the other. */
void kern_optim_step_hashed_avx2(const struct kern_optim_run *run,
                                 const struct kern_optim_scalars *scalars,
                                 struct kern_optim_hashes *ret_hashes)
{
	optim_apart(run, scalars, kern_optim_step_avx2, kern_hash_avx2, ret_hashes);
}
#endif
