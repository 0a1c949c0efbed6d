/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss scaling: the state machines by which a scale follows overflows of f16 gradients. Floor 0,
 * pure, any thread: the trainer (libzinf) and the daemon move the same machine, so that equal
 * options and overflows give equal scales on both sides.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_text;

/* Whose rules the scale follows. */
enum zi_scaler_kind {
	ZI_SCALER_NONE = 0,
	ZI_SCALER_STATIC = 1, /* init, always */
	ZI_SCALER_DEEPSPEED = 2,
	ZI_SCALER_TORCH = 3,
	ZI_SCALER_APEX = 4,
	_ZI_SCALER_COUNT,
};

struct zi_scaler_options {
	enum zi_scaler_kind kind;
	uint32_t window;     /* clean steps between growths */
	uint32_t hysteresis; /* overflows until the scale falls */
	bool is_consecutive; /* a clean step refills the hysteresis */
	double init;
	double growth;
	double backoff;
	double min;
	double max;
};

/* Plain words: it is stored with a committed step. */
struct zi_scaler {
	double scale;
	int64_t iteration;     /* steps seen */
	int64_t last_overflow; /* iteration of the newest one; -1 */
	uint32_t clean_count;  /* since the scale changed */
	uint32_t hysteresis;   /* what is left */
	uint64_t skipped_count;
};

/* "none", "static" …; "?" of none. */
const char *zi_scaler_name(uint32_t kind);
/* The defaults of @kind, which must be valid. */
struct zi_scaler_options zi_scaler_defaults(enum zi_scaler_kind kind);
/* Whether the machine can run with them. @text: which option, and what is allowed. -EINVAL. */
int zi_scaler_check(const struct zi_scaler_options *options, struct zi_text *text);
/* @options: checked. */
void zi_scaler_init(struct zi_scaler *ret_scaler, const struct zi_scaler_options *options);
/* A state that was stored: none that a machine can be in was not one. */
bool zi_scaler_is_sound(const struct zi_scaler *scaler);
/* It goes on under @options, which may be others than it was made with: of the same kind, and
 * checked. What they bound is brought within; a static scale is theirs. */
void zi_scaler_resume(struct zi_scaler *scaler, const struct zi_scaler_options *options);
/* A step is over. Return: 0; -ERANGE: an overflow at DEEPSPEED's least scale, or where the scale
 * would fall until its inverse is no finite f32; the state stays. */
int zi_scaler_update(struct zi_scaler *scaler, const struct zi_scaler_options *options,
                     bool is_overflow);
