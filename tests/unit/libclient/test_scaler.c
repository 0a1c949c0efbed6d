/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: loss scales move as DeepSpeed's, torch's and Apex's do: when they fall, when they grow,
 * where they stop; options that make no machine are refused by name. Method: patterns of overflows
 * with the scale after each step written by hand; drawn ones against lr_curves.py, which has other
 * code. */
#include <criterion/criterion.h>
#include <errno.h>
#include <float.h>
#include <math.h>

#include "tests/unit/libclient/curves.h"
#include "zinf/zinf.h"

static struct zinf_scaler_options defaults_of(enum zinf_scaler_kind kind)
{
	struct zinf_scaler_options options;

	cr_assert_eq(zinf_scaler_defaults(kind, &options), 0);
	cr_assert_eq(options.bytes, sizeof(options));
	cr_assert_eq(zinf_scaler_check(&options, NULL, 0), 0);
	return options;
}

static struct zinf_scaler begin(const struct zinf_scaler_options *options)
{
	struct zinf_scaler scaler;
	char text[256] = "";

	cr_assert_eq(zinf_scaler_check(options, text, sizeof(text)), 0, "%s", text);
	zinf_scaler_init(&scaler, options);
	return scaler;
}

/* @steps: 'x' an overflow, '.' none; @scales: after each of them. */
static void expect_scales(const struct zinf_scaler_options *options, const char *steps,
                          const double *scales)
{
	struct zinf_scaler scaler = begin(options);
	uint64_t skipped = 0;

	for (size_t i = 0; steps[i]; i++) {
		skipped += steps[i] == 'x';
		cr_assert_eq(zinf_scaler_update(&scaler, options, steps[i] == 'x'), 0);
		cr_assert_eq(scaler.scale, scales[i], "%s, step %zu: %g", steps, i + 1,
		             scaler.scale);
		cr_assert_eq(scaler.skipped_count, skipped);
	}
}
#define SCALES(...) ((const double[]){ __VA_ARGS__ })

/* How many clean steps until the scale is another one. */
static uint32_t clean_until_growth(struct zinf_scaler *scaler,
                                   const struct zinf_scaler_options *options)
{
	double scale = scaler->scale;
	uint32_t count = 0;

	while (scaler->scale == scale && count < 10000) {
		cr_assert_eq(zinf_scaler_update(scaler, options, false), 0);
		count++;
	}
	cr_assert_eq(scaler->scale, 2 * scale);
	return count;
}

Test(scaler, growth_comes_after_the_window)
{
	struct zinf_scaler_options options = defaults_of(ZINF_SCALER_DEEPSPEED);
	struct zinf_scaler scaler = begin(&options);

	cr_assert_eq(scaler.scale, 65536);
	cr_assert_eq(clean_until_growth(&scaler, &options), 1001,
	             "the first step has no overflow "
	             "before it");
	cr_assert_eq(clean_until_growth(&scaler, &options), 1000);
	cr_assert_eq(zinf_scaler_update(&scaler, &options, true), 0);
	cr_assert_eq(clean_until_growth(&scaler, &options), 1001);
	options = defaults_of(ZINF_SCALER_TORCH);
	scaler = begin(&options);
	cr_assert_eq(clean_until_growth(&scaler, &options), 2000);
	cr_assert_eq(clean_until_growth(&scaler, &options), 2000);
	options = defaults_of(ZINF_SCALER_APEX);
	scaler = begin(&options);
	cr_assert_eq(clean_until_growth(&scaler, &options), 2000);
}

