/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file grad.h
 * Gradients that are missing, or not complete yet: of parameters, or of a whole rank. Part of
 * zinf.h, which includes it, and has zinf_grad_acquire() and zinf_reduce().
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
 * Marks a parameter's gradient as written; until zinf_reduce() of its unit. A rank that never calls
 * this has a gradient of all parameters. Of one that does, zinf_reduce() of a unit with others that
 * are not marked (nor frozen) is refused with -ENODATA and their names.
 *
 * With zinf_options.finds_unused what is not marked has none, from the first step on: zinf_reduce()
 * writes zeros there, and units that were not acquired in a micro-batch are handed over when the
 * next one begins (zinf_grad_acquire() of a unit that was), or in zinf_step(). A rank must have
 * marked one before its first zinf_step(). A unit's n-th zinf_reduce() in a step is of its n-th
 * micro-batch: one that is acquired first of all in a micro-batch after one that left it out is
 * handed over in that one's place. A step leaves a parameter alone, as a frozen one, that no rank
 * of its data-parallel group marked in any micro-batch (zinf_step_stats.unused_count). Where some
 * ranks marked it the others give zeros.
 * Return: 0; -EINVAL the unit is not acquired; -EPERM its data-parallel group is of others.
 */
ZINF_API int zinf_grad_done(struct zinf *zinf, uint32_t param);

/**
 * Between these two calls micro-batches are only accumulated. Pairs nest. With
 * ZINF_REDUCE_PER_STEP zinf_reduce() then returns 0 and does nothing: the buffer stays this rank's,
 * and backward adds to it. With ZINF_REDUCE_PER_MICRO_BATCH zinf_reduce() works as ever. A trainer
 * may therefore call it after each backward with either. It calls the end before the last
 * micro-batch of a step: until then zinf_step() returns -EBUSY. With ZINF_ZERO2 and ZINF_ZERO3 see
 * zinf_options.accumulation.
 * Return: 0; -EINVAL an end without its begin.
 */
ZINF_API int zinf_no_sync_begin(struct zinf *zinf);
ZINF_API int zinf_no_sync_end(struct zinf *zinf);

/**
 * For a rank whose data are at their end while others have some left: takes part in their steps
 * with gradients of zeros, until every rank has called it; then all return, and may go on together
 * (the next epoch). Its options are the others', its blob stays the one that it gave last. Steps of
 * this rank are waited for before.
 * @divides_by_live: true: averages leave this rank out: the sum over a data-parallel group is
 * divided by the number of its ranks that have data. false: by all of them, as in every other step.
 * Equal in all ranks.
 * Return: 0; -ETIMEDOUT no rank with data has begun a step (it names them); as every other call it
 * may be made again and goes on; -EBUSY a step has begun or was not waited for, or a unit is
 * unsharded; -EINVAL divides_by_live is another one elsewhere; -EOPNOTSUPP an older daemon; what
 * ended a step. Of an early step it keeps the promise. Units are handed over as in this rank's own
 * newest step, without one from the last to the first: with gradients in buckets (-EDEADLK) others
 * do so in the same order.
 */
ZINF_API int zinf_join(struct zinf *zinf, bool divides_by_live);

#ifdef __cplusplus
}
#endif

#endif
