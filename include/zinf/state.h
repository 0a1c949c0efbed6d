/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file state.h
 * Optimizer state: read, written, and kept when parameters are written. Part of zinf.h, which
 * includes it; docs/API.md, "Optimizer state".
 */
#ifndef ZINF_STATE_H
#define ZINF_STATE_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What an optimizer keeps of each element of a parameter, as float. */
enum zinf_state_kind {
	ZINF_STATE_MASTER = 1,     /**< every optimizer: the fp32 value of the parameter */
	ZINF_STATE_EXP_AVG = 2,    /**< Adam, AdamW, Lion */
	ZINF_STATE_EXP_AVG_SQ = 3, /**< Adam, AdamW */
	ZINF_STATE_MOMENTUM = 4,   /**< SGD */
	ZINF_STATE_SUM = 5,        /**< Adagrad: the sum of squares */
};

/**
 * As zinf_param_write_end(), but the unit's optimizer state stays. Of 16-bit parameters the fp32
 * master becomes the written value. All ranks call the same of the two.
 * Return: as zinf_param_write_end(); -EOPNOTSUPP an older daemon, or a job over several nodes.
 */
ZINF_API int zinf_param_write_keep(struct zinf *zinf, uint32_t unit, int32_t root);

/**
 * Copies one kind of a parameter's optimizer state: of the last step, or written since. Whatever
 * the strategy and the place of the state, any rank reads the whole parameter; other ranks need not
 * call. Between steps, and during a step until this rank ends it. State that was never updated is
 * zero. The daemon charges a window of 4 MiB to the job, at the first call of a rank, and during
 * the call the state of at most 262144 elements.
 * @values: (@count,) written, row-major, the caller's. After a failure they are undefined.
 * @count: elements of the parameter.
 * Return: 0; -EINVAL the optimizer has no such state, or the parameter has other elements; -EBUSY a
 * step is being updated or committed: zinf_wait() for its ticket; ZINF_STATE_MASTER: the unit is
 * writable in this rank; -ENOSPC, -EDQUOT no memory, with figures; -EBADMSG, -EIO the state is
 * damaged or cannot be read; -EPERM is_forward_only; -EINTR; -EOPNOTSUPP an older daemon, or a job
 * over several nodes.
 */
ZINF_API int zinf_state_read(struct zinf *zinf, uint32_t param, enum zinf_state_kind kind,
                             float *values, uint64_t count);

/**
 * Collective over all ranks, between steps: the values of rank @root become one kind of a
 * parameter's optimizer state. They are in force at once, and zinf_commit() commits them; with
 * state on NVMe a step may begin only after that. ZINF_STATE_MASTER: of 16-bit parameters, and each
 * value rounds to the parameter's present value (bf16: a tie goes away from zero); write that first
 * (zinf_param_write_begin()).
 * @values: (@count,) of the root, row-major, read during the call. Other ranks may pass NULL.
 * @count: elements of the parameter. @root: a rank of the unit's data-parallel group, the same in
 * all ranks, as are param and kind.
 * Return: 0; -EINVAL as zinf_state_read(), or a master does not fit the parameter, with the
 * element, or ranks differ; -EBUSY a step is under way, or steps are not committed
 * (commit_interval): call zinf_commit() first; -ENOSPC, -EDQUOT no memory or space, with figures: a
 * part of the parameter may be written, so write it again or detach without zinf_commit(); -EPERM,
 * -EINTR, -EOPNOTSUPP as zinf_state_read(). After another failure the group is over, and the
 * committed state counts.
 */
ZINF_API int zinf_state_write(struct zinf *zinf, uint32_t param, enum zinf_state_kind kind,
                              const float *values, uint64_t count, int32_t root);

/**
 * Collective over all ranks, between steps: how many updates the optimizer state has seen. The bias
 * correction of Adam and AdamW counts by it, as do lr_decay of Adagrad and the first step of SGD.
 * In force at once, committed by zinf_commit(); with state on NVMe a step may begin only after
 * that. The number of the committed step stays.
 * @update_count: at most 2^53. @beta1, @beta2: from 0 to below 1, of the steps to come, if these
 * give no zinf_step_options.group_betas.
 * Return: 0; -EINVAL out of range, or ranks differ; -EBUSY, -EPERM, -EOPNOTSUPP as
 * zinf_state_write().
 */
ZINF_API int zinf_update_count_set(struct zinf *zinf, uint64_t update_count, double beta1,
                                   double beta2);

#ifdef __cplusplus
}
#endif

#endif