Test(scaler, deepspeed_has_patience_once_until_it_grows)
{
	struct zinf_scaler_options options = defaults_of(ZINF_SCALER_DEEPSPEED);

	options.init = 64;
	options.window = 3;
	/* Two overflows halve, the third does so at once; three clean steps behind the first clean
	 * one grow, and give the patience back. */
	expect_scales(&options, "xxx....xx", SCALES(64, 32, 16, 16, 16, 16, 32, 32, 16));
	options.is_consecutive = true;
	expect_scales(&options, "xx.x.xx", SCALES(64, 32, 32, 32, 32, 32, 16));
	options.is_consecutive = false;
	expect_scales(&options, "xx.x.xx", SCALES(64, 32, 32, 16, 16, 8, 4));
	options.hysteresis = 1;
	expect_scales(&options, "x.x", SCALES(32, 32, 16));
	options.hysteresis = 3;
	expect_scales(&options, "xxxx", SCALES(64, 64, 32, 16));
}

Test(scaler, deepspeed_ends_a_run_at_its_least_scale)
{
	struct zinf_scaler_options options = defaults_of(ZINF_SCALER_DEEPSPEED);
	struct zinf_scaler scaler, before;

	options.init = 5;
	options.min = 2;
	options.hysteresis = 1;
	expect_scales(&options, "xx.", SCALES(2.5, 2, 2));
	scaler = begin(&options);
	cr_assert_eq(zinf_scaler_update(&scaler, &options, true), 0);
	cr_assert_eq(zinf_scaler_update(&scaler, &options, true), 0);
	before = scaler;
	cr_assert_eq(zinf_scaler_update(&scaler, &options, true), -ERANGE);
	cr_assert_eq(memcmp(&scaler, &before, sizeof(scaler)), 0, "as it was");
	cr_assert_eq(zinf_scaler_update(&scaler, &options, false), 0, "a clean step goes on");
}

Test(scaler, torch_has_no_floor_and_stops_at_f32)
{
	struct zinf_scaler_options options = defaults_of(ZINF_SCALER_TORCH);

	options.init = 0x1p126;
	options.window = 2;
	expect_scales(&options, "......",
	              SCALES(0x1p126, 0x1p127, 0x1p127, 0x1p127, 0x1p127, 0x1p127));
	options.init = 1;
	expect_scales(&options, "xxx.x..", SCALES(0.5, 0.25, 0.125, 0.125, 0.0625, 0.0625, 0.125));
	options.init = 0.1;
	options.growth = 1.5;
	options.backoff = 0.3;
	expect_scales(&options, "x..",
	              SCALES((float)(0.1f * 0.3), (float)(0.1f * 0.3),
	                     (float)((float)(0.1f * 0.3) * 1.5)));
}

/* Of overflows in a row: the last one that is taken leaves @scale, and the next one nothing. */
static void expect_fall_ends(const struct zinf_scaler_options *options, double scale)
{
	struct zinf_scaler scaler = begin(options);
	struct zinf_scaler before;
	uint32_t count = 0;
	int r;

	do {
		before = scaler;
		r = zinf_scaler_update(&scaler, options, true);
	} while (!r && ++count < 2000);
	cr_assert_eq(r, -ERANGE, "after %u", count);
	cr_assert_eq(memcmp(&scaler, &before, sizeof(scaler)), 0, "as it was");
	cr_assert_eq(scaler.scale, scale, "%a", scaler.scale);
	cr_assert(isfinite((float)(1.0 / scaler.scale)));
	cr_assert_eq(scaler.skipped_count, count);
}

Test(scaler, a_fall_ends_where_the_inverse_is_no_f32)
{
	struct zinf_scaler_options options = defaults_of(ZINF_SCALER_TORCH);

	expect_fall_ends(&options, 0x1p-127);
	options.backoff = 0.001;
	options.init = 0x1p-126; /* At once. */
	expect_fall_ends(&options, 0x1p-126);
	options = defaults_of(ZINF_SCALER_APEX);
	expect_fall_ends(&options, 0x1p-127);
	options.min = 0x1p-200; /* Below what is reached. */
	expect_fall_ends(&options, 0x1p-127);
}

