/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: zinf_lr_at() gives the bits of the originals over whole curves, also where they begin and
 * behind their end; what makes no curve is refused by name. Method: drawn schedules against
 * lr_curves.py, which computes them in Python; values that the originals gave, as constants; one
 * refused value for each field. */
#include <criterion/criterion.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "tests/unit/libclient/curves.h"
#include "zinf/zinf.h"

#define KIND_COUNT    15
#define CASES_OF_KIND 80
#define COUNT_LIMIT   (1ull << 53)

static struct zinf_lr_options defaults_of(enum zinf_lr_kind kind)
{
	struct zinf_lr_options options;

	cr_assert_eq(zinf_lr_defaults(kind, &options), 0);
	options.lr = 0.5;
	options.total_count = 50;
	if (kind == ZINF_LR_ONE_CYCLE)
		options.max_lr = 0.1;
	return options;
}

static struct zinf_lr_value value_at(const struct zinf_lr_options *options, uint64_t updates)
{
	struct zinf_lr_value value;
	char text[256] = "";

	cr_assert_eq(zinf_lr_check(options, text, sizeof(text)), 0, "%s", text);
	cr_assert_eq(zinf_lr_at(options, updates, &value), 0);
	return value;
}

/* Counts at which something changes come up often. */
static uint64_t draw_count(uint64_t *state, uint64_t max)
{
	return draw(state, 2) ? draw(state, max) : draw(state, 3);
}

static enum zinf_lr_shape draw_shape(uint64_t *state, enum zinf_lr_kind kind)
{
	if (kind == ZINF_LR_WARMUP_STABLE_DECAY)
		return (enum zinf_lr_shape)(1 + draw(state, 2));
	return draw(state, 1) ? ZINF_LR_SHAPE_LOG : ZINF_LR_SHAPE_LINEAR;
}

static struct zinf_lr_options draw_schedule(uint64_t *state, enum zinf_lr_kind kind)
{
	struct zinf_lr_options options = defaults_of(kind);
	bool is_deepspeed = kind > ZINF_LR_WARMUP_STABLE_DECAY;

	options.lr = draw_part(state) + 1e-6;
	options.warmup_count = draw_count(state, 60) + is_deepspeed;
	options.total_count = options.warmup_count + 1 + draw_count(state, 150);
	if (kind != ZINF_LR_POLYNOMIAL && draw(state, 5) == 0)
		options.total_count = 1 + draw(state, options.warmup_count);
	if (draw(state, 2) == 0)
		options.cycle_count =
			draw(state, 1) ? draw_part(state) * 4 : (double)draw(state, 5);
	options.lr_end = options.lr * draw_part(state);
	options.power = draw(state, 1) ? draw_part(state) * 3 : (double)draw(state, 3);
	options.timescale = draw(state, 1) ? draw(state, 200) : 0;
	options.min_ratio = draw(state, 3) ? draw_part(state) : (double)draw(state, 1);
	options.warmup_ratio = draw_part(state);
	if (kind == ZINF_LR_COSINE_WARMUP_MIN && draw(state, 1))
		options.warmup_ratio = -1;
	options.stable_count = draw_count(state, 40);
	options.decay_count = draw_count(state, 60);
	options.warmup_shape = draw_shape(state, kind);
	options.decay_shape = draw_shape(state, ZINF_LR_WARMUP_STABLE_DECAY);
	options.min_lr = draw(state, 2) ? draw_part(state) * 1e-2 : 0;
	options.max_lr = options.min_lr + draw_part(state) + 1e-6;
	if (kind == ZINF_LR_WARMUP && draw(state, 1))
		options.max_lr = -1;
	options.step_rate = draw_part(state) * 3;
	options.step_count = 1 + draw_count(state, 30);
	options.is_staircase = draw(state, 1);
	options.cycles_momentum = draw(state, 2) != 0;
	options.first_count = 1 + draw_count(state, 60);
	options.second_count = draw_count(state, 60);
	options.first_stairs = (uint32_t)draw_count(state, 12);
	options.second_stairs = (int32_t)draw_count(state, 12) - 1;
	options.decay_step_count = draw(state, 2) ? draw_part(state) * 20 : (double)draw(state, 3);
	options.decay_lr_rate = draw(state, 2) ? draw_part(state) : 0;
	options.decay_momentum_rate = draw(state, 2) ? draw_part(state) * 0.1 : 0;
	options.min_momentum = draw_part(state);
	options.max_momentum = draw_part(state);
	return options;
}

