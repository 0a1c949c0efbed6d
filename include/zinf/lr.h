/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file lr.h
 * Learning rates: the schedules of DeepSpeed and of Hugging Face, with the same values. Part of
 * zinf.h, which includes it. Pure functions of the number of updates, except the plateau, which has
 * a state; no daemon; any thread.
 *
 * @updates: steps that changed the parameters so far, 0 for the first step. Skipped steps
 * (skip_nonfinite) do not count, as in the originals. A resumed run needs only this number to
 * continue its curve.
 */
#ifndef ZINF_LR_H
#define ZINF_LR_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Schedules. The values are part of the ABI. */
enum zinf_lr_kind {
	ZINF_LR_CONSTANT = 1,             /**< constant */
	ZINF_LR_CONSTANT_WARMUP = 2,      /**< constant_with_warmup */
	ZINF_LR_LINEAR = 3,               /**< linear */
	ZINF_LR_COSINE = 4,               /**< cosine */
	ZINF_LR_COSINE_RESTARTS = 5,      /**< cosine_with_restarts */
	ZINF_LR_POLYNOMIAL = 6,           /**< polynomial */
	ZINF_LR_INVERSE_SQRT = 7,         /**< inverse_sqrt */
	ZINF_LR_COSINE_MIN = 8,           /**< cosine_with_min_lr */
	ZINF_LR_COSINE_WARMUP_MIN = 9,    /**< cosine_warmup_with_min_lr */
	ZINF_LR_WARMUP_STABLE_DECAY = 10, /**< warmup_stable_decay */
	ZINF_LR_RANGE_TEST = 11,          /**< LRRangeTest */
	ZINF_LR_ONE_CYCLE = 12,           /**< OneCycle */
	ZINF_LR_WARMUP = 13,              /**< WarmupLR */
	ZINF_LR_WARMUP_DECAY = 14,        /**< WarmupDecayLR */
	ZINF_LR_WARMUP_COSINE = 15        /**< WarmupCosineLR */
};

/** Shapes of a part of a schedule. */
enum zinf_lr_shape {
	ZINF_LR_SHAPE_LINEAR = 1,
	ZINF_LR_SHAPE_COSINE = 2,
	ZINF_LR_SHAPE_SQRT = 3, /**< "1-sqrt" */
	ZINF_LR_SHAPE_LOG = 4   /**< only the warm-up of WARMUP, WARMUP_DECAY, WARMUP_COSINE */
};

/** A schedule. Begin with zinf_lr_defaults(), then set what differs. The comment of a field names
 * the kinds that use it, with their defaults. Counts are numbers of updates, below 2^53. */
struct zinf_lr_options {
	uint32_t bytes; /**< sizeof(struct zinf_lr_options) */
	enum zinf_lr_kind kind;
	double lr; /**< the optimizer's; each parameter group has its own. All kinds except
		    *   RANGE_TEST, ONE_CYCLE, WARMUP_DECAY */
	uint64_t warmup_count; /**< CONSTANT_WARMUP to WARMUP_STABLE_DECAY: 0;
				*   WARMUP, WARMUP_DECAY, WARMUP_COSINE: 1000, at least 1 */
	uint64_t total_count;  /**< LINEAR, all kinds with COSINE, POLYNOMIAL, WARMUP_DECAY:
			       *   updates of the run; no default */
	double cycle_count;    /**< COSINE, COSINE_MIN, COSINE_WARMUP_MIN, WARMUP_STABLE_DECAY: 0.5;
				*   COSINE_RESTARTS: 1 */
	double lr_end;         /**< POLYNOMIAL: 1e-7; below lr */
	double power;          /**< POLYNOMIAL: 1 */
	uint64_t timescale;    /**< INVERSE_SQRT: 0: warmup_count, or 10000 without one */
	double min_ratio;      /**< lowest value / lr. COSINE_MIN and the next two: 0;
				*   WARMUP_COSINE: 1e-4 (cos_min_ratio) */
	double warmup_ratio;   /**< first value / lr. WARMUP_COSINE: 0 (warmup_min_ratio);
				*   COSINE_WARMUP_MIN: -1 is none (no warmup_lr_rate) */
	uint64_t stable_count; /**< WARMUP_STABLE_DECAY */
	uint64_t decay_count;  /**< WARMUP_STABLE_DECAY */
	enum zinf_lr_shape warmup_shape; /**< WARMUP_STABLE_DECAY: LINEAR; WARMUP*: LOG */
	enum zinf_lr_shape decay_shape;  /**< WARMUP_STABLE_DECAY: COSINE */
	double min_lr;           /**< RANGE_TEST: 1e-3; ONE_CYCLE, WARMUP, WARMUP_DECAY: 0 */
	double max_lr;           /**< ONE_CYCLE: no default; WARMUP: -1 is lr; WARMUP_DECAY: 1e-3 */
	double step_rate;        /**< RANGE_TEST: 1 */
	uint64_t step_count;     /**< RANGE_TEST: 2000, at least 1 (step_size) */
	bool is_staircase;       /**< RANGE_TEST */
	bool cycles_momentum;    /**< ONE_CYCLE: true */
	uint64_t first_count;    /**< ONE_CYCLE: 2000, at least 1 */
	uint64_t second_count;   /**< ONE_CYCLE: 0 is first_count */
	uint32_t first_stairs;   /**< ONE_CYCLE: 0, smooth */
	int32_t second_stairs;   /**< ONE_CYCLE: -1 is first_stairs */
	double decay_step_count; /**< ONE_CYCLE: 0, no decay */
	double decay_lr_rate;    /**< ONE_CYCLE: 0 */
	double decay_momentum_rate; /**< ONE_CYCLE: 0. Above it beta1 grows without bound, and a
				     *   step refuses one that is not below 1 */
	double min_momentum;        /**< ONE_CYCLE: 0.8 */
	double max_momentum;        /**< ONE_CYCLE: 0.9 */
};

