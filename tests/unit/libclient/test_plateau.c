/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: zinf_plateau_step() lowers the rate when torch's ReduceLROnPlateau does, and to the same
 * bits. Method: drawn metrics against that class where torch is (lr_curves.py; its rule again
 * elsewhere); a cooldown, a NaN and the floor by hand; each refused option. */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>

#include "tests/unit/libclient/curves.h"
#include "zinf/zinf.h"

#define CASE_COUNT   60
#define METRIC_COUNT 120

static struct zinf_plateau begin(const struct zinf_plateau_options *options, double lr)
{
	struct zinf_plateau plateau;

	cr_assert_eq(zinf_plateau_init(&plateau, options, lr), 0);
	cr_assert_eq(plateau.lr, lr);
	return plateau;
}

static struct zinf_plateau_options draw_options(uint64_t *state)
{
	struct zinf_plateau_options options = ZINF_PLATEAU_OPTIONS_INIT;

	options.patience = (uint32_t)draw(state, 5);
	options.cooldown = (uint32_t)draw(state, 4);
	options.is_max = draw(state, 1);
	options.is_absolute = draw(state, 1);
	options.factor = draw(state, 4) ? draw_part(state) : 0;
	options.threshold = draw(state, 3) ? draw_part(state) * 0.1 : 0;
	options.min_lr = draw(state, 2) ? draw_part(state) * 1e-3 : 0;
	options.eps = draw(state, 2) ? 1e-8 : draw_part(state) * 0.1;
	return options;
}

/* Some get better for a while, some repeat, few are none. */
static double draw_metric(uint64_t *state, double before)
{
	uint64_t kind = draw(state, 12);

	if (kind == 0)
		return NAN;
	if (kind < 4 && !isnan(before))
		return before;
	return draw_part(state) * 4 - 1;
}

Test(plateau, drawn_metrics_move_it_as_torch_says, .timeout = 300)
{
	static struct zinf_plateau_options drawn[CASE_COUNT];
	static double metrics[CASE_COUNT][METRIC_COUNT];
	struct curves curves;
	uint64_t state = 77;

	curves_begin(&curves);
	for (size_t i = 0; i < CASE_COUNT; i++) {
		const struct zinf_plateau_options *o = &drawn[i];

		drawn[i] = draw_options(&state);
		fprintf(curves.cases,
		        "plateau lr=%a patience=%u cooldown=%u is_max=%d is_absolute=%d factor=%a "
		        "threshold=%a min_lr=%a eps=%a metrics=",
		        0.5, o->patience, o->cooldown, o->is_max, o->is_absolute, o->factor,
		        o->threshold, o->min_lr, o->eps);
		for (size_t k = 0; k < METRIC_COUNT; k++) {
			metrics[i][k] = draw_metric(&state, k ? metrics[i][k - 1] : 0);
			fprintf(curves.cases, "%s%a", k ? "," : "", metrics[i][k]);
		}
		fputc('\n', curves.cases);
	}
	curves_ask(&curves);
	for (size_t i = 0; i < CASE_COUNT; i++) {
		struct zinf_plateau plateau = begin(&drawn[i], 0.5);
		char *line = curves_next(&curves);

		for (size_t k = 0; k < METRIC_COUNT; k++) {
			zinf_plateau_step(&plateau, &drawn[i], metrics[i][k]);
			cr_assert(curves_takes(&line, plateau.lr), "case %zu, metric %zu: %a", i, k,
			          plateau.lr);
		}
	}
	curves_end(&curves);
}

Test(plateau, waits_lowers_cools_down_and_stops_at_the_floor)
{
	static const double metrics[] = { 1, 1, NAN, 1, 1, 1, 0.5, 0.5, 0.5 };
	static const double rates[] = { 8, 8, 4, 4, 4, 3, 3, 3, 3 };
	struct zinf_plateau_options options = ZINF_PLATEAU_OPTIONS_INIT;
	struct zinf_plateau plateau;

	options.patience = 1;
	options.cooldown = 1;
	options.factor = 0.5;
	options.min_lr = 3;
	plateau = begin(&options, 8);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		zinf_plateau_step(&plateau, &options, metrics[i]);
		cr_assert_eq(plateau.lr, rates[i], "metric %zu: %g", i, plateau.lr);
	}
	cr_assert_eq(plateau.best, 0.5);
}

#define REFUSES(change, rate)                                                       \
	do {                                                                        \
		struct zinf_plateau_options options = ZINF_PLATEAU_OPTIONS_INIT;    \
		struct zinf_plateau plateau = { .lr = 7 };                          \
                                                                                    \
		change;                                                             \
		cr_expect_eq(zinf_plateau_init(&plateau, &options, rate), -EINVAL); \
		cr_expect_eq(plateau.lr, 7, "untouched");                           \
	} while (0)

Test(plateau, refuses_what_torch_refuses_and_what_is_no_number)
{
	REFUSES(options.factor = 1, 0.5);
	REFUSES(options.factor = -0.1, 0.5);
	REFUSES(options.factor = NAN, 0.5);
	REFUSES(options.threshold = INFINITY, 0.5);
	REFUSES(options.min_lr = -1, 0.5);
	REFUSES(options.min_lr = NAN, 0.5);
	REFUSES(options.eps = -1, 0.5);
	REFUSES(options.eps = INFINITY, 0.5);
	REFUSES(options.bytes = 8, 0.5);
	REFUSES((void)0, NAN);
	REFUSES((void)0, -0.5);
}