/* A fifth past the last count at which something changes. */
static uint64_t curve_count(const struct zinf_lr_options *o)
{
	uint64_t end = o->total_count > o->warmup_count ? o->total_count : o->warmup_count;

	if (o->kind == ZINF_LR_WARMUP_STABLE_DECAY)
		end = o->warmup_count + o->stable_count + o->decay_count;
	if (o->kind == ZINF_LR_ONE_CYCLE)
		end = o->first_count + (o->second_count ? o->second_count : o->first_count);
	return end + end / 5 + 5;
}

static void write_case(FILE *file, const struct zinf_lr_options *o)
{
	fprintf(file, "%s lr=%a warmup_count=%" PRIu64 " total_count=%" PRIu64 " cycle_count=%a ",
	        zinf_lr_name(o->kind), o->lr, o->warmup_count, o->total_count, o->cycle_count);
	fprintf(file, "lr_end=%a power=%a timescale=%" PRIu64 " min_ratio=%a warmup_ratio=%a ",
	        o->lr_end, o->power, o->timescale, o->min_ratio, o->warmup_ratio);
	fprintf(file,
	        "stable_count=%" PRIu64 " decay_count=%" PRIu64 " warmup_shape=%d decay_shape=%d "
	        "min_lr=%a max_lr=%a ",
	        o->stable_count, o->decay_count, o->warmup_shape, o->decay_shape, o->min_lr,
	        o->max_lr);
	fprintf(file,
	        "step_rate=%a step_count=%" PRIu64 " is_staircase=%d cycles_momentum=%d "
	        "first_count=%" PRIu64 " second_count=%" PRIu64 " ",
	        o->step_rate, o->step_count, o->is_staircase, o->cycles_momentum, o->first_count,
	        o->second_count);
	fprintf(file, "first_stairs=%u second_stairs=%d decay_step_count=%a decay_lr_rate=%a ",
	        o->first_stairs, o->second_stairs, o->decay_step_count, o->decay_lr_rate);
	fprintf(file, "decay_momentum_rate=%a min_momentum=%a max_momentum=%a count=%" PRIu64 "\n",
	        o->decay_momentum_rate, o->min_momentum, o->max_momentum, curve_count(o));
}

Test(lr, whole_curves_have_the_bits_of_python, .timeout = 120)
{
	static struct zinf_lr_options drawn[KIND_COUNT][CASES_OF_KIND];
	struct curves curves;
	uint64_t state = 20261122, values = 0;

	curves_begin(&curves);
	for (int kind = 1; kind <= KIND_COUNT; kind++)
		for (int i = 0; i < CASES_OF_KIND; i++) {
			drawn[kind - 1][i] = draw_schedule(&state, (enum zinf_lr_kind)kind);
			write_case(curves.cases, &drawn[kind - 1][i]);
		}
	curves_ask(&curves);
	for (int kind = 1; kind <= KIND_COUNT; kind++)
		for (int i = 0; i < CASES_OF_KIND; i++) {
			const struct zinf_lr_options *options = &drawn[kind - 1][i];
			uint64_t count = curve_count(options);
			char *line = curves_next(&curves);

			for (uint64_t t = 0; t < count; t++, values++) {
				struct zinf_lr_value value = value_at(options, t);

				cr_assert(curves_takes(&line, value.lr),
				          "%s, case %d, update %" PRIu64 ": %a, in front of %.60s",
				          zinf_lr_name(options->kind), i, t, value.lr, line);
				cr_assert_eq(value.has_betas,
				             kind == ZINF_LR_ONE_CYCLE && options->cycles_momentum);
				if (!value.has_betas)
					continue;
				cr_assert(curves_takes(&line, value.beta1),
				          "OneCycle, case %d, update %" PRIu64 ": beta1 %a", i, t,
				          value.beta1);
				cr_assert_eq(value.beta2, 0.99);
			}
			cr_assert_eq(strspn(line, " \n"), strlen(line));
		}
	curves_end(&curves);
	cr_assert_gt(values, 50000);
}

Test(lr, names_are_the_originals)
{
	enum zinf_lr_kind kind;
	struct zinf_lr_options options;

	for (int i = 1; i <= KIND_COUNT; i++) {
		cr_assert_not_null(zinf_lr_name((enum zinf_lr_kind)i));
		cr_assert_eq(zinf_lr_find(zinf_lr_name((enum zinf_lr_kind)i), &kind), 0);
		cr_assert_eq(kind, i);
		cr_assert_eq(zinf_lr_defaults(kind, &options), 0);
		cr_assert_eq(options.bytes, sizeof(options));
		cr_assert_eq(options.kind, i);
		cr_assert_eq(options.lr, 0);
	}
	cr_assert_str_eq(zinf_lr_name(ZINF_LR_COSINE_WARMUP_MIN), "cosine_warmup_with_min_lr");
	cr_assert_str_eq(zinf_lr_name(ZINF_LR_WARMUP_DECAY), "WarmupDecayLR");
	kind = ZINF_LR_LINEAR;
	cr_assert_eq(zinf_lr_find("Cosine", &kind), -ENOENT);
	cr_assert_eq(zinf_lr_find("", &kind), -ENOENT);
	cr_assert_eq(kind, ZINF_LR_LINEAR, "untouched");
	cr_assert_null(zinf_lr_name((enum zinf_lr_kind)0));
	cr_assert_null(zinf_lr_name((enum zinf_lr_kind)16));
	cr_assert_null(zinf_lr_name((enum zinf_lr_kind) - 1));
	cr_assert_eq(zinf_lr_defaults((enum zinf_lr_kind)0, &options), -EINVAL);
	cr_assert_eq(zinf_lr_defaults((enum zinf_lr_kind)16, &options), -EINVAL);
}

