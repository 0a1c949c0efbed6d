/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file grad.h
 * Gradients that are missing or not complete: of parameters, or of a whole rank. Part of zinf.h,
 * which includes it; zinf.h has zinf_grad_acquire() and zinf_reduce().
 */
#ifndef ZINF_GRAD_H
#define ZINF_GRAD_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Marks the gradient of a parameter as written, until zinf_reduce() of its unit. A rank that never
 * calls this has gradients of all parameters. In a rank that calls it, zinf_reduce() of a unit with
 * parameters that are neither marked nor frozen returns -ENODATA with their names.
 *
 * With zinf_options.finds_unused a parameter that is not marked has no gradient, from the first
 * step on:
 *   - zinf_reduce() writes zeros for it.
 *   - A unit that was not acquired in a micro-batch is handed over when the next micro-batch begins
 *     (zinf_grad_acquire() of a unit that was acquired before), or in zinf_step().
 *   - A rank must have marked a parameter before its first zinf_step().
 *   - The n-th zinf_reduce() of a unit in a step belongs to its n-th micro-batch. A unit that one
 *     micro-batch left out, and that the next one acquires first, is handed over in its place.
 *   - A step does not change a parameter that no rank of its data-parallel group marked in any
 *     micro-batch (zinf_step_stats.unused_count). If some ranks marked it, the others give zeros.
 * Return: 0; -EINVAL the unit is not acquired; -EPERM this rank is not in its data-parallel group.
 */
ZINF_API int zinf_grad_done(struct zinf *zinf, uint32_t param);

/**
 * Between these two calls micro-batches are only accumulated. Pairs nest. With ZINF_REDUCE_PER_STEP
 * zinf_reduce() then returns 0 and does nothing: the buffer stays this rank's, and backward adds to
 * it. With ZINF_REDUCE_PER_MICRO_BATCH zinf_reduce() works as usual. So a trainer may call
 * zinf_reduce() after each backward with either. Call the end before the last micro-batch of a
 * step: until then zinf_step() returns -EBUSY. With ZINF_ZERO2 and ZINF_ZERO3 see
 * zinf_options.accumulation.
 * Return: 0; -EINVAL an end without its begin.
 */
ZINF_API int zinf_no_sync_begin(struct zinf *zinf);
ZINF_API int zinf_no_sync_end(struct zinf *zinf);

/**
 * For a rank without further data while other ranks have some: takes part in their steps with
 * gradients of zeros, until every rank has called it. Then all calls return, and the ranks may
 * continue together (the next epoch). The rank uses the step options of the others, and keeps its
 * last blob. Before, zinf_wait() for all steps of this rank.
 * @divides_by_live: equal in all ranks. true: averages leave this rank out; the sum over a
 * data-parallel group is divided by the number of its ranks with data. false: by all of its ranks.
 * Units are handed over in the order of this rank's newest step; without one, from the last to the
 * first. With ZINF_ZERO2 and ZINF_ZERO3 the other ranks must use the same order (else -EDEADLK).
 * update_early of the others' steps remains possible.
 * Return: 0; -ETIMEDOUT no rank with data has begun a step (the text names them); the call may be
 * repeated; -EBUSY a step has begun or was not waited for, or a unit is unsharded; -EINVAL
 * divides_by_live differs between ranks; -EOPNOTSUPP an older daemon; or the error that ended a
 * step.
 */
ZINF_API int zinf_join(struct zinf *zinf, bool divides_by_live);

#ifdef __cplusplus
}
#endif

#endif