Test(scaler, growth_without_a_cap_stays_where_the_inverse_would_be_zero)
{
	struct zinf_scaler_options options = defaults_of(ZINF_SCALER_DEEPSPEED);
	struct zinf_scaler scaler;

	options.window = 1;
	scaler = begin(&options);
	for (uint32_t i = 0; i < 2000; i++)
		cr_assert_eq(zinf_scaler_update(&scaler, &options, false), 0);
	cr_assert_eq(scaler.scale, 0x1p149, "%a", scaler.scale);
	cr_assert((float)(1.0 / scaler.scale) > 0);
	options.hysteresis = 1;
	cr_assert_eq(zinf_scaler_update(&scaler, &options, true), 0);
	cr_assert_eq(scaler.scale, 0x1p148, "and comes down again");
}

Test(scaler, apex_has_a_cap_and_a_floor_if_asked)
{
	struct zinf_scaler_options options = defaults_of(ZINF_SCALER_APEX);

	options.init = 0x1p25;
	options.window = 1;
	expect_scales(&options, "..x", SCALES(0x1p24, 0x1p24, 0x1p23));
	options.init = 1;
	expect_scales(&options, "xx..", SCALES(0.5, 0.25, 0.5, 1));
	options.min = 0.4;
	options.window = 2;
	expect_scales(&options, "xxx..", SCALES(0.5, 0.4, 0.4, 0.4, 0.8));
}

Test(scaler, what_is_static_stays)
{
	struct zinf_scaler_options options = defaults_of(ZINF_SCALER_STATIC);

	options.init = 128;
	expect_scales(&options, "x.x", SCALES(128, 128, 128));
	options = defaults_of(ZINF_SCALER_NONE);
	expect_scales(&options, "x.", SCALES(1, 1));
}

static struct zinf_scaler_options draw_options(uint64_t *state, enum zinf_scaler_kind kind)
{
	struct zinf_scaler_options options = defaults_of(kind);

	options.window = 1 + (uint32_t)draw(state, 12);
	options.hysteresis = 1 + (uint32_t)draw(state, 3);
	options.is_consecutive = draw(state, 1);
	options.init = ldexp(1 + draw_part(state), (int)draw(state, 20));
	options.min = kind == ZINF_SCALER_DEEPSPEED ? options.init * 0x1p-8 : draw_part(state);
	options.max = ldexp(options.init, (int)draw(state, 6));
	if (kind != ZINF_SCALER_TORCH)
		return options;
	options.growth = 1.01 + draw_part(state) * 3;
	options.backoff = 0.01 + draw_part(state) * 0.9;
	return options;
}

#define DRAWN_CASES 100
#define DRAWN_STEPS 1000

Test(scaler, drawn_overflows_move_it_as_python_says, .timeout = 60)
{
	static const char *const names[] = { NULL, "static", "deepspeed", "torch", "apex" };
	static struct zinf_scaler_options drawn[DRAWN_CASES];
	static bool overflows[DRAWN_CASES][DRAWN_STEPS];
	struct curves curves;
	uint64_t state = 5;

	curves_begin(&curves);
	for (size_t i = 0; i < DRAWN_CASES; i++) {
		enum zinf_scaler_kind kind = (enum zinf_scaler_kind)(1 + i % 4);
		uint64_t rarity = 2 + draw(&state, 20);

		drawn[i] = draw_options(&state, kind);
		fprintf(curves.cases,
		        "%s window=%u hysteresis=%u is_consecutive=%d init=%a min=%a max=%a "
		        "growth=%a backoff=%a overflows=",
		        names[kind], drawn[i].window, drawn[i].hysteresis, drawn[i].is_consecutive,
		        drawn[i].init, drawn[i].min, drawn[i].max, drawn[i].growth,
		        drawn[i].backoff);
		for (size_t step = 0; step < DRAWN_STEPS; step++) {
			overflows[i][step] = draw(&state, rarity) == 0;
			fputc('0' + overflows[i][step], curves.cases);
		}
		fputc('\n', curves.cases);
	}
	curves_ask(&curves);
	for (size_t i = 0; i < DRAWN_CASES; i++) {
		struct zinf_scaler scaler = begin(&drawn[i]);
		char *line = curves_next(&curves);
		int r = 0;

		for (size_t step = 0; step < DRAWN_STEPS && r == 0; step++) {
			r = zinf_scaler_update(&scaler, &drawn[i], overflows[i][step]);
			cr_assert(curves_takes(&line, r ? -1 : scaler.scale),
			          "case %zu, step %zu: %a, in front of %.40s", i, step,
			          scaler.scale, line);
		}
		cr_assert_eq(strspn(line, " \n"), strlen(line));
	}
	curves_end(&curves);
}