/* @change is made to a schedule that is fine. */
#define REFUSES(of_kind, change, sentence)                                             \
	do {                                                                           \
		struct zinf_lr_options o = defaults_of(ZINF_LR_##of_kind);             \
		struct zinf_lr_value value = { .lr = 7 };                              \
		char text[256] = "";                                                   \
                                                                                       \
		(void)value_at(&o, 3);                                                 \
		change;                                                                \
		cr_expect_eq(zinf_lr_check(&o, text, sizeof(text)), -EINVAL, #change); \
		cr_expect_str_eq(text, sentence);                                      \
		cr_expect_eq(zinf_lr_at(&o, 3, &value), -EINVAL);                      \
		cr_expect_eq(value.lr, 7, "untouched");                                \
	} while (0)

Test(lr, what_makes_no_curve_is_refused_by_field)
{
	REFUSES(LINEAR, o.lr = NAN, "linear: lr nan must be a number of at least 0");
	REFUSES(CONSTANT, o.lr = -0.5, "constant: lr -0.5 must be a number of at least 0");
	REFUSES(WARMUP, o.lr = INFINITY, "WarmupLR: lr inf must be a number of at least 0");
	REFUSES(CONSTANT_WARMUP, o.warmup_count = COUNT_LIMIT,
	        "constant_with_warmup: warmup_count 9007199254740992; allowed is 0 to "
	        "9007199254740991");
	REFUSES(WARMUP_COSINE, o.warmup_count = 0,
	        "WarmupCosineLR: warmup_count 0; allowed is 1 to 9007199254740991");
	REFUSES(COSINE, o.total_count = 0,
	        "cosine: total_count 0; allowed is 1 to 9007199254740991");
	REFUSES(COSINE_RESTARTS, o.cycle_count = -1,
	        "cosine_with_restarts: cycle_count -1; allowed is 0 to 9007199254740991");
	REFUSES(POLYNOMIAL, o.lr_end = -1e-9,
	        "polynomial: lr_end -1.0000000000000001e-09 must be a number of at least 0");
	REFUSES(POLYNOMIAL, o.lr_end = o.lr, "polynomial: lr_end 0.5 must be below lr 0.5");
	REFUSES(POLYNOMIAL, o.power = -1, "polynomial: power -1 must be a number of at least 0");
	REFUSES(POLYNOMIAL, o.warmup_count = 50,
	        "polynomial: total_count 50 must be above warmup_count 50");
	REFUSES(INVERSE_SQRT, o.timescale = COUNT_LIMIT,
	        "inverse_sqrt: timescale 9007199254740992; allowed is 0 to 9007199254740991");
	REFUSES(COSINE_MIN, o.min_ratio = 1.5,
	        "cosine_with_min_lr: min_ratio 1.5; allowed is 0 to 1");
	REFUSES(WARMUP_COSINE, o.min_ratio = -0.5,
	        "WarmupCosineLR: min_ratio -0.5; allowed is 0 to 1");
	REFUSES(WARMUP_COSINE, o.warmup_ratio = -1,
	        "WarmupCosineLR: warmup_ratio -1; allowed is 0 to 1");
	REFUSES(COSINE_WARMUP_MIN, o.warmup_ratio = -0.5,
	        "cosine_warmup_with_min_lr: warmup_ratio -0.5; allowed is -1 (none given) or 0 to "
	        "1");
	REFUSES(WARMUP_STABLE_DECAY, o.stable_count = COUNT_LIMIT,
	        "warmup_stable_decay: stable_count 9007199254740992; allowed is 0 to "
	        "9007199254740991");
	REFUSES(WARMUP_STABLE_DECAY, o.decay_count = UINT64_MAX,
	        "warmup_stable_decay: decay_count 18446744073709551615; allowed is 0 to "
	        "9007199254740991");
	REFUSES(WARMUP_STABLE_DECAY, o.warmup_shape = ZINF_LR_SHAPE_LOG,
	        "warmup_stable_decay: warmup_shape 4; allowed are linear (1), cosine (2) and "
	        "1-sqrt (3)");
	REFUSES(WARMUP_STABLE_DECAY, o.decay_shape = (enum zinf_lr_shape)99,
	        "warmup_stable_decay: decay_shape 99; allowed are linear (1), cosine (2) and "
	        "1-sqrt (3)");
	REFUSES(WARMUP, o.warmup_shape = ZINF_LR_SHAPE_COSINE,
	        "WarmupLR: warmup_shape 2; allowed are linear (1) and log (4)");
	REFUSES(RANGE_TEST, o.min_lr = -1, "LRRangeTest: min_lr -1 must be a number of at least 0");
	REFUSES(WARMUP, o.max_lr = -0.5,
	        "WarmupLR: max_lr -0.5; allowed is -1 (none given) or a number of at least 0");
	REFUSES(WARMUP_DECAY, o.max_lr = -1,
	        "WarmupDecayLR: max_lr -1 must be a number of at least 0");
	REFUSES(ONE_CYCLE, o.max_lr = 0, "OneCycle: max_lr 0 must be a number above 0");
	REFUSES(RANGE_TEST, o.step_rate = NAN,
	        "LRRangeTest: step_rate nan must be a number of at least 0");
	REFUSES(RANGE_TEST, o.step_count = 0,
	        "LRRangeTest: step_count 0; allowed is 1 to 9007199254740991");
	REFUSES(ONE_CYCLE, o.first_count = 0,
	        "OneCycle: first_count 0; allowed is 1 to 9007199254740991");
	REFUSES(ONE_CYCLE, o.second_count = COUNT_LIMIT,
	        "OneCycle: second_count 9007199254740992; allowed is 0 to 9007199254740991");
	REFUSES(ONE_CYCLE, o.second_stairs = -2,
	        "OneCycle: second_stairs -2; allowed is -1 (none given) or 0 to 2147483647");
	REFUSES(ONE_CYCLE, o.decay_step_count = -1,
	        "OneCycle: decay_step_count -1 must be a number of at least 0");
	REFUSES(ONE_CYCLE, o.decay_lr_rate = -1,
	        "OneCycle: decay_lr_rate -1 must be a number of at least 0");
	REFUSES(ONE_CYCLE, o.decay_momentum_rate = -INFINITY,
	        "OneCycle: decay_momentum_rate -inf is no number");
	REFUSES(ONE_CYCLE, o.min_momentum = 1,
	        "OneCycle: min_momentum 1 must be at least 0 and below 1");
	REFUSES(ONE_CYCLE, o.max_momentum = -0.5,
	        "OneCycle: max_momentum -0.5 must be at least 0 and below 1");
	REFUSES(LINEAR, o.kind = (enum zinf_lr_kind)16,
	        "there is no schedule of kind 16; allowed is 1 to 15");
	REFUSES(LINEAR, o.bytes -= 8, "a schedule of 200 bytes: begin with zinf_lr_defaults()");
}

Test(lr, fields_of_other_kinds_are_not_looked_at)
{
	struct zinf_lr_options options = defaults_of(ZINF_LR_RANGE_TEST);

	options.lr = NAN;
	options.total_count = 0;
	options.min_ratio = -3;
	options.warmup_shape = (enum zinf_lr_shape)0;
	options.first_count = 0;
	cr_assert_eq(value_at(&options, 0).lr, 1e-3);
}

Test(lr, later_fields_and_texts_that_are_too_short_do_no_harm)
{
	struct {
		struct zinf_lr_options options;
		char later[16];
	} longer = { .options = defaults_of(ZINF_LR_LINEAR) };
	struct zinf_lr_value value;
	char text[8];

	longer.options.bytes += sizeof(longer.later);
	(void)value_at(&longer.options, 1);
	longer.later[15] = 1;
	cr_assert_eq(zinf_lr_check(&longer.options, text, sizeof(text)), -EINVAL);
	cr_assert_str_eq(text, "fields ");
	cr_assert_eq(zinf_lr_check(&longer.options, NULL, 0), -EINVAL);
	longer.options.bytes = 5000;
	cr_assert_eq(zinf_lr_check(&longer.options, NULL, 0), -EINVAL);
	longer.options.bytes = sizeof(longer.options);
	cr_assert_eq(zinf_lr_at(&longer.options, COUNT_LIMIT - 1, &value), 0);
	cr_assert_eq(value.lr, 0, "the run is long over");
	cr_assert_eq(zinf_lr_at(&longer.options, COUNT_LIMIT, &value), -EINVAL);
}
