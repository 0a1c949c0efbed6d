/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases of check_coll over zinf.h: forked ranks of a job of a real zinfd, or of several that are
 * nodes to it and meet on the loopback interface. Every case is a new incarnation of the job; the
 * daemons stay, and at its end must have left nothing but what belongs
 * there (harness_stop()).
 */
#include <stdlib.h>
#include <string.h>

#include "tests/coll/runner.h"
#include "tests/coll/zinf_rank.h"
#include "tests/harness/port.h"

#define CASE_TIMEOUT_MS 240000u

struct body {
	const struct runner *runner;
	const struct script *script;
	uint32_t rank;
	uint32_t port; /* where nodes meet */
};

static int fail(struct rank_report *report, const char *when, int r, const char *words)
{
	report->call = INT32_MAX;
	(void)snprintf(report->words, sizeof report->words, "%s: %s: %s", when, strerror(-r),
	               words);
	return 1;
}

static uint32_t local_count(const struct script *script, uint32_t node)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < script->ranks; i++)
		count += script_node_of(script, i) == node;
	return count;
}

static int rank_main(void *arg)
{
	const struct body *body = arg;
	const struct runner *runner = body->runner;
	struct rank_report *report = &runner->reports[body->rank];
	struct zinf_rank rank;
	uint32_t node = runner->harness_count > 1 ? script_node_of(body->script, body->rank) : 0;
	char incarnation[32];
	int r;

	(void)snprintf(incarnation, sizeof incarnation, "%u", runner->incarnation);
	r = zinf_rank_open(&rank, &(struct zinf_rank_options){
					  .socket_path = runner->harness[node].socket_path,
					  .job = "check-coll",
					  .incarnation = incarnation,
					  .script = body->script,
					  .rank = body->rank,
					  .timeout_ms = runner->timeout_ms,
					  .past = runner->past,
					  .port = body->port,
					  .local_count = local_count(body->script, node),
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
	uint32_t port = runner->harness_count > 1 ? harness_free_port() : 0;
	int result = 0;

	runner->incarnation++;
	for (uint32_t i = 0; i < SCRIPT_RANKS_MAX; i++)
		runner->reports[i] = (struct rank_report){ .call = -1 };
	for (uint32_t i = 0; i < script->ranks; i++) {
		bodies[i] = (struct body){ runner, script, i, port };
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

int runner_init_processes(struct runner *runner, uint32_t node_count)
{
	struct harness_options options = { .cpu_capacity = "1G" };
	int r = 0;

	runner_init(runner, run, node_count > 1 ? "nodes" : "zinfd");
	runner->harness = calloc(node_count, sizeof(*runner->harness));
	if (!runner->harness)
		abort();
	for (uint32_t i = 0; i < node_count && !r; i++) {
		r = harness_start(&runner->harness[i], &options);
		runner->harness_count += !r;
	}
	if (r)
		(void)runner_deinit(runner);
	return r;
}
