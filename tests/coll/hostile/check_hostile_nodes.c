/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that writes whatever it likes on what it shares with its node's zinf-net costs its
 * own job's calls at most: on no node does another rank crash or hang past its deadline, no
 * zinf-net ends, both daemons answer zctl, a job of other ranks on the same two daemons goes on
 * rightly all the while, and the next job is right.
 * Method: ranks of a job over two zinfd that meet on the loopback interface make the calls of drawn
 * cases (script.h), messages among them; one rank of each case has a second thread that changes
 * words of its boards and slabs (scribble.h). Two ranks of another job, one on each node, add
 * numbers. What the hostile one's peers get is not asked, only that they end by themselves.
 * Usage: check_hostile_nodes [--seed N] [--rounds N] [--round N]
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/coll/arguments.h"
#include "tests/coll/hostile/scribble.h"
#include "tests/coll/neighbour.h"
#include "tests/coll/runner.h"
#include "tests/coll/zinf_rank.h"
#include "tests/harness/port.h"

#define NODES     2u
#define RANKS_MAX 4u
/* Of each collective: who was misled waits for nothing. */
#define TIMEOUT_MS 1000u
#define HUNG_MS    60000u
#define NOBODY     UINT32_MAX

/* Of all processes. */
struct shared {
	struct rank_report reports[SCRIPT_RANKS_MAX];
};

struct test {
	struct harness harness[NODES];
	struct shared *shared;
	uint64_t seed;
	uint32_t misled_count; /* ranks that had an error */
	struct neighbour neighbour;
};

struct body {
	struct test *test;
	const struct script *script;
	uint64_t round;
	uint32_t rank, hostile, port;
};

/* ---- the job with a hostile rank ---- */

static uint32_t node_of(const struct script *script, uint32_t rank)
{
	return rank * NODES / script->ranks;
}

static uint32_t local_count(const struct script *script, uint32_t node)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < script->ranks; i++)
		count += node_of(script, i) == node;
	return count;
}

/* Of every third case messages alone; of another one what members post stays as it is, so that more
 * of it comes to zinf-net. */
static enum scribble_where where_of(uint64_t round)
{
	return (enum scribble_where)(round % _SCRIBBLE_WHERE_COUNT);
}

/* Messages instead of all other calls that have data. */
static void write_letters(struct script *script)
{
	for (uint32_t i = 0; i < script->call_count; i++) {
		struct script_call *call = &script->calls[i];

		if (call->operation == SCRIPT_BARRIER)
			continue;
		call->operation = i % 2 ? SCRIPT_SEND : SCRIPT_BATCH;
		call->reduce_op = 0;
		call->is_in_place = false;
	}
}

static int rank_main(void *arg)
{
	const struct body *body = arg;
	struct test *test = body->test;
	struct rank_report *report = &test->shared->reports[body->rank];
	uint32_t node = node_of(body->script, body->rank);
	struct scribbler scribbler;
	struct zinf_rank rank;
	char incarnation[48];
	int r;

	(void)snprintf(incarnation, sizeof incarnation, "%" PRIu64 ".%d", body->round,
	               body->hostile != NOBODY);
	r = zinf_rank_open(&rank,
	                   &(struct zinf_rank_options){
				   .socket_path = test->harness[node].socket_path,
				   .job = "hostile",
				   .incarnation = incarnation,
				   .script = body->script,
				   .rank = body->rank,
				   .timeout_ms = HUNG_MS,
				   .call_timeout_ms = body->hostile == NOBODY ? 0 : TIMEOUT_MS,
				   .port = body->port,
				   .local_count = local_count(body->script, node),
			   });
	if (r)
		(void)snprintf(report->words, sizeof report->words, "attaching: %s", rank.words);
	if (body->rank == body->hostile && !r) {
		scribble_start(&scribbler, where_of(body->round),
		               script_mix(test->seed * 1000003 + body->round));
		(void)rank_run(&rank.link, body->script, report);
		scribble_stop(&scribbler);
	} else if (!r) {
		r = rank_run(&rank.link, body->script, report);
	}
	/* Who leaves breaks the groups of those who still call. */
	if (!r && body->hostile == NOBODY)
		r = zinf_coll_barrier(rank.zinf, NULL);
	zinf_rank_close(&rank);
	return r != 0;
}

