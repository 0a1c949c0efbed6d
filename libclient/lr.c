/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules by kind and by name, their defaults, and the value of a step. Floor 2, any thread: no
 * state. lr_check.c says what may be computed here, lr_transformers.c and lr_deepspeed.c how.
 */
#include <errno.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "libclient/lr_private.h"

static const char *const kind_names[ZI_LR_KIND_COUNT] = {
	[ZINF_LR_CONSTANT] = "constant",
	[ZINF_LR_CONSTANT_WARMUP] = "constant_with_warmup",
	[ZINF_LR_LINEAR] = "linear",
	[ZINF_LR_COSINE] = "cosine",
	[ZINF_LR_COSINE_RESTARTS] = "cosine_with_restarts",
	[ZINF_LR_POLYNOMIAL] = "polynomial",
	[ZINF_LR_INVERSE_SQRT] = "inverse_sqrt",
	[ZINF_LR_COSINE_MIN] = "cosine_with_min_lr",
	[ZINF_LR_COSINE_WARMUP_MIN] = "cosine_warmup_with_min_lr",
	[ZINF_LR_WARMUP_STABLE_DECAY] = "warmup_stable_decay",
	[ZINF_LR_RANGE_TEST] = "LRRangeTest",
	[ZINF_LR_ONE_CYCLE] = "OneCycle",
	[ZINF_LR_WARMUP] = "WarmupLR",
	[ZINF_LR_WARMUP_DECAY] = "WarmupDecayLR",
	[ZINF_LR_WARMUP_COSINE] = "WarmupCosineLR",
};

/* What one value does for several kinds, which look at different ones of them; kinds that mean
 * something else by a field are told apart in zinf_lr_defaults(). */
static const struct zinf_lr_options common_defaults = {
	.bytes = sizeof(struct zinf_lr_options),
	.cycle_count = 0.5,
	.lr_end = 1e-7,
	.power = 1,
	.warmup_shape = ZINF_LR_SHAPE_LINEAR,
	.decay_shape = ZINF_LR_SHAPE_COSINE,
	.step_rate = 1,
	.step_count = 2000,
	.cycles_momentum = true,
	.first_count = 2000,
	.second_stairs = -1,
	.min_momentum = 0.8,
	.max_momentum = 0.9,
};

int zinf_lr_defaults(enum zinf_lr_kind kind, struct zinf_lr_options *ret_options)
{
	if (!ret_options)
		return err_origin(-EINVAL);
	struct zinf_lr_options options = common_defaults;

	if (!zinf_lr_name(kind))
		return err_origin(-EINVAL);
	options.kind = kind;
	switch (kind) {
	case ZINF_LR_COSINE_RESTARTS:
		options.cycle_count = 1;
		break;
	case ZINF_LR_COSINE_WARMUP_MIN:
		options.warmup_ratio = -1;
		break;
	case ZINF_LR_RANGE_TEST:
		options.min_lr = 1e-3;
		break;
	case ZINF_LR_WARMUP:
	case ZINF_LR_WARMUP_DECAY:
	case ZINF_LR_WARMUP_COSINE:
		options.warmup_count = 1000;
		options.warmup_shape = ZINF_LR_SHAPE_LOG;
		options.max_lr = kind == ZINF_LR_WARMUP ? -1 : 1e-3;
		options.min_ratio = kind == ZINF_LR_WARMUP_COSINE ? 1e-4 : 0;
		break;
	default:
		break;
	}
	*ret_options = options;
	return 0;
}

int zinf_lr_at(const struct zinf_lr_options *options, uint64_t updates,
               struct zinf_lr_value *ret_value)
{
	if (!options || !ret_value)
		return err_origin(-EINVAL);
	struct zinf_lr_value value = { 0 };
	int r = zinf_lr_check(options, NULL, 0);

	if (r)
		return err_trace(r);
	if (updates > ZI_LR_COUNT_MAX)
		return err_origin(-EINVAL);
	if (options->kind <= ZINF_LR_WARMUP_STABLE_DECAY)
		value.lr = options->lr * zi_lr_transformers_factor(options, updates);
	else
		zi_lr_deepspeed_value(options, updates, &value);
	*ret_value = value;
	return 0;
}

const char *zinf_lr_name(enum zinf_lr_kind kind)
{
	/* Also of a number that the enum does not have. */
	if ((unsigned)kind >= ZI_COUNT_OF(kind_names))
		return NULL;
	return kind_names[kind];
}

int zinf_lr_find(const char *name, enum zinf_lr_kind *ret_kind)
{
	if (!name || !ret_kind)
		return err_origin(-EINVAL);
	for (unsigned kind = 1; kind < ZI_COUNT_OF(kind_names); kind++) {
		if (strcmp(kind_names[kind], name) != 0)
			continue;
		*ret_kind = (enum zinf_lr_kind)kind;
		return 0;
	}
	return -ENOENT; /* An answer. */
}