/* @change is made to options that are fine. */
#define REFUSES(of_kind, change, sentence)                                                 \
	do {                                                                               \
		struct zinf_scaler_options o = defaults_of(ZINF_SCALER_##of_kind);         \
		char text[256] = "";                                                       \
                                                                                           \
		change;                                                                    \
		cr_expect_eq(zinf_scaler_check(&o, text, sizeof(text)), -EINVAL, #change); \
		cr_expect_str_eq(text, sentence);                                          \
	} while (0)

Test(scaler, what_makes_no_machine_is_refused_by_name)
{
	struct zinf_scaler_options untouched = { .init = 7 };

	REFUSES(STATIC, o.init = 0,
	        "static loss scale: init 0; allowed is 1.17549e-38 to 3.40282e+38");
	REFUSES(TORCH, o.init = NAN,
	        "torch loss scale: init nan; allowed is 1.17549e-38 to 3.40282e+38");
	REFUSES(DEEPSPEED, o.window = 0, "deepspeed loss scale: window 0; at least 1");
	REFUSES(TORCH, o.growth = 1, "torch loss scale: growth 1 must be above 1");
	REFUSES(TORCH, o.backoff = 1, "torch loss scale: backoff 1 must be above 0 and below 1");
	REFUSES(APEX, o.growth = 3,
	        "apex loss scale: growth 3 and backoff 0.5; they are 2 and 0.5 in all but torch's");
	REFUSES(DEEPSPEED, o.backoff = 0.25,
	        "deepspeed loss scale: growth 2 and backoff 0.25; they are 2 and 0.5 in all but "
	        "torch's");
	REFUSES(DEEPSPEED, o.hysteresis = 0, "deepspeed loss scale: hysteresis 0; at least 1");
	REFUSES(DEEPSPEED, o.min = 70000,
	        "deepspeed loss scale: min 70000; allowed is 1.17549e-38 to 65536");
	REFUSES(APEX, o.max = INFINITY,
	        "apex loss scale: max inf; allowed is 1.17549e-38 to 3.40282e+38");
	REFUSES(APEX, o.min = -1, "apex loss scale: min -1; allowed is 0 to 65536");
	REFUSES(NONE, o.kind = (enum zinf_scaler_kind)5,
	        "there is no loss scale of kind 5; allowed is 0 to 4");
	REFUSES(TORCH, o.bytes = 8, "a loss scale of 8 bytes: begin with zinf_scaler_defaults()");
	cr_assert_eq(zinf_scaler_defaults((enum zinf_scaler_kind)5, &untouched), -EINVAL);
	cr_assert_eq(untouched.init, 7);
}

Test(scaler, later_fields_are_refused_once_set)
{
	struct {
		struct zinf_scaler_options options;
		char later[8];
	} longer = { .options = defaults_of(ZINF_SCALER_APEX) };
	char text[256] = "";

	longer.options.bytes += sizeof(longer.later);
	cr_assert_eq(zinf_scaler_check(&longer.options, text, sizeof(text)), 0);
	longer.later[7] = 1;
	cr_assert_eq(zinf_scaler_check(&longer.options, text, sizeof(text)), -EINVAL);
	cr_assert_eq(strncmp(text, "fields of a later libzinf", 25), 0);
}