static bool daemons_answer(struct test *test)
{
	bool is_right = true;

	for (uint32_t i = 0; i < NODES; i++) {
		json_t *status = harness_admin(&test->harness[i], "status");

		if (!status)
			printf("check-hostile: zinfd of node %u did not answer\n", i);
		is_right = is_right && status;
		json_decref(status);
	}
	return is_right;
}

/* By a signal or by itself; to a busy machine, where it does not answer in time, it only seems to
 * hang. */
static bool has_worker_ended(const struct rank_report *report)
{
	return strstr(report->words, "zinf-net (pid") && !strstr(report->words, " hung: ");
}

/* One case. The hostile one may die of what it reads itself. */
static bool run_case(struct test *test, uint64_t round, bool is_hostile)
{
	uint64_t random = script_mix(test->seed * 77 + round);
	struct script script;
	struct body body = { .test = test, .script = &script, .round = round };
	pid_t pids[RANKS_MAX];
	bool is_right;

	script_draw(&script, test->seed, round, NODES + (uint32_t)(random % (RANKS_MAX - 1)));
	if (where_of(round) == SCRIBBLE_MAIL)
		write_letters(&script);
	body.hostile = is_hostile ? (uint32_t)(random >> 32) % script.ranks : NOBODY;
	body.port = harness_free_port();
	memset(test->shared->reports, 0, sizeof(test->shared->reports));
	for (body.rank = 0; body.rank < script.ranks; body.rank++)
		pids[body.rank] = harness_fork(rank_main, &body);
	is_right = daemons_answer(test);
	for (uint32_t i = 0; i < script.ranks; i++) {
		int r = harness_wait(pids[i], HUNG_MS);

		test->misled_count += r == 1 && is_hostile;
		if (!has_worker_ended(&test->shared->reports[i]) &&
		    (r == 0 || (is_hostile && (r == 1 || i == body.hostile))))
			continue;
		printf("check-hostile: rank %u of %u ended with %d: %s\n", i, script.ranks, r,
		       test->shared->reports[i].words);
		is_right = false;
	}
	is_right = neighbour_goes_on(&test->neighbour) && is_right;
	if (!is_right)
		printf("check-hostile: over nodes: --seed %" PRIu64 " --round %" PRIu64
		       ", hostile: rank %d\n",
		       test->seed, round, (int)body.hostile);
	return is_right;
}

static bool run(struct test *test, uint64_t first, uint64_t count)
{
	const char *const sockets[] = { test->harness[0].socket_path,
		                        test->harness[1].socket_path };
	uint64_t begin_ns = zi_clock_now_ns();
	bool is_right;

	if (!neighbour_start(&test->neighbour, "check-hostile", sockets))
		return false;
	is_right = neighbour_goes_on(&test->neighbour);
	for (uint64_t i = 0; i < count && is_right; i++)
		is_right = run_case(test, first + i, true);
	/* With nobody hostile. */
	is_right = is_right && run_case(test, first, false);
	is_right = neighbour_stop(&test->neighbour) && is_right;
	if (is_right)
		printf("check-hostile: over nodes: %" PRIu64 " cases with a hostile rank: %u ranks "
		       "had an error, none crashed or hung; %u calls of another job (seed %" PRIu64
		       ", %.1f s)\n",
		       count, test->misled_count, neighbour_call_count(&test->neighbour),
		       test->seed, (double)(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_S);
	return is_right;
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	struct test test = { .seed = 0 };
	bool is_right;

	if (!arguments_take(argc, argv, 10, false, &arguments))
		return 2;
	test.seed = arguments.seed;
	test.shared = mmap(NULL, sizeof(*test.shared), PROT_READ | PROT_WRITE,
	                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (test.shared == MAP_FAILED)
		return 1;
	for (uint32_t i = 0; i < NODES; i++)
		if (harness_start(&test.harness[i],
		                  &(struct harness_options){ .cpu_capacity = "1G" }))
			return 1;
	is_right = run(&test, arguments.first, arguments.count);
	for (uint32_t i = 0; i < NODES; i++) {
		if (!is_right)
			harness_print_log(&test.harness[i]);
		is_right = harness_stop(&test.harness[i]) == 0 && is_right;
	}
	return !is_right;
}
