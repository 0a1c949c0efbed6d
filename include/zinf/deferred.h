/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file deferred.h
 * Steps that are decided after backward: their gradient norm, their hyperparameters, or that they
 * are not made. Part of zinf.h, which includes it; docs/API.md, "Steps that are decided late".
 */
#ifndef ZINF_DEFERRED_H
#define ZINF_DEFERRED_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Waits until all ranks have handed over all units, and returns the global norm of the averaged,
 * unscaled gradients before clipping: the number of zinf_step_stats.norm. Of a step that was begun
 * with is_deferred, or that computes a norm for another reason. May be called several times. With
 * zinf_options.finds_unused it hands over what this rank left out, as zinf_step() does.
 * @ret_norm: infinite or NaN when a gradient is not finite.
 * Return: 0; -ENODATA names units that this rank has not handed over; -ETIMEDOUT names ranks that
 * have not, and their units; -ECANCELED another rank discards the step before all units were
 * handed over; -EINVAL the step computes no norm; -EOPNOTSUPP an older daemon, or a job over
 * several nodes.
 */
ZINF_API int zinf_grad_norm(struct zinf *zinf, double *ret_norm);

/**
 * As zinf_step(), of a step that was begun with is_deferred: brings its hyperparameters. The step
 * has the bits of one that was begun with them.
 * @options: copied. micro_batches, sum, unscale and skip_nonfinite are those of zinf_step_begin();
 * is_deferred and want_norm do not count. Equal on every rank.
 * Return: as zinf_step(); -EINVAL the options differ between ranks, or from those of
 * zinf_step_begin(): the text has the field and both values. The call may be repeated with others.
 * To change the options of a rank whose call has succeeded, discard the step.
 */
ZINF_API int zinf_step_with(struct zinf *zinf, const struct zinf_step_options *options,
                            const void *blob, size_t blob_bytes, zinf_ticket *ret_ticket);

/**
 * Collective: ends a step that was begun, before zinf_step() or zinf_step_with(), without changing
 * anything. Gradients that were handed over are dropped, and no unit is acquired any more. Uses of
 * parameters (zinf_unshard()) stay. The next zinf_step_begin() may follow. Once a rank has called
 * it, calls of other ranks that wait for this rank return -ECANCELED: zinf_grad_norm(),
 * zinf_grad_acquire(), zinf_unshard() without room, and tickets of zinf_step(). A rank whose ticket
 * ended so may discard the step, or call zinf_step() again. A rank in zinf_join() takes part by
 * itself.
 * Return: 0; -EINVAL no step was begun; -EBUSY this rank has ended it; -ETIMEDOUT names ranks that
 * did not call; -EOPNOTSUPP units were updated early (update_early), an older daemon, or a job over
 * several nodes.
 */
ZINF_API int zinf_step_discard(struct zinf *zinf);

#ifdef __cplusplus
}
#endif

#endif
