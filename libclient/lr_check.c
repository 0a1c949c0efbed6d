/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a schedule makes a curve: one table says which kinds look at a field and what it may be;
 * then what no single field can know. What the originals would divide by zero, or turn into a
 * learning rate that is none, is refused. Floor 2, any thread: no state.
 */
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/text.h"
#include "libclient/lr_private.h"
#include "libclient/sized.h"

/* What a field says that was not given to the original. */
#define VALUE_NONE -1.0

/* Sets of kinds. */
#define OF(kind)   (1u << ZINF_LR_##kind)
#define OF_TOTAL   (OF(LINEAR) | OF_COSINES | OF(POLYNOMIAL) | OF(WARMUP_DECAY) | OF(WARMUP_COSINE))
#define OF_COSINES (OF(COSINE) | OF(COSINE_RESTARTS) | OF(COSINE_MIN) | OF(COSINE_WARMUP_MIN))
#define OF_WARMUPS (OF(WARMUP) | OF(WARMUP_DECAY) | OF(WARMUP_COSINE))
#define OF_WARMUP                                                                            \
	(OF_COSINES | OF(CONSTANT_WARMUP) | OF(LINEAR) | OF(POLYNOMIAL) | OF(INVERSE_SQRT) | \
	 OF(WARMUP_STABLE_DECAY))
#define OF_LR (OF_WARMUP | OF(CONSTANT) | OF(WARMUP) | OF(WARMUP_COSINE))

enum rule_type { RULE_COUNT, RULE_U32, RULE_I32, RULE_F64, RULE_SHAPE };

/* A field, for some kinds. */
struct rule {
	const char *name;
	uint32_t kinds;
	enum rule_type type;
	size_t offset;
	double min, max; /* of what is no shape, for which @max is a set of them */
};

#define RULE(field, set, kind_of_field, least, most)                                             \
	{                                                                                        \
		.name = #field, .kinds = (set), .type = (kind_of_field),                         \
		.offset = offsetof(struct zinf_lr_options, field), .min = (least), .max = (most) \
	}
#define COUNT_MAX     ((double)ZI_LR_COUNT_MAX)
#define SHAPE(name)   (1u << ZINF_LR_SHAPE_##name)
#define SHAPES_SMOOTH (SHAPE(LINEAR) | SHAPE(COSINE) | SHAPE(SQRT))

