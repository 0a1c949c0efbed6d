/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that writes whatever it likes on the boards of its groups costs its own job's calls
 * at most. No other rank crashes or hangs past its deadline, the daemon answers zctl all the while,
 * and the next job is right.
 * Method: ranks of a real zinfd make the calls of drawn cases (script.h); in one of them a second
 * thread changes words of all boards it has (scribble.h).
 * What the others then get is not asked, only that they end by themselves.
 * Usage: check_hostile [--seed N] [--rounds N] [--round N]
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/coll/arguments.h"
#include "tests/coll/hostile/scribble.h"
#include "tests/coll/runner.h"
#include "tests/coll/zinf_rank.h"

#define RANKS_MAX 4u
/* Of each collective: who was misled waits for nothing. */
#define TIMEOUT_MS 300u
#define HUNG_MS    60000u

struct shared {
	struct rank_report reports[SCRIPT_RANKS_MAX];
};

struct body {
	const struct harness *harness;
	struct shared *shared;
	const struct script *script;
	const char *incarnation;
	uint32_t rank, hostile;
	uint64_t seed;
};

static void run_hostile(struct zinf_rank *rank, const struct body *body, struct rank_report *report)
{
	struct scribbler scribbler;

	scribble_start(&scribbler, SCRIBBLE_ALL, body->seed);
	(void)rank_run(&rank->link, body->script, report);
	scribble_stop(&scribbler);
}

/* ---- all ranks ---- */

static int rank_main(void *arg)
{
	const struct body *body = arg;
	struct rank_report *report = &body->shared->reports[body->rank];
	struct zinf_rank rank;
	int r = zinf_rank_open(
		&rank, &(struct zinf_rank_options){
			       .socket_path = body->harness->socket_path,
			       .job = "hostile",
			       .incarnation = body->incarnation,
			       .script = body->script,
			       .rank = body->rank,
			       .timeout_ms = HUNG_MS,
			       .call_timeout_ms = body->hostile < RANKS_MAX ? TIMEOUT_MS : 0,
		       });

	if (r)
		(void)snprintf(report->words, sizeof report->words, "attaching: %s", rank.words);
	if (!r && body->rank == body->hostile)
		run_hostile(&rank, body, report);
	else if (!r)
		r = rank_run(&rank.link, body->script, report);
	/* Who leaves breaks the groups of those who still call. */
	if (!r && body->hostile >= RANKS_MAX)
		r = zinf_coll_barrier(rank.zinf, NULL);
	zinf_rank_close(&rank);
	return r != 0;
}

/* One case. The hostile one may die of what it reads itself. */
static bool run_case(struct harness *harness, struct shared *shared, uint64_t seed, uint64_t round,
                     bool is_hostile, uint32_t *ret_misled)
{
	struct script script;
	char incarnation[48];
	pid_t pids[RANKS_MAX];
	bool is_right = true;
	json_t *status;

	script_draw(&script, seed, round,
	            2 + (uint32_t)(script_mix(seed * 77 + round) % (RANKS_MAX - 1)));
	(void)snprintf(incarnation, sizeof incarnation, "%" PRIu64 ".%d", round, is_hostile);
	memset(shared, 0, sizeof(*shared));
	for (uint32_t i = 0; i < script.ranks; i++) {
		struct body body = { harness,
			             shared,
			             &script,
			             incarnation,
			             i,
			             is_hostile ? script.ranks - 1 : UINT32_MAX,
			             seed * 1000003 + round };

		pids[i] = harness_fork(rank_main, &body);
	}
	status = is_hostile ? harness_admin(harness, "status") : NULL;
	json_decref(status);
	for (uint32_t i = 0; i < script.ranks; i++) {
		int r = harness_wait(pids[i], HUNG_MS);

		*ret_misled += r == 1 && is_hostile;
		if (r == 0 || (is_hostile && (r == 1 || i == script.ranks - 1)))
			continue;
		printf("check-hostile: --seed %" PRIu64 " --round %" PRIu64
		       ": rank %u of %u ended with %d: %s\n",
		       seed, round, i, script.ranks, r, shared->reports[i].words);
		is_right = false;
	}
	if (is_hostile && !status)
		printf("check-hostile: zinfd did not answer\n");
	return is_right && (!is_hostile || status);
}

int main(int argc, char **argv)
{
	uint64_t begin_ns = zi_clock_now_ns();
	uint32_t misled_count = 0, none = 0;
	struct arguments arguments;
	struct harness harness;
	struct shared *shared;
	bool is_right = true;

	if (!arguments_take(argc, argv, 20, false, &arguments))
		return 2;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	if (shared == MAP_FAILED ||
	    harness_start(&harness, &(struct harness_options){ .cpu_capacity = "1G" }))
		return 1;
	for (uint64_t i = 0; i < arguments.count && is_right; i++)
		is_right = run_case(&harness, shared, arguments.seed, arguments.first + i, true,
		                    &misled_count);
	/* With nobody hostile. */
	is_right = is_right &&
	           run_case(&harness, shared, arguments.seed, arguments.first, false, &none);
	if (is_right)
		printf("check-hostile: %" PRIu64
		       " cases with a hostile rank: %u ranks had an error, "
		       "none crashed or hung (seed %" PRIu64 ", %.1f s)\n",
		       arguments.count, misled_count, arguments.seed,
		       (double)(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_S);
	else
		harness_print_log(&harness);
	return harness_stop(&harness) != 0 || !is_right;
}
