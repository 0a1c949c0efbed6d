/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the example trains in fp16 with a loss scale that moves, as the reference does by itself,
 * to the bit and step for step, whoever is killed in between; and ends where no scale is small
 * enough, saying who and where. Method: zinf-gpt as a command, with first scales that overflow.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/system/gpt.h"

#define SMALL                                                                         \
	"--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --staging 4M " \
	"--ranks 2 --warmup 1 --lr 1e-3 --min-lr 1e-3 --fp16 "
#define FALLS                                                                               \
	SMALL "--loss-scale-init 67108864 --loss-scale-window 3 --loss-scale-hysteresis 2 " \
	      "--json --steps 20 "

TestSuite(gpt_scale, .init = gpt_start, .fini = files_stop, .timeout = 120);

static double scales[21];
static unsigned skips[21];

/* The curve of rank 0's lines in `words`; the last line of a step is the one that counts. Return:
 * how many steps were skipped. */
static unsigned read_curve(void)
{
	unsigned skipped = 0;

	for (unsigned step = 1; step <= 20; step++) {
		const char *line = NULL, *next, *scale, *skip;
		char mark[40];

		(void)snprintf(mark, sizeof(mark), "\"step\":%u,\"rank\":0,", step);
		for (next = strstr(words, mark); next; next = strstr(next + 1, mark))
			line = next;
		cr_assert_not_null(line, "%s is not in: %s", mark, words);
		scale = strstr(line, "\"loss_scale\":");
		skip = strstr(line, "\"skipped\":");
		cr_assert(scale && skip, "%s", line);
		scales[step] = strtod(scale + 13, NULL);
		skips[step] = (unsigned)strtoul(skip + 10, NULL, 10);
		skipped += skips[step];
	}
	return skipped;
}

Test(gpt_scale, the_scale_falls_and_grows_as_the_reference_has_it)
{
	static const char *const kinds[] = { "", "--loss-scaler torch ", "--loss-scaler apex ",
		                             "--grad-reduction per_micro_batch --grad-accum 2 ",
		                             "--strategy zero2 " };

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct zinf_scaler_options options;
		struct zinf_scaler scaler;
		char line[600], reference[700];
		unsigned skipped;

		(void)snprintf(line, sizeof(line), "%s%s--job scale-%u --dump zinf.dump",
		               i == 1 || i == 2 ? SMALL
		                       "--loss-scale-init 67108864 --loss-scale-window 3 "
		                       "--json --steps 20 "
		                                : FALLS,
		               kinds[i], i);
		gpt_run(0, "zinf-gpt", line);
		skipped = read_curve();
		cr_expect_gt(skipped, 2, "%s: it began too high", kinds[i]);
		cr_expect_lt(skipped, 19, "%s: there is something left to train", kinds[i]);
		/* The machine by itself. */
		cr_assert_eq(zinf_scaler_defaults(i == 1   ? ZINF_SCALER_TORCH
		                                  : i == 2 ? ZINF_SCALER_APEX
		                                           : ZINF_SCALER_DEEPSPEED,
		                                  &options),
		             0);
		options.init = 67108864;
		options.window = 3;
		zinf_scaler_init(&scaler, &options);
		for (unsigned step = 1; step <= 20; step++) {
			cr_expect_eq(scales[step], scaler.scale, "%s step %u: %g, not %g", kinds[i],
			             step, scales[step], scaler.scale);
			cr_assert_eq(zinf_scaler_update(&scaler, &options, skips[step]), 0);
		}
		(void)snprintf(reference, sizeof(reference), "%s --reference --dump reference.dump",
		               line);
		gpt_run(0, "zinf-gpt", reference);
		cr_expect_eq(read_curve(), skipped);
		gpt_expect_equal_dumps("zinf.dump", "reference.dump");
	}
}

/* Rank 0 is the one that is killed, behind its line of step 4: another rank's end would end it too,
 * maybe before that line. */
Test(gpt_scale, a_killed_rank_goes_on_in_the_same_curve)
{
	double whole[21];

	gpt_run(0, "zinf-gpt", FALLS "--job whole --dump whole.dump");
	(void)read_curve();
	memcpy(whole, scales, sizeof(whole));
	gpt_run(0, "zinf-gpt",
	        FALLS "--job killed --restarts 1 --exit-after-step 4 --exit-rank 0 "
	              "--dump killed.dump");
	(void)read_curve();
	cr_expect_eq(memcmp(whole, scales, sizeof(whole)), 0);
	gpt_expect_equal_dumps("whole.dump", "killed.dump");
	gpt_run(0, "zctl", "jobs killed");
	system_expect_text(words, "loss scale ");
}

Test(gpt_scale, an_overflow_at_the_least_scale_ends_the_run)
{
	gpt_run(1, "zinf-gpt",
	        SMALL "--loss-scale-init 67108864 --loss-scale-min 67108864 "
	              "--loss-scale-hysteresis 2 --steps 9 --job least");
	system_expect_text(words, "loss scale 6.71089e+07 is the least one (scale_min), and in "
	                          "step 2 rank ");
	system_expect_text(words, "gradient of unit '");
	system_expect_text(words, "SKIPPED: rank ");
	/* It stands behind the step that was skipped, and goes on with another one. */
	gpt_run(0, "zinf-gpt", SMALL "--loss-scale 1024 --steps 4 --job least");
	system_expect_text(words, "resumed at step 2");
}