static const struct rule rules[] = {
	RULE(lr, OF_LR, RULE_F64, 0, DBL_MAX),
	RULE(warmup_count, OF_WARMUP, RULE_COUNT, 0, COUNT_MAX),
	RULE(warmup_count, OF_WARMUPS, RULE_COUNT, 1, COUNT_MAX),
	RULE(total_count, OF_TOTAL, RULE_COUNT, 1, COUNT_MAX),
	RULE(cycle_count, OF_COSINES | OF(WARMUP_STABLE_DECAY), RULE_F64, 0, COUNT_MAX),
	RULE(lr_end, OF(POLYNOMIAL), RULE_F64, 0, DBL_MAX),
	RULE(power, OF(POLYNOMIAL), RULE_F64, 0, DBL_MAX),
	RULE(timescale, OF(INVERSE_SQRT), RULE_COUNT, 0, COUNT_MAX),
	RULE(min_ratio, OF(COSINE_MIN) | OF(COSINE_WARMUP_MIN) | OF(WARMUP_STABLE_DECAY), RULE_F64,
	     0, 1),
	RULE(min_ratio, OF(WARMUP_COSINE), RULE_F64, 0, 1),
	RULE(warmup_ratio, OF(WARMUP_COSINE), RULE_F64, 0, 1),
	RULE(warmup_ratio, OF(COSINE_WARMUP_MIN), RULE_F64, VALUE_NONE, 1),
	RULE(stable_count, OF(WARMUP_STABLE_DECAY), RULE_COUNT, 0, COUNT_MAX),
	RULE(decay_count, OF(WARMUP_STABLE_DECAY), RULE_COUNT, 0, COUNT_MAX),
	RULE(warmup_shape, OF(WARMUP_STABLE_DECAY), RULE_SHAPE, 0, SHAPES_SMOOTH),
	RULE(warmup_shape, OF_WARMUPS, RULE_SHAPE, 0, SHAPE(LOG) | SHAPE(LINEAR)),
	RULE(decay_shape, OF(WARMUP_STABLE_DECAY), RULE_SHAPE, 0, SHAPES_SMOOTH),
	RULE(min_lr, OF(RANGE_TEST) | OF(ONE_CYCLE) | OF(WARMUP) | OF(WARMUP_DECAY), RULE_F64, 0,
	     DBL_MAX),
	RULE(max_lr, OF(ONE_CYCLE), RULE_F64, DBL_MIN, DBL_MAX),
	RULE(max_lr, OF(WARMUP), RULE_F64, VALUE_NONE, DBL_MAX),
	RULE(max_lr, OF(WARMUP_DECAY), RULE_F64, 0, DBL_MAX),
	RULE(step_rate, OF(RANGE_TEST), RULE_F64, 0, DBL_MAX),
	RULE(step_count, OF(RANGE_TEST), RULE_COUNT, 1, COUNT_MAX),
	RULE(first_count, OF(ONE_CYCLE), RULE_COUNT, 1, COUNT_MAX),
	RULE(second_count, OF(ONE_CYCLE), RULE_COUNT, 0, COUNT_MAX),
	RULE(first_stairs, OF(ONE_CYCLE), RULE_U32, 0, UINT32_MAX),
	RULE(second_stairs, OF(ONE_CYCLE), RULE_I32, VALUE_NONE, INT32_MAX),
	RULE(decay_step_count, OF(ONE_CYCLE), RULE_F64, 0, DBL_MAX),
	RULE(decay_lr_rate, OF(ONE_CYCLE), RULE_F64, 0, DBL_MAX),
	RULE(decay_momentum_rate, OF(ONE_CYCLE), RULE_F64, -DBL_MAX, DBL_MAX),
	/* Below 1, as any beta1. */
	RULE(min_momentum, OF(ONE_CYCLE), RULE_F64, 0, 1 - DBL_EPSILON),
	RULE(max_momentum, OF(ONE_CYCLE), RULE_F64, 0, 1 - DBL_EPSILON),
};

/* "allowed is 1 to 9007199254740991", with the words for ends that are not meant as figures. */
static int refuse(const struct zinf_lr_options *options, const struct rule *rule, const char *value,
                  struct zi_text *text)
{
	const char *kind = zinf_lr_name(options->kind);
	int r = -EINVAL;

	if (rule->min == VALUE_NONE && rule->max == DBL_MAX)
		return zi_text_error(text, r,
		                     "%s: %s %s; allowed is -1 (none given) or a number of at "
		                     "least 0",
		                     kind, rule->name, value);
	if (rule->min == VALUE_NONE)
		return zi_text_error(text, r, "%s: %s %s; allowed is -1 (none given) or 0 to %.16g",
		                     kind, rule->name, value, rule->max);
	if (rule->max == DBL_MAX && rule->min == -DBL_MAX)
		return zi_text_error(text, r, "%s: %s %s is no number", kind, rule->name, value);
	if (rule->max == DBL_MAX && rule->min == DBL_MIN)
		return zi_text_error(text, r, "%s: %s %s must be a number above 0", kind,
		                     rule->name, value);
	if (rule->max == DBL_MAX)
		return zi_text_error(text, r, "%s: %s %s must be a number of at least %g", kind,
		                     rule->name, value, rule->min);
	if (rule->max < 1 && rule->max > 0)
		return zi_text_error(text, r, "%s: %s %s must be at least 0 and below 1", kind,
		                     rule->name, value);
	return zi_text_error(text, r, "%s: %s %s; allowed is %.16g to %.16g", kind, rule->name,
	                     value, rule->min, rule->max);
}

