/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machines, after runtime/fp16/loss_scaler.py of DeepSpeed 0.19, torch's GradScaler and Apex's
 * LossScaler; their order of operations, in f64 but for torch's scale, which is an f32. Floor 0.
 */
#include "common/base/scaler.h"

#include <errno.h>
#include <float.h>
#include <math.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/text.h"

static_assert(sizeof(struct zi_scaler) == 40, "it is stored");

static const char *const names[_ZI_SCALER_COUNT] = {
	[ZI_SCALER_NONE] = "none",           [ZI_SCALER_STATIC] = "static",
	[ZI_SCALER_DEEPSPEED] = "deepspeed", [ZI_SCALER_TORCH] = "torch",
	[ZI_SCALER_APEX] = "apex",
};

const char *zi_scaler_name(uint32_t kind)
{
	return kind < _ZI_SCALER_COUNT ? names[kind] : "?";
}

struct zi_scaler_options zi_scaler_defaults(enum zi_scaler_kind kind)
{
	struct zi_scaler_options options = {
		.kind = kind,
		.window = kind == ZI_SCALER_DEEPSPEED ? 1000 : 2000,
		.hysteresis = 2,
		.init = kind == ZI_SCALER_NONE ? 1 : 65536,
		.growth = 2,
		.backoff = 0.5,
		.min = kind == ZI_SCALER_DEEPSPEED ? 1 : 0,
		.max = 0x1p24,
	};

	assert((unsigned)kind < _ZI_SCALER_COUNT);
	return options;
}

/* @max: an f32 holds it, since gradients are divided by the scale in f32. */
static int check_number(double value, double min, double max, const char *name,
                        const struct zi_scaler_options *options, struct zi_text *text)
{
	if (value >= min && value <= max) /* False for a NaN. */
		return 0;
	return zi_text_error(text, -EINVAL, "%s loss scale: %s %g; allowed is %g to %g",
	                     zi_scaler_name(options->kind), name, value, min, max);
}

/* Of the machines that move. */
static int check_dynamic(const struct zi_scaler_options *options, struct zi_text *text)
{
	const char *name = zi_scaler_name(options->kind);
	bool is_torch = options->kind == ZI_SCALER_TORCH;

	if (options->window == 0)
		return zi_text_error(text, -EINVAL, "%s loss scale: window 0; at least 1", name);
	if (is_torch && !(options->growth > 1 && options->growth <= FLT_MAX))
		return zi_text_error(text, -EINVAL, "%s loss scale: growth %g must be above 1",
		                     name, options->growth);
	if (is_torch && !(options->backoff > 0 && options->backoff < 1))
		return zi_text_error(text, -EINVAL,
		                     "%s loss scale: backoff %g must be above 0 and below 1", name,
		                     options->backoff);
	if (!is_torch && (options->growth != 2 || options->backoff != 0.5))
		return zi_text_error(text, -EINVAL,
		                     "%s loss scale: growth %g and backoff %g; they are 2 and 0.5 "
		                     "in all but torch's",
		                     name, options->growth, options->backoff);
	return 0;
}

int zi_scaler_check(const struct zi_scaler_options *options, struct zi_text *text)
{
	int r;

	if ((unsigned)options->kind >= _ZI_SCALER_COUNT)
		return zi_text_error(text, -EINVAL,
		                     "there is no loss scale of kind %u; allowed is 0 to %u",
		                     (unsigned)options->kind, _ZI_SCALER_COUNT - 1);
	if (options->kind == ZI_SCALER_NONE)
		return 0;
	r = check_number(options->init, FLT_MIN, FLT_MAX, "init", options, text);
	if (r || options->kind == ZI_SCALER_STATIC)
		return r;
	r = check_dynamic(options, text);
	if (r || options->kind == ZI_SCALER_TORCH)
		return r;
	if (options->kind == ZI_SCALER_APEX) {
		r = check_number(options->max, FLT_MIN, FLT_MAX, "max", options, text);
		if (r)
			return r;
		return check_number(options->min, 0, fmin(options->init, options->max), "min",
		                    options, text);
	}
	if (options->hysteresis == 0)
		return zi_text_error(text, -EINVAL,
		                     "deepspeed loss scale: hysteresis 0; at least "
		                     "1");
	return check_number(options->min, FLT_MIN, options->init, "min", options, text);
}

