/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: schedules have the originals' values also where there is no Python to compute them.
 * Method: ten updates of one curve of each kind, as the classes of transformers 5.23 and of
 * DeepSpeed 0.19.6 gave them. A C library of another make may round the last bits of a cosine or a
 * logarithm otherwise, so those are left open. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "zinf/zinf.h"

#define POINT_COUNT 10

static const uint64_t updates[POINT_COUNT] = { 0, 1, 2, 4, 5, 9, 13, 17, 20, 26 };

static const struct {
	const char *name;
	double values[POINT_COUNT];
} curves[] = {
	{ "constant",
	  { 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3 } },
	{ "constant_with_warmup",
	  { 0, 0x1p-5, 0x1p-4, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-3 } },
	{ "linear", { 0, 0x1p-5, 0x1p-4, 0x1p-3, 0x1.ep-4, 0x1.6p-4, 0x1.cp-5, 0x1.8p-6, 0, 0 } },
	{ "cosine",
	  { 0, 0x1p-5, 0x1p-4, 0x1p-3, 0x1.fb14be7fbae58p-4, 0x1.8e39d9cd73464p-4,
	    0x1.9c1d1f0e5967ep-5, 0x1.592675bc57970p-7, 0, 0x1.3c10eaca8ab4ap-5 } },
	{ "cosine_with_restarts",
	  { 0, 0x1p-5, 0x1p-4, 0x1p-3, 0x1.ec835e79946a3p-4, 0x1.3c10eaca8ab4fp-5,
	    0x1.ec835e79946a3p-4, 0x1.3c10eaca8ab4fp-5, 0, 0 } },
	{ "polynomial",
	  { 0, 0x1p-5, 0x1p-4, 0x1p-3, 0x1.c5ep-4, 0x1.02ep-4, 0x1.ef8p-6, 0x1.870p-7, 0x1p-7,
	    0x1p-7 } },
	{ "inverse_sqrt",
	  { 0, 0x1p-5, 0x1p-4, 0x1p-3, 0x1.c9f25c5bfedd9p-4, 0x1.5555555555555p-4,
	    0x1.1c01aa03be896p-4, 0x1.f0b6848d2af1cp-5, 0x1.c9f25c5bfedd9p-5,
	    0x1.91a556151761cp-5 } },
	{ "cosine_with_min_lr",
	  { 0, 0x1p-5, 0x1p-4, 0x1p-3, 0x1.fb92ab72f501cp-4, 0x1.999a7738e7bf4p-4,
	    0x1.d94d68c01d43ep-5, 0x1.681e1b618dd0cp-6, 0x1.999999999999ap-7,
	    0x1.82dc0683166f6p-5 } },
	{ "cosine_warmup_with_min_lr",
	  { 0x1p-5, 0x1p-4, 0x1.8p-4, 0x1.fb92ab72f501cp-4, 0x1.ee763b6d6bf93p-4,
	    0x1.71c52ff1a7fb6p-4, 0x1.82dc0683166fap-5, 0x1.12f3df171ce82p-6, 0x1.bd043e01f18bap-7,
	    0x1.d94d68c01d43ap-5 } },
	{ "warmup_stable_decay",
	  { 0x1.999999999999ap-7, 0x1.4cccccccccccdp-5, 0x1.199999999999ap-4, 0x1p-3, 0x1p-3,
	    0x1p-3, 0x1.7454947816128p-5, 0x1.999999999999ap-7, 0x1.999999999999ap-7,
	    0x1.999999999999ap-7 } },
	{ "LRRangeTest",
	  { 0x1.47ae147ae147bp-7, 0x1.b4e81b4e81b4ep-7, 0x1.1111111111111p-6, 0x1.7e4b17e4b17e4p-6,
	    0x1.b4e81b4e81b50p-6, 0x1.47ae147ae147bp-5, 0x1.b4e81b4e81b4ep-5, 0x1.1111111111111p-4,
	    0x1.3a06d3a06d3a1p-4, 0x1.8bf258bf258bfp-4 } },
	{ "OneCycle",
	  { 0x1.47ae147ae147bp-7, 0x1.9999999999999p-6, 0x1.47ae147ae147ap-5, 0x1.1eb851eb851ebp-4,
	    0x1.5c28f5c28f5c2p-4, 0x1.1eb851eb851ebp-4, 0x1.eb851eb851eb8p-6, 0x1.b4e81b4e81b4fp-8,
	    0x1.23456789abcdfp-8, 0x1.5d867c3ece2a5p-9 } },
	{ "WarmupLR",
	  { 0x1.47ae147ae147bp-7, 0x1.47ae147ae147bp-7, 0x1.c28f5c28f5c2ap-5, 0x1.999999999999ap-4,
	    0x1.999999999999ap-4, 0x1.999999999999ap-4, 0x1.999999999999ap-4, 0x1.999999999999ap-4,
	    0x1.999999999999ap-4, 0x1.999999999999ap-4 } },
	{ "WarmupDecayLR",
	  { 0x1.47ae147ae147bp-7, 0x1.47ae147ae147bp-7, 0x1.0a3d70a3d70a4p-5, 0x1.3d70a3d70a3d7p-4,
	    0x1.999999999999ap-4, 0x1.3d70a3d70a3d7p-4, 0x1.c28f5c28f5c2ap-5, 0x1.0a3d70a3d70a4p-5,
	    0x1p-6, 0x1.47ae147ae147bp-7 } },
	{ "WarmupCosineLR",
	  { 0, 0x1p-5, 0x1.4p-4, 0x1p-3, 0x1.fb92ab72f501cp-4, 0x1.999a7738e7bf4p-4,
	    0x1.d94d68c01d43ep-5, 0x1.681e1b618dd0cp-6, 0x1.999999999999ap-7,
	    0x1.999999999999ap-7 } },
};

