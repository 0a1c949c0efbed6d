/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `step`: an optimizer step as a user of several ranks, or of a disk, sees it.
 *
 *   update   reduce and AdamW of 2 and 4 ranks over Gloo and torch.optim (step_update.c)
 *   compute  forward and backward of zinf-gpt over torch's (step_compute.c)
 *   gpt      zinf-gpt with all its state on NVMe over what computing and the disk allow
 *            (step_gpt.c)
 *
 * Arguments are the names of parts; none: all of them. "quick" among them: small, one round,
 * without peers, to see that it runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/step_own.h"
#include "bench/step_suite.h"
#include "bench/words.h"
#include "common/base/cleanup.h"

static const struct {
	const char *name;
	int (*rows)(struct bench_report *report, const struct step_settings *settings);
} parts[] = {
	{ "update", step_update_rows },
	{ "compute", step_compute_rows },
	{ "gpt", step_gpt_rows },
	{ "disk", step_disk_rows },
};

int main(int argc, char **argv)
{
	const char *directory = argc > 1 ? argv[1] : "build/bench";
	static struct bench_report report;
	char program[400];
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
	bool is_quick = bench_has_word("quick", argc, argv);
	struct step_settings settings = { .program = program,
		                          .rounds = is_quick ? 1 : BENCH_RUNS_MIN,
		                          .is_quick = is_quick };
	bool is_failed = false;

	if (argc > 1 && !strcmp(argv[1], "rank"))
		return step_own_rank(argc, argv);
	if (length < 0)
		return EXIT_FAILURE;
	program[length] = '\0';
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	bench_report_init(&report, "step");
	for (size_t i = 0; i < ZI_COUNT_OF(parts); i++)
		if ((argc - is_quick <= 2 || bench_has_word(parts[i].name, argc, argv)) &&
		    parts[i].rows(&report, &settings)) {
			fprintf(stderr, "bench step: part '%s' failed\n", parts[i].name);
			is_failed = true;
		}
	if (bench_report_write(&report, directory))
		is_failed = true; /* it says so itself */
	return is_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
