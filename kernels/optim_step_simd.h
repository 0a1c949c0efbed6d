/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kernels/: the fused step in vectors, kern_optim_step() of a table. Floor 1. */
#pragma once

#include "kernels/optim_hashed.h"
#include "kernels/optim_simd.h"

/* One specialisation. @ret_hashes: unused. */
VEC_INLINE void optim_loop(const struct kern_optim_run *whole_run,
                           const struct kern_optim_scalars *scalars, struct optim_shape shape,
                           struct kern_optim_hashes *ret_hashes)
{
	struct kern_optim_run run = *whole_run; /* no store of the loop can touch it */
	const void *held[VEC_RANKS_HELD];
	const struct optim_lanes lanes = optim_lanes(scalars);

	(void)ret_hashes;
	run.grads = vec_sources_hold(held, run.grads, shape.ranks);
	for (uint64_t i = 0; i < run.element_count; i += VEC_LANES)
		optim_vec(&run, &lanes, shape, i);
}

#include "kernels/optim_shapes_simd.h"

/* One function per optimizer keeps the compiler's work in bounds. */
#define OPTIM_DEFINE(name, ...)                                                             \
	static __attribute__((noinline)) void optim_##name(                                 \
		const struct kern_optim_run *run, const struct kern_optim_scalars *scalars) \
	{                                                                                   \
		optim_dtypes(run, scalars, (struct optim_shape){ __VA_ARGS__ }, NULL);      \
	}

OPTIM_DEFINE(adamw, .optimizer = ZI_OPTIMIZER_ADAMW)
OPTIM_DEFINE(adam, .optimizer = ZI_OPTIMIZER_ADAM)
OPTIM_DEFINE(sgd, .optimizer = ZI_OPTIMIZER_SGD)
OPTIM_DEFINE(sgd_nesterov, .optimizer = ZI_OPTIMIZER_SGD, .is_nesterov = true)
OPTIM_DEFINE(sgd_first, .optimizer = ZI_OPTIMIZER_SGD, .is_first = true)
OPTIM_DEFINE(sgd_first_nesterov, .optimizer = ZI_OPTIMIZER_SGD, .is_first = true,
             .is_nesterov = true)
OPTIM_DEFINE(adagrad, .optimizer = ZI_OPTIMIZER_ADAGRAD)
OPTIM_DEFINE(lion, .optimizer = ZI_OPTIMIZER_LION)

static void optim_sgd_any(const struct kern_optim_run *run,
                          const struct kern_optim_scalars *scalars)
{
	if (scalars->is_first && scalars->is_nesterov)
		optim_sgd_first_nesterov(run, scalars);
	else if (scalars->is_first)
		optim_sgd_first(run, scalars);
	else if (scalars->is_nesterov)
		optim_sgd_nesterov(run, scalars);
	else
		optim_sgd(run, scalars);
}

void VEC_NAME(kern_optim_step)(const struct kern_optim_run *run,
                               const struct kern_optim_scalars *scalars)
{
	switch (scalars->optimizer) {
	case ZI_OPTIMIZER_ADAMW:
		optim_adamw(run, scalars);
		return;
	case ZI_OPTIMIZER_ADAM:
		optim_adam(run, scalars);
		return;
	case ZI_OPTIMIZER_ADAGRAD:
		optim_adagrad(run, scalars);
		return;
	case ZI_OPTIMIZER_LION:
		optim_lion(run, scalars);
		return;
	default:
		optim_sgd_any(run, scalars);
	}
}
