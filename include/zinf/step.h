/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file step.h
 * What a step takes and what it tells. Part of zinf.h, which includes it.
 */
#ifndef ZINF_STEP_H
#define ZINF_STEP_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <stdbool.h>
#include <stdint.h>

/** What a group of parameters has of its own in a step. */
struct zinf_step_group {
	double lr;
	double weight_decay;
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
	double unscale;  /**< gradients are multiplied by this first (1 / loss scale); 1: nothing.
			  *   With zinf_options.scaler it must be 1 */
	uint32_t micro_batches; /**< reductions of each unit in this step: 1, or with
				 *   ZINF_REDUCE_PER_MICRO_BATCH the micro-batches */
	bool nesterov;
	bool sum;            /**< sum the ranks' gradients instead of averaging them */
	bool skip_nonfinite; /**< a step with a non-finite gradient changes nothing */
	bool want_norm;      /**< compute the norm even without clipping */
	bool update_early;   /**< a promise: between the last zinf_reduce() of a unit in this
			      *   step and zinf_step(), no rank unshards that unit again
			      *   (recomputation and tied weights included); its present use
			      *   ends with zinf_reshard(). Then, for state on NVMe and without
			      *   max_norm, skip_nonfinite and want_norm, units are updated
			      *   during backward; the results are the same, bit for bit. An
			      *   unshard against it is refused with -EBUSY in every case */
	uint8_t unused[3];
	bool no_bias_correction; /**< Adam and AdamW: lr as it is, and the moments */
	uint8_t reserved[3];     /**< zero */
	double lr_decay;         /**< Adagrad: lr / (1 + lr_decay × updates before this one) */
	const struct zinf_step_group *groups; /**< (group_count,) instead of lr and weight_decay;
					       *   NULL: all groups have those */
	uint32_t group_count;                 /**< zinf_options.group_count, or 0 without groups */
	uint32_t reserved_end;                /**< zero */
};

#define ZINF_STEP_OPTIONS_INIT                                                       \
	{                                                                            \
		.bytes = sizeof(struct zinf_step_options), .lr = 1e-3, .beta1 = 0.9, \
		.beta2 = 0.999, .eps = 1e-8, .unscale = 1.0, .micro_batches = 1,     \
	}

/** What a step did; times in nanoseconds. */
struct zinf_step_stats {
	uint32_t bytes;       /**< sizeof(struct zinf_step_stats), set by the caller */
	uint32_t is_skipped;  /**< 1: skip_nonfinite found a non-finite gradient */
	uint64_t step;        /**< the step that was made, and is in force */
	double norm;          /**< global gradient norm before clipping; NaN when not computed */
	double clip;          /**< factor that was applied; 1 when nothing was clipped */
	uint64_t read_bytes;  /**< optimizer state read from NVMe, but for what the step before left
			      *   in staging, and parameters that were not in memory */
	uint64_t write_bytes; /**< state and parameters written to NVMe */
	uint64_t step_ns;     /**< from the last rank's zinf_step() to the commit */
	uint64_t grad_wait_ns;  /**< from the first rank's zinf_step() to the last one's */
	uint64_t norm_wait_ns;  /**< update held back by the norm */
	uint64_t io_read_ns;    /**< pipeline stalled on reads */
	uint64_t io_write_ns;   /**< pipeline stalled on writes */
	uint64_t cpu_ns;        /**< pipeline stalled on computing */
	uint64_t commit_ns;     /**< flush and catalog transaction */
	int64_t committed_step; /**< the newest that is committed: `step`, or with
				 *   commit_interval an earlier one */
	int64_t update_count;   /**< as zinf_update_count() */
	double loss_scale;      /**< of the next step; 1 without a scaler */
	int32_t nonfinite_rank; /**< a rank with a gradient that is not finite, known where a norm
				 *   is computed; -1: none, or only a sum is not finite */
	int32_t nonfinite_unit; /**< the first unit that is not finite; -1: none */
	uint32_t unused_count;  /**< with finds_unused: parameters that no rank had a gradient of,
				 *   and that the step left alone */
	uint32_t reserved_end;  /**< zero */
};

#endif