/* What all curves share; each looks at its own. */
static struct zinf_lr_options options_of(enum zinf_lr_kind kind)
{
	struct zinf_lr_options options;

	cr_assert_eq(zinf_lr_defaults(kind, &options), 0);
	options.lr = 0.125;
	options.warmup_count = 4;
	options.total_count = 20;
	options.lr_end = 0x1p-7;
	options.power = 2;
	options.min_ratio = 0.1;
	options.warmup_ratio = 0.25;
	options.stable_count = 5;
	options.decay_count = 8;
	options.decay_shape = ZINF_LR_SHAPE_SQRT;
	options.min_lr = 0.01;
	options.max_lr = 0.1;
	options.step_count = 3;
	options.first_count = 6;
	options.second_count = 9;
	options.decay_step_count = 2;
	options.decay_lr_rate = 0.5;
	if (kind == ZINF_LR_COSINE_RESTARTS)
		options.cycle_count = 2;
	if (kind == ZINF_LR_WARMUP_DECAY)
		options.warmup_shape = ZINF_LR_SHAPE_LINEAR;
	return options;
}

Test(lr_values, ten_updates_of_each_kind)
{
	cr_assert_eq(sizeof(curves) / sizeof(curves[0]), 15);
	for (size_t i = 0; i < 15; i++) {
		struct zinf_lr_options options;
		struct zinf_lr_value value;
		enum zinf_lr_kind kind;

		cr_assert_eq(zinf_lr_find(curves[i].name, &kind), 0, "%s", curves[i].name);
		cr_assert_eq(kind, i + 1);
		options = options_of(kind);
		for (size_t k = 0; k < POINT_COUNT; k++) {
			double expected = curves[i].values[k];

			cr_assert_eq(zinf_lr_at(&options, updates[k], &value), 0);
			/* Near its end a cosine is a small difference of what is near 1. */
			cr_expect_leq(fabs(value.lr - expected), 4 * DBL_EPSILON * options.lr,
			              "%s at %d: %a", curves[i].name, (int)updates[k], value.lr);
		}
	}
}

Test(lr_values, momentum_of_a_cycle)
{
	/* beta1 goes the other way; 0.8 before the first update, as the original begins. */
	static const double beta1[] = { 0.8, 0.9 - 0.1 / 6, 0.9 - 0.2 / 6 };
	struct zinf_lr_options options = options_of(ZINF_LR_ONE_CYCLE);
	struct zinf_lr_value value;

	for (uint64_t t = 0; t < 3; t++) {
		cr_assert_eq(zinf_lr_at(&options, t, &value), 0);
		cr_assert(value.has_betas);
		cr_assert_float_eq(value.beta1, beta1[t], 1e-15);
		cr_assert_eq(value.beta2, 0.99);
	}
	cr_assert_eq(zinf_lr_at(&options, 6, &value), 0);
	cr_assert_float_eq(value.beta1, 0.8, 1e-15, "the top of the rate");
	options.decay_momentum_rate = 0.25;
	cr_assert_eq(zinf_lr_at(&options, 17, &value), 0);
	cr_assert_float_eq(value.beta1, 0.9 * (1 + 0.25 * 1), 1e-15, "behind the cycle");
	options.cycles_momentum = false;
	cr_assert_eq(zinf_lr_at(&options, 6, &value), 0);
	cr_assert_not(value.has_betas);
}
