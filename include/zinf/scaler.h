/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file scaler.h
 * Loss scaling for f16, as DeepSpeed, torch's GradScaler and Apex do it. Part of zinf.h, which
 * includes it. Pure functions; any thread. Equal options and overflows give equal scales.
 */
#ifndef ZINF_SCALER_H
#define ZINF_SCALER_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Kinds of loss scale. */
enum zinf_scaler_kind {
	ZINF_SCALER_NONE = 0,
	ZINF_SCALER_STATIC = 1,    /**< always `init` */
	ZINF_SCALER_DEEPSPEED = 2, /**< with hysteresis */
	ZINF_SCALER_TORCH = 3,     /**< torch.amp.GradScaler */
	ZINF_SCALER_APEX = 4       /**< Apex's LossScaler: with a maximum, and a minimum if given */
};

/** Rules of a loss scale: begin with zinf_scaler_defaults(), whose values stand beside the fields.
 *  */
struct zinf_scaler_options {
	uint32_t bytes; /**< sizeof(struct zinf_scaler_options) */
	enum zinf_scaler_kind kind;
	double init;         /**< 65536 */
	double growth;       /**< 2: factor of growth; TORCH accepts others above 1 */
	double backoff;      /**< 0.5: factor of a fall; TORCH accepts others below 1 */
	double min;          /**< least scale. DEEPSPEED: 1; APEX: 0, none; TORCH ignores it */
	double max;          /**< largest scale. APEX: 2^24; others ignore it */
	uint32_t window;     /**< clean steps until it grows. DEEPSPEED: 1000; TORCH, APEX: 2000 */
	uint32_t hysteresis; /**< DEEPSPEED: 2: overflows until it falls */
	bool is_consecutive; /**< DEEPSPEED: every clean step resets the hysteresis */
};

/** State of a loss scale. It has no pointers, and may lie in a blob. */
struct zinf_scaler {
	double scale;
	int64_t iteration;      /**< DEEPSPEED: steps seen */
	int64_t last_overflow;  /**< DEEPSPEED: iteration of the newest overflow; -1: none */
	uint32_t clean_count;   /**< TORCH, APEX: clean steps since the scale changed */
	uint32_t hysteresis;    /**< DEEPSPEED: overflows left until the scale falls */
	uint64_t skipped_count; /**< skipped steps */
};

/** The defaults of @kind. -EINVAL: no such kind. */
ZINF_API int zinf_scaler_defaults(enum zinf_scaler_kind kind,
                                  struct zinf_scaler_options *ret_options);
/** Checks @options. @text: (@text_bytes,) gets a sentence with field, value and what is allowed;
 * may be NULL. Return: 0; -EINVAL. */
ZINF_API int zinf_scaler_check(const struct zinf_scaler_options *options, char *text,
                               size_t text_bytes);
/** Begins a state. @options: valid by zinf_scaler_check(). */
ZINF_API void zinf_scaler_init(struct zinf_scaler *ret_scaler,
                               const struct zinf_scaler_options *options);
/** Moves the state after a step. @is_overflow: a gradient of some rank was not finite, and nothing
 * was updated. The inverse of a scale is always a finite f32 above 0; a scale does not grow beyond.
 * Return: 0; -ERANGE an overflow at the least scale, which ends a run (DEEPSPEED: min; other kinds:
 * the inverse reaches its limit, 2^-127). The state is then unchanged. */
ZINF_API int zinf_scaler_update(struct zinf_scaler *scaler,
                                const struct zinf_scaler_options *options, bool is_overflow);

#ifdef __cplusplus
}
#endif

#endif
