/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file scaler.h
 * Loss scaling for f16: the state machines of DeepSpeed, torch's GradScaler and Apex. Part of
 * zinf.h, which includes it. Pure; any thread. Equal options and overflows give equal scales.
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

enum zinf_scaler_kind {
	ZINF_SCALER_NONE = 0,
	ZINF_SCALER_STATIC = 1,    /**< init, always */
	ZINF_SCALER_DEEPSPEED = 2, /**< with hysteresis */
	ZINF_SCALER_TORCH = 3,     /**< torch.amp.GradScaler */
	ZINF_SCALER_APEX = 4       /**< Apex's LossScaler: a cap, and a floor if one is given */
};

struct zinf_scaler_options {
	uint32_t bytes; /**< sizeof(struct zinf_scaler_options) */
	enum zinf_scaler_kind kind;
	double init;         /**< 65536 */
	double growth;       /**< 2; TORCH may have another, above 1 */
	double backoff;      /**< 0.5; TORCH may have another, below 1 */
	double min;          /**< DEEPSPEED: 1; APEX: 0 is none; TORCH: not looked at */
	double max;          /**< APEX: 2^24; others: not looked at */
	uint32_t window;     /**< DEEPSPEED: 1000; TORCH, APEX: 2000 */
	uint32_t hysteresis; /**< DEEPSPEED: 2 */
	bool is_consecutive; /**< DEEPSPEED: every clean step refills the hysteresis */
};

/** State; plain words, so that it can lie in a blob. */
struct zinf_scaler {
	double scale;
	int64_t iteration;     /**< DEEPSPEED: steps seen */
	int64_t last_overflow; /**< DEEPSPEED: iteration of the newest one; -1 */
	uint32_t clean_count;  /**< TORCH, APEX: since the scale changed */
	uint32_t hysteresis;   /**< DEEPSPEED: what is left */
	uint64_t skipped_count;
};

/** The defaults of @kind. -EINVAL: no such kind. */
ZINF_API int zinf_scaler_defaults(enum zinf_scaler_kind kind,
                                  struct zinf_scaler_options *ret_options);
/** @text: as zinf_lr_check(). -EINVAL. */
ZINF_API int zinf_scaler_check(const struct zinf_scaler_options *options, char *text,
                               size_t text_bytes);
/** @options: checked. */
ZINF_API void zinf_scaler_init(struct zinf_scaler *ret_scaler,
                               const struct zinf_scaler_options *options);
/** A step is over. @is_overflow: some rank's gradient was not finite, and nothing was updated.
 * The inverse of a scale is always a finite f32 above 0: one that would grow past that stays.
 * Return: 0; -ERANGE an overflow at the least scale, which ends a run: DEEPSPEED's min, with all
 * others where the inverse ends (2^-127); the state is unchanged then. */
ZINF_API int zinf_scaler_update(struct zinf_scaler *scaler,
                                const struct zinf_scaler_options *options, bool is_overflow);

#ifdef __cplusplus
}
#endif

#endif
