/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file step.h
 * Options and statistics of a step. Part of zinf.h, which includes it.
 */
#ifndef ZINF_STEP_H
#define ZINF_STEP_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <stdbool.h>
#include <stdint.h>

/** Hyperparameters of one parameter group. */
struct zinf_step_group {
	double lr;
	double weight_decay;
};

/** Betas and eps of one parameter group. */
struct zinf_step_betas {
	double beta1; /**< SGD: momentum */
	double beta2; /**< SGD: dampening */
	double eps;
};

/** Hyperparameters of one step, equal on every rank (the daemon compares them bit by bit). */
struct zinf_step_options {
	uint32_t bytes; /**< sizeof(struct zinf_step_options) */
	double lr;      /**< learning rate */
	double beta1;   /**< SGD: momentum */
	double beta2;   /**< SGD: dampening */
	double eps;
	double weight_decay;
	double max_norm; /**< clip the global gradient norm to this; 0: no clipping, no norm */
	double unscale; /**< factor of the gradients (1 / loss scale); 1 with zinf_options.scaler */
	uint32_t micro_batches; /**< reductions of each unit in this step: 1; with
				 *   ZINF_REDUCE_PER_MICRO_BATCH the number of micro-batches */
	bool nesterov;
	bool sum;            /**< sum the ranks' gradients instead of averaging them */
	bool skip_nonfinite; /**< skip a step with a gradient that is not finite */
	bool want_norm;      /**< compute the norm even without clipping */
	bool update_early;   /**< the caller promises: between the last zinf_reduce() of a unit in
			      *   this step and zinf_step() no rank unshards that unit again,
			      *   also not for recomputation or tied weights. Its present use
			      *   ends with zinf_reshard(). With state on NVMe, and without
			      *   max_norm, skip_nonfinite and want_norm, units are then
			      *   updated during backward, with the same bits. An unshard that
			      *   violates the promise is always refused with -EBUSY */
	bool is_deferred; /**< zinf_step_begin(): zinf_step_with() brings the hyperparameters. Only
			   *   micro_batches, sum, unscale and skip_nonfinite count at the
			   *   beginning. The norm is always computed. Not with update_early */
	uint8_t unused[2];
	bool no_bias_correction; /**< Adam and AdamW: use lr and the moments unchanged */
	uint8_t reserved[3];     /**< zero */
	double lr_decay;         /**< Adagrad: lr / (1 + lr_decay × updates before this one) */
	const struct zinf_step_group *groups; /**< (group_count,) replaces lr and weight_decay;
					       *   NULL: all groups have these two */
	uint32_t group_count;                 /**< zinf_options.group_count, or 0 without groups */
	uint32_t reserved_end;                /**< zero */
	const struct zinf_step_betas *group_betas; /**< (group_count,) with groups: replaces beta1,
						    *   beta2 and eps; NULL: all groups have these
						    *   three */
};

#define ZINF_STEP_OPTIONS_INIT                                                       \
	{                                                                            \
		.bytes = sizeof(struct zinf_step_options), .lr = 1e-3, .beta1 = 0.9, \
		.beta2 = 0.999, .eps = 1e-8, .unscale = 1.0, .micro_batches = 1,     \
	}

/** Statistics of a step; times in nanoseconds. */
struct zinf_step_stats {
	uint32_t bytes;         /**< sizeof(struct zinf_step_stats), set by the caller */
	uint32_t is_skipped;    /**< 1: skipped, because a gradient was not finite */
	uint64_t step;          /**< number of the step that ended. A skipped step has a number as
			      *   well: the next step has the next number */
	double norm;            /**< global gradient norm before clipping; NaN when not computed */
	double clip;            /**< factor of clipping; 1: nothing was clipped */
	uint64_t read_bytes;    /**< bytes read from NVMe: optimizer state that was not left in
			      *   staging, and parameters that were not in memory */
	uint64_t write_bytes;   /**< bytes written to NVMe: state and parameters */
	uint64_t step_ns;       /**< from the last rank's zinf_step() to the commit */
	uint64_t grad_wait_ns;  /**< from the first rank's zinf_step() to the last one's */
	uint64_t norm_wait_ns;  /**< update held back by the norm */
	uint64_t io_read_ns;    /**< pipeline stalled on reads */
	uint64_t io_write_ns;   /**< pipeline stalled on writes */
	uint64_t cpu_ns;        /**< pipeline stalled on computing */
	uint64_t commit_ns;     /**< flush and catalog transaction */
	int64_t committed_step; /**< newest committed step: `step`, or with commit_interval
				 *   an earlier one */
	int64_t update_count;   /**< as zinf_update_count(): a skipped step is not counted */
	double loss_scale;      /**< of the next step; 1 without a scaler */
	int32_t nonfinite_rank; /**< a rank with a gradient that is not finite, if a norm is
				 *   computed; -1: none, or only a sum is not finite */
	int32_t nonfinite_unit; /**< the first unit that is not finite; -1: none */
	uint32_t unused_count;  /**< with finds_unused: parameters without a gradient on any
				 *   rank, which the step did not change */
	uint32_t reserved_end;  /**< zero */
};

#endif
