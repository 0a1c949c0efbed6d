/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler: one of five curves of the learning rate (zinf/lr.h). Floor 2. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/nearest.h"
#include "libclient/deepspeed/private.h"

#define SP "scheduler.params."

static const char *const schedule_types[] = { "LRRangeTest", "OneCycle", "WarmupLR",
	                                      "WarmupDecayLR", "WarmupCosineLR" };

/* @near: NULL, no name is. */
static int refuse_type(struct zinf_deepspeed *reader, const json_t *type, const char *near)
{
	return zi_text_error(&reader->text, err_origin(-EINVAL),
	                     "scheduler.type is %s: LRRangeTest, OneCycle, WarmupLR, "
	                     "WarmupDecayLR, WarmupCosineLR are allowed%s%s%s",
	                     deepspeed_show(type).chars, near ? "; the nearest is \"" : "",
	                     near ? near : "", near ? "\"" : "");
}

/* As in the header: a wrong JSON type is left to the walk. Case counts there too. */
int deepspeed_find_schedule(struct zinf_deepspeed *reader)
{
	const json_t *scheduler = json_object_get(reader->root, "scheduler");
	const json_t *type = json_object_get(scheduler, "type");
	struct zi_nearest nearest = { .wanted = json_string_value(type) };

	reader->schedule = "";
	if (!json_is_object(scheduler) || (type && !json_is_string(type) && !json_is_null(type)))
		return 0;
	if (!type || json_is_null(type))
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "scheduler.type is missing: it says which one");
	for (uint32_t i = 0; i < ZI_COUNT_OF(schedule_types); i++)
		zi_nearest_offer(&nearest, schedule_types[i]);
	if (strcmp(nearest.name, nearest.wanted) != 0)
		return refuse_type(reader, type, zi_nearest_name(&nearest));
	reader->schedule = nearest.name;
	reader->config.has_lr = true;
	return 0;
}

static int read_range_test(struct zinf_deepspeed *reader, struct zinf_lr_options *lr)
{
	lr->min_lr = deepspeed_number(reader, SP "lr_range_test_min_lr");
	lr->step_count = (uint64_t)deepspeed_count(reader, SP "lr_range_test_step_size");
	lr->step_rate = deepspeed_number(reader, SP "lr_range_test_step_rate");
	lr->is_staircase = deepspeed_bool(reader, SP "lr_range_test_staircase");
	return 0;
}

/* Momentum can only follow where there are betas; the original turns it off as well. */
static int read_momentum(struct zinf_deepspeed *reader, struct zinf_lr_options *lr)
{
	bool has_betas = !reader->config.has_optimizer ||
	                 deepspeed_has_word("adam adamw lion", reader->optimizer);

	lr->cycles_momentum = deepspeed_bool(reader, SP "cycle_momentum") && has_betas;
	lr->min_momentum = deepspeed_number(reader, SP "cycle_min_mom");
	lr->max_momentum = deepspeed_number(reader, SP "cycle_max_mom");
	lr->decay_momentum_rate = deepspeed_number(reader, SP "decay_mom_rate");
	if (lr->cycles_momentum || has_betas)
		return 0;
	return err_trace(deepspeed_note(reader, SP "cycle_momentum", "true",
	                                "this optimizer has no betas: it is off, as there"));
}

static int read_one_cycle(struct zinf_deepspeed *reader, struct zinf_lr_options *lr)
{
	lr->min_lr = deepspeed_number(reader, SP "cycle_min_lr");
	lr->max_lr = deepspeed_number(reader, SP "cycle_max_lr");
	lr->first_count = (uint64_t)deepspeed_count(reader, SP "cycle_first_step_size");
	lr->second_count = (uint64_t)deepspeed_count(reader, SP "cycle_second_step_size");
	lr->first_stairs = (uint32_t)deepspeed_count(reader, SP "cycle_first_stair_count");
	if (deepspeed_is_given(reader, SP "cycle_second_stair_count"))
		lr->second_stairs = (int32_t)deepspeed_count(reader, SP "cycle_second_stair_count");
	lr->decay_step_count = deepspeed_number(reader, SP "decay_step_size");
	lr->decay_lr_rate = deepspeed_number(reader, SP "decay_lr_rate");
	return err_trace(read_momentum(reader, lr));
}

