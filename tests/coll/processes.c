/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases of check_coll over zinf.h: forked ranks of a job of a real zinfd. Every case is a new
 * incarnation of the job; the daemon stays, and at its end must have left nothing but what belongs
 * there (harness_stop()).
 */
#include <stdlib.h>
#include <string.h>

#include "tests/coll/runner.h"
#include "tests/coll/zinf_rank.h"

#define CASE_TIMEOUT_MS 240000u

struct body {
	const struct runner *runner;
	const struct script *script;
	uint32_t rank;
};

static int fail(struct rank_report *report, const char *when, int r, const char *words)
{
	report->call = INT32_MAX;
	(void)snprintf(report->words, sizeof report->words, "%s: %s: %s", when, strerror(-r),
	               words);
	return 1;
}

static int rank_main(void *arg)
{
	const struct body *body = arg;
	const struct runner *runner = body->runner;
	struct rank_report *report = &runner->reports[body->rank];
	struct zinf_rank rank;
	char incarnation[32];
	int r;

	(void)snprintf(incarnation, sizeof incarnation, "%u", runner->incarnation);
	r = zinf_rank_open(&rank, &(struct zinf_rank_options){
					  .socket_path = runner->harness->socket_path,
					  .job = "check-coll",
					  .incarnation = incarnation,
					  .script = body->script,
					  .rank = body->rank,
					  .timeout_ms = runner->timeout_ms,
				  });
	if (r) {
		r = fail(report, "before the first call", r, rank.words);
	} else {
		rank.link.lie = body->rank == 0 ? runner->lie : RANK_HONEST;
		r = rank_run(&rank.link, body->script, report);
		/* Who leaves breaks the groups of those who still call. */
		if (!r && zinf_coll_barrier(rank.zinf, NULL))
			r = fail(report, "the barrier at the end", 0, zinf_error_text(rank.zinf));
	}
	zinf_rank_close(&rank);
	return r != 0;
}

/* ---- a case ---- */

static int run(struct runner *runner, const struct script *script)
{
	struct body bodies[SCRIPT_RANKS_MAX];
	pid_t pids[SCRIPT_RANKS_MAX];
	int result = 0;

	runner->incarnation++;
	for (uint32_t i = 0; i < SCRIPT_RANKS_MAX; i++)
		runner->reports[i] = (struct rank_report){ .call = -1 };
	for (uint32_t i = 0; i < script->ranks; i++) {
		bodies[i] = (struct body){ runner, script, i };
		pids[i] = harness_fork(rank_main, &bodies[i]);
	}
	for (uint32_t i = 0; i < script->ranks; i++) {
		int r = harness_wait(pids[i], CASE_TIMEOUT_MS);

		result |= r != 0;
		if (r == 0 || r == 1)
			continue;
		runner_note_end(&runner->reports[i], r);
	}
	return result;
}

int runner_init_processes(struct runner *runner)
{
	struct harness_options options = { .cpu_capacity = "1G" };
	int r;

	runner_init(runner, run, "zinfd");
	runner->harness = calloc(1, sizeof(*runner->harness));
	if (!runner->harness)
		abort();
	r = harness_start(runner->harness, &options);
	if (!r)
		return 0;
	free(runner->harness);
	runner->harness = NULL;
	return r;
}