/** Values for one step. */
struct zinf_lr_value {
	double lr;
	bool has_betas; /**< ONE_CYCLE with cycles_momentum: beta1 and beta2 replace the step's */
	double beta1;
	double beta2; /**< 0.99, as the original sets with every momentum */
};

/** Sets the defaults of @kind in its original; lr stays 0. -EINVAL: no such kind. */
ZINF_API int zinf_lr_defaults(enum zinf_lr_kind kind, struct zinf_lr_options *ret_options);

/** Checks @options. @text: (@text_bytes,) gets a sentence with field, value and what is allowed;
 * may be NULL. Return: 0; -EINVAL. */
ZINF_API int zinf_lr_check(const struct zinf_lr_options *options, char *text, size_t text_bytes);

/** Computes the values for one step. Return: 0; -EINVAL options are wrong, see zinf_lr_check(), or
 * @updates is 2^53 or more. */
ZINF_API int zinf_lr_at(const struct zinf_lr_options *options, uint64_t updates,
                        struct zinf_lr_value *ret_value);

/** Name in the original ("cosine_with_restarts", "WarmupLR"); NULL: no such kind. */
ZINF_API const char *zinf_lr_name(enum zinf_lr_kind kind);
/** Finds a kind by its name in the original; case counts. Return: 0; -ENOENT no such name. */
ZINF_API int zinf_lr_find(const char *name, enum zinf_lr_kind *ret_kind);

/** Options of reduce_lr_on_plateau (torch.optim.lr_scheduler.ReduceLROnPlateau), with defaults. */
struct zinf_plateau_options {
	uint32_t bytes;
	uint32_t patience; /**< 10 */
	uint32_t cooldown; /**< 0 */
	bool is_max;       /**< a larger metric is better */
	bool is_absolute;  /**< threshold_mode "abs" */
	double factor;     /**< 0.1, below 1 */
	double threshold;  /**< 1e-4 */
	double min_lr;     /**< 0 */
	double eps;        /**< 1e-8: smaller changes are not made */
};

#define ZINF_PLATEAU_OPTIONS_INIT                                                            \
	{                                                                                    \
		.bytes = sizeof(struct zinf_plateau_options), .patience = 10, .factor = 0.1, \
		.threshold = 1e-4, .eps = 1e-8,                                              \
	}

/** State of the plateau: keep it in the blob of zinf_step(). */
struct zinf_plateau {
	double lr;               /**< learning rate of the next steps */
	double best;             /**< best metric so far */
	uint32_t bad_count;      /**< evaluations since the best metric */
	uint32_t cooldown_count; /**< evaluations that still do not count */
};

/** Begins a state. @lr: first learning rate. -EINVAL: torch refuses the options, or a value is NaN.
 *  */
ZINF_API int zinf_plateau_init(struct zinf_plateau *ret_plateau,
                               const struct zinf_plateau_options *options, double lr);
/** Moves the state after an evaluation. @metric: the same on every rank; NaN counts as bad, as in
 * torch. */
ZINF_API void zinf_plateau_step(struct zinf_plateau *plateau,
                                const struct zinf_plateau_options *options, double metric);

#ifdef __cplusplus
}
#endif

#endif