/* What the three warm-ups share. */
static int read_warmup(struct zinf_deepspeed *reader, struct zinf_lr_options *lr)
{
	int r = deepspeed_count_or(reader, SP "warmup_num_steps", reader->facts.warmup_count,
	                           "warmup_count", &lr->warmup_count);

	if (r)
		return err_trace(r);
	/* There 0 and 1 are 2, as 1 is in zinf/lr.h. */
	lr->warmup_count = ZI_MAX(lr->warmup_count, 1u);
	lr->warmup_shape = strcasecmp(deepspeed_text(reader, SP "warmup_type"), "log")
	                           ? ZINF_LR_SHAPE_LINEAR
	                           : ZINF_LR_SHAPE_LOG;
	if (lr->kind == ZINF_LR_WARMUP)
		return 0;
	return err_trace(deepspeed_count_or(reader, SP "total_num_steps", reader->facts.total_count,
	                                    "total_count", &lr->total_count));
}

/* "auto" is what Hugging Face's trainer takes: from 0 to the optimizer's. */
static int read_bounds(struct zinf_deepspeed *reader, struct zinf_lr_options *lr)
{
	int r = read_warmup(reader, lr);

	if (!r)
		r = deepspeed_number_or(reader, SP "warmup_min_lr", 0, "", &lr->min_lr);
	if (r)
		return err_trace(r);
	if (deepspeed_is_auto(reader, SP "warmup_max_lr") ||
	    (deepspeed_is_given(reader, SP "warmup_max_lr") || lr->kind == ZINF_LR_WARMUP_DECAY))
		return err_trace(
			deepspeed_number_or(reader, SP "warmup_max_lr", lr->lr, "lr", &lr->max_lr));
	lr->max_lr = -1; /* The optimizer's. */
	return err_trace(deepspeed_note(reader, SP "warmup_max_lr", "null",
	                                "not given: the optimizer's lr; old versions took 0.001"));
}

static int read_cosine(struct zinf_deepspeed *reader, struct zinf_lr_options *lr)
{
	lr->warmup_ratio = deepspeed_number(reader, SP "warmup_min_ratio");
	lr->min_ratio = deepspeed_number(reader, SP "cos_min_ratio");
	return err_trace(read_warmup(reader, lr));
}

static int read_kind(struct zinf_deepspeed *reader, struct zinf_lr_options *lr)
{
	switch (lr->kind) {
	case ZINF_LR_RANGE_TEST:
		return read_range_test(reader, lr);
	case ZINF_LR_ONE_CYCLE:
		return read_one_cycle(reader, lr);
	case ZINF_LR_WARMUP_COSINE:
		return read_cosine(reader, lr);
	default:
		assert(lr->kind == ZINF_LR_WARMUP || lr->kind == ZINF_LR_WARMUP_DECAY);
		return read_bounds(reader, lr);
	}
}

/* As in the header. */
int deepspeed_schedule(struct zinf_deepspeed *reader)
{
	struct zinf_lr_options *lr = &reader->config.lr;
	char text[ZI_TEXT_BYTES];
	enum zinf_lr_kind kind;
	int r;

	if (!reader->config.has_lr)
		return 0;
	r = zinf_lr_find(reader->schedule, &kind);
	assert(!r); /* zinf/lr.h has all five. */
	(void)zinf_lr_defaults(kind, lr);
	lr->lr = reader->config.has_optimizer ? reader->config.step.lr : reader->facts.lr;
	if (!isfinite(lr->lr) && (kind == ZINF_LR_WARMUP_COSINE || kind == ZINF_LR_WARMUP))
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "scheduler.type is \"%s\", which begins with the optimizer's "
		                     "lr: there is no optimizer in the file, and the trainer does "
		                     "not say it (zinf_deepspeed_facts.lr)",
		                     reader->schedule);
	r = read_kind(reader, lr);
	if (r)
		return err_trace(r);
	if (!isfinite(lr->lr))
		lr->lr = 0; /* These kinds do not look at it. */
	if (zinf_lr_check(lr, text, sizeof(text)))
		return zi_text_error(&reader->text, err_origin(-EINVAL), "scheduler: %s", text);
	return 0;
}
