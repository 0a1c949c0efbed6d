/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `nvme`: what the NVMe tier reaches of what disk and memory allow.
 *
 *   engine      bytes moved by the engine over fio, whole and in pieces (nvme_pieces.c)
 *   step        an optimizer step with its state on NVMe over fio (nvme_step.c)
 *   fused       the pass over memory that the step makes (nvme_fused.c)
 *   deepspeed   the same step by DeepSpeed's own swapper (nvme_deepspeed.c)
 *   restart     a killed daemon with 10^5 extents, until it is ready (nvme_restart.c)
 *
 * Arguments are the names of parts; none: all of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/nvme_suite.h"
#include "common/base/cleanup.h"

static const struct {
	const char *name;
	int (*rows)(struct bench_report *report);
} parts[] = {
	{ "engine", nvme_engine_rows },   { "fused", nvme_fused_rows },
	{ "step", nvme_step_rows },       { "deepspeed", nvme_deepspeed_rows },
	{ "restart", nvme_restart_rows },
};

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 2; i < argc; i++)
		if (!strcmp(name, argv[i]))
			return true;
	return argc <= 2;
}

int main(int argc, char **argv)
{
	const char *directory = argc > 1 ? argv[1] : "build/bench";
	static struct bench_report report;
	bool is_failed = false;

	bench_report_init(&report, "nvme");
	for (size_t i = 0; i < ZI_COUNT_OF(parts); i++)
		if (is_wanted(parts[i].name, argc, argv) && parts[i].rows(&report)) {
			fprintf(stderr, "bench nvme: part '%s' failed\n", parts[i].name);
			is_failed = true;
		}
	if (bench_report_write(&report, directory))
		is_failed = true; /* it says so itself */
	return is_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
