/* SPDX-License-Identifier: Apache-2.0 */
/* Steps whose hyperparameters come after their gradients. */
#pragma once

#include "tests/unit/zero/model.h"

/* What of @options a step begins with. */
static inline struct zi_step_options deferred_options(const struct zi_step_options *options)
{
	return (struct zi_step_options){
		.unscale = options->unscale,
		.micro_batches = options->micro_batches,
		.flags = ZI_STEP_DEFERRED |
		         (options->flags & (ZI_STEP_SUM | ZI_STEP_SKIP_NONFINITE)),
	};
}

/* Gradients of all units, as model_gradients(). */
static inline void deferred_gradients(struct actor *actors, uint32_t count, uint64_t step,
                                      const struct zi_step_options *options)
{
	struct zi_step_options begun = deferred_options(options);

	model_gradients(actors, count, step, &begun);
}

/* The rest of such a step. @ret_norm: as all ranks hear it. The first error. */
static inline int deferred_end(struct actor *actors, uint32_t count,
                               const struct zi_step_options *options, double *ret_norm)
{
	int r = all_call(actors, count, zero_grad_norm, NULL);

	if (r)
		return r;
	*ret_norm = actors[0].calls[0].op.norm;
	for (uint32_t i = 1; i < count; i++)
		cr_assert_eq(memcmp(ret_norm, &actors[i].calls[0].op.norm, sizeof(*ret_norm)), 0);
	r = all_call(actors, count, zero_step_options, &(struct zero_op){ .options = *options });
	return r ? r : all_call(actors, count, zero_step, NULL);
}