static int check_shape(const struct zinf_lr_options *options, const struct rule *rule,
                       const void *field, struct zi_text *text)
{
	enum zinf_lr_shape shape = *(const enum zinf_lr_shape *)field;
	uint32_t allowed = (uint32_t)rule->max;

	if ((unsigned)shape < 32 && allowed >> shape & 1)
		return 0;
	return zi_text_error(text, -EINVAL, "%s: %s %d; allowed are linear (%d)%s",
	                     zinf_lr_name(options->kind), rule->name, (int)shape,
	                     ZINF_LR_SHAPE_LINEAR,
	                     allowed & SHAPE(LOG) ? " and log (4)" : ", cosine (2) and 1-sqrt (3)");
}

static int check_field(const struct zinf_lr_options *options, const struct rule *rule,
                       struct zi_text *text)
{
	const void *field = (const char *)options + rule->offset;
	double number;
	char value[32];

	switch (rule->type) {
	case RULE_SHAPE:
		return check_shape(options, rule, field, text);
	case RULE_COUNT:
		/* As it is: an f64 may be the next whole number. */
		if (*(const uint64_t *)field >= (uint64_t)rule->min &&
		    *(const uint64_t *)field <= ZI_LR_COUNT_MAX)
			return 0;
		(void)snprintf(value, sizeof(value), "%" PRIu64, *(const uint64_t *)field);
		return refuse(options, rule, value, text);
	case RULE_U32:
		number = *(const uint32_t *)field;
		break;
	case RULE_I32:
		number = *(const int32_t *)field;
		break;
	default:
		number = *(const double *)field;
	}
	if (number == VALUE_NONE && rule->min == VALUE_NONE)
		return 0;
	if (number >= zi_lr_max(rule->min, rule->min == VALUE_NONE ? 0 : -DBL_MAX) &&
	    number <= rule->max) /* False for a NaN. */
		return 0;
	(void)snprintf(value, sizeof(value), "%.17g", number);
	return refuse(options, rule, value, text);
}

/* Of POLYNOMIAL, which divides by the way and by the learning rate. */
static int check_together(const struct zinf_lr_options *options, struct zi_text *text)
{
	if (options->kind != ZINF_LR_POLYNOMIAL)
		return 0;
	if (options->total_count <= options->warmup_count)
		return zi_text_error(text, -EINVAL,
		                     "polynomial: total_count %" PRIu64
		                     " must be above warmup_count %" PRIu64,
		                     options->total_count, options->warmup_count);
	if (!(options->lr > options->lr_end))
		return zi_text_error(text, -EINVAL, "polynomial: lr_end %g must be below lr %g",
		                     options->lr_end, options->lr);
	return 0;
}

static int check(const struct zinf_lr_options *options, struct zi_text *text)
{
	static const struct zi_sized sized = { "a schedule", "zinf_lr_defaults()", sizeof(*options),
		                               sizeof(*options) };
	int r = zi_client_check_sized(&sized, options, text);

	if (r)
		return err_trace(r);
	if (!zinf_lr_name(options->kind))
		return zi_text_error(text, -EINVAL,
		                     "there is no schedule of kind %d; allowed is "
		                     "1 to %u",
		                     (int)options->kind, ZI_LR_KIND_COUNT - 1);
	for (size_t i = 0; i < ZI_COUNT_OF(rules); i++) {
		if (!(rules[i].kinds >> options->kind & 1))
			continue;
		r = check_field(options, &rules[i], text);
		if (r)
			return r;
	}
	return check_together(options, text);
}

int zinf_lr_check(const struct zinf_lr_options *options, char *text, size_t text_bytes)
{
	struct zi_text sentence = { "" };
	int r = check(options, &sentence);

	if (r && text)
		(void)snprintf(text, text_bytes, "%s", sentence.chars); /* Cut where it must be. */
	return r ? err_origin(r) : 0;
}
