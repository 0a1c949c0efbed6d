/* SPDX-License-Identifier: Apache-2.0 */
/* What the runners of check_coll share; see runner.h. */
#include "tests/coll/runner.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define TIMEOUT_MS 30000u

void runner_init(struct runner *runner, runner_run_fn run, const char *name)
{
	*runner = (struct runner){ .run = run, .name = name, .timeout_ms = TIMEOUT_MS };
	runner->reports = mmap(NULL, SCRIPT_RANKS_MAX * sizeof(*runner->reports),
	                       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (runner->reports == MAP_FAILED)
		abort();
}

void runner_note_end(struct rank_report *report, int end)
{
	report->call = INT32_MAX;
	if (end == -ETIMEDOUT)
		(void)snprintf(report->words, sizeof report->words, "hung, was killed");
	else if (end >= 1000)
		(void)snprintf(report->words, sizeof report->words, "died: signal %d", end - 1000);
	else
		(void)snprintf(report->words, sizeof report->words, "ended with %d", end);
}

int runner_deinit(struct runner *runner)
{
	int r = 0;

	for (uint32_t i = 0; i < runner->harness_count; i++)
		r |= harness_stop(&runner->harness[i]);
	free(runner->harness);
	(void)munmap(runner->reports, SCRIPT_RANKS_MAX * sizeof(*runner->reports));
	return r;
}