void zi_scaler_init(struct zi_scaler *ret_scaler, const struct zi_scaler_options *options)
{
	*ret_scaler = (struct zi_scaler){
		.scale = options->init,
		.last_overflow = -1,
		.hysteresis = options->hysteresis,
	};
	if (options->kind == ZI_SCALER_NONE)
		ret_scaler->scale = 1;
	else if (options->kind == ZI_SCALER_TORCH)
		ret_scaler->scale = (float)options->init;
	else if (options->kind == ZI_SCALER_APEX)
		ret_scaler->scale = fmin(options->max, options->init);
}

/* Gradients are multiplied by its inverse, as an f32. */
static bool is_usable(double scale)
{
	float inverse = scale > 0 ? (float)(1.0 / scale) : 0;

	return inverse > 0 && isfinite(inverse);
}

/* See scaler.h, as is the next. */
bool zi_scaler_is_sound(const struct zi_scaler *scaler)
{
	return is_usable(scaler->scale) && scaler->last_overflow >= -1 &&
	       scaler->last_overflow < scaler->iteration;
}

void zi_scaler_resume(struct zi_scaler *scaler, const struct zi_scaler_options *options)
{
	switch (options->kind) {
	case ZI_SCALER_DEEPSPEED:
		scaler->scale = fmax(scaler->scale, options->min);
		if (scaler->hysteresis == 0 || scaler->hysteresis > options->hysteresis)
			scaler->hysteresis = options->hysteresis;
		break;
	case ZI_SCALER_APEX:
		scaler->scale = fmin(options->max, fmax(options->min, scaler->scale));
		break;
	case ZI_SCALER_TORCH:
		break;
	default:
		scaler->scale = options->kind == ZI_SCALER_STATIC ? options->init : 1;
		break;
	}
}

/* Growth is due at every window-th clean step behind the newest overflow; the first one of a run
 * has none before it, and is due one step later. */
static int update_deepspeed(struct zi_scaler *scaler, const struct zi_scaler_options *options,
                            bool is_overflow)
{
	int64_t clean = scaler->iteration - scaler->last_overflow - 1;

	if (is_overflow) {
		if (options->hysteresis > 1 && scaler->hysteresis > 1)
			scaler->hysteresis--;
		else if (scaler->scale == options->min)
			return err_origin(-ERANGE);
		else
			scaler->scale = fmax(scaler->scale / 2, options->min);
		scaler->last_overflow = scaler->iteration;
	} else {
		bool is_due = clean > 0 && clean % options->window == 0;

		/* Used up it stays so until the scale grows, unless each clean step refills it. */
		if (options->is_consecutive || is_due)
			scaler->hysteresis = options->hysteresis;
		if (is_due)
			scaler->scale *= 2;
	}
	scaler->iteration++;
	return 0;
}

static void update_torch(struct zi_scaler *scaler, const struct zi_scaler_options *options,
                         bool is_overflow)
{
	if (is_overflow) {
		scaler->scale = (float)(scaler->scale * options->backoff);
		scaler->clean_count = 0;
		return;
	}
	if (++scaler->clean_count < options->window)
		return;
	scaler->scale = (float)(scaler->scale * options->growth);
	scaler->clean_count = 0;
}

static void update_apex(struct zi_scaler *scaler, const struct zi_scaler_options *options,
                        bool is_overflow)
{
	if (is_overflow) {
		scaler->scale /= 2;
		if (options->min > 0)
			scaler->scale = fmax(options->min, scaler->scale);
		scaler->clean_count = 0;
		return;
	}
	if (++scaler->clean_count < options->window)
		return;
	scaler->scale = fmin(options->max, scaler->scale * 2);
	scaler->clean_count = 0;
}

/* Where the originals would go on to 0 or infinity there is an end: a run that falls so far
 * diverges, one that grows so far stays where it is. */
int zi_scaler_update(struct zi_scaler *scaler, const struct zi_scaler_options *options,
                     bool is_overflow)
{
	struct zi_scaler next = *scaler;
	int r;

	switch (options->kind) {
	case ZI_SCALER_DEEPSPEED:
		r = update_deepspeed(&next, options, is_overflow);
		if (r)
			return err_trace(r);
		break;
	case ZI_SCALER_TORCH:
		update_torch(&next, options, is_overflow);
		break;
	case ZI_SCALER_APEX:
		update_apex(&next, options, is_overflow);
		break;
	default: /* It does not move. */
		break;
	}
	if (!is_usable(next.scale)) {
		if (is_overflow)
			return err_origin(-ERANGE);
		next.scale = scaler->scale;
	}
	next.skipped_count += is_overflow;
	*scaler = next;
	return 0;
}
