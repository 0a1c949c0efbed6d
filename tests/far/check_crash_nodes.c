/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whoever of a job over nodes is killed, stopped, told to end or leaves (a rank, zinf-net, a
 * daemon, all of a node), all that live hear of it within their patience, nothing crashes, and the
 * job, started again, stands at a step on all nodes alike that is not below what any rank was told
 * of, and ends in the bits of the plain computation; what cannot go on is refused in words with
 * figures; nothing stays charged, no process is left.
 * Method: real daemons on the loopback interface and the made-up trainer, over kinds of jobs that
 * are drawn (crew_kind.c) and blows that are drawn (blow.c): at a point of a rank's protocol or
 * some moments after it. One to three blows follow each other before the job may end.
 * Usage: check_crash_nodes [--seed N] [--points N] [--point I]   (I: that one alone)
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/far/blow.h"
#include "tests/harness/option.h"

/* Points of each kind of job; then it is refused in all ways. */
#define KIND_POINTS 4u
#define BLOWS_MAX   3u

struct tally {
	uint32_t points, blows, vain, refusals;
};

static void tell_logs(const struct crew *crew)
{
	for (uint32_t i = 0; i < crew->kind.node_count; i++)
		harness_print_log(&crew->harness[i]);
}

static bool run_point(struct crew *crew, uint64_t seed, uint32_t point, struct tally *tally)
{
	struct draw random = { seed * 0x100000001b3ull + point };
	uint32_t count;
	bool is_right = true;

	(void)draw(&random, 2);
	count = 1 + (uint32_t)draw(&random, BLOWS_MAX);
	for (uint32_t i = 0; i < CREW_WORLD; i++)
		crew->diary->acknowledged[i] = -1;
	for (uint32_t i = 0; i < count && is_right; i++) {
		struct blow blow = blow_draw(&random, crew);
		uint64_t started_ns = zi_clock_now_ns();
		bool is_in_vain = false;

		is_right = blow_strike(crew, &blow, &is_in_vain);
		tally->blows++;
		tally->vain += is_in_vain;
		if (!is_right || getenv("VERBOSE"))
			fprintf(stderr, "point %u of seed %llu (%s), blow %u: %s%s: %s, %.1f s\n",
			        point, (unsigned long long)seed, crew->kind.words, i, blow.words,
			        is_in_vain ? " (not reached)" : "", is_right ? "right" : "FAILED",
			        (double)(zi_clock_now_ns() - started_ns) / (double)ZI_NS_PER_S);
		if (crew->is_memory_lost)
			break;
	}
	is_right = is_right && crew_goes_on(crew);
	tally->points++;
	if (is_right)
		return true;
	fprintf(stderr, "repeat with: make check-crash-nodes SEED=%llu POINT=%u\n",
	        (unsigned long long)seed, point);
	tell_logs(crew);
	return false;
}

static bool run_kind(uint64_t seed, uint32_t first, uint32_t end, uint32_t only,
                     struct tally *tally)
{
	struct crew_kind kind = crew_kind_draw(seed, first / KIND_POINTS);
	struct crew crew;
	bool is_right = crew_open(&crew, &kind);

	for (uint32_t i = first; i < end && is_right; i++) {
		if (only != UINT32_MAX && i != only)
			continue;
		is_right = run_point(&crew, seed, i, tally);
		if (is_right && i + 1 == end)
			is_right = crew_refusals(&crew, &tally->refusals);
		is_right = is_right && crew_clears(&crew);
		if (!is_right)
			tell_logs(&crew);
	}
	is_right &= crew_close(&crew);
	return crew_says(is_right, "kind %u of seed %llu: %s", first / KIND_POINTS,
	                 (unsigned long long)seed, kind.words);
}

/* Orphans come to this process: none may have crashed, and soon none is left. */
static bool no_orphans(void)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(CREW_PATIENCE_MS * ZI_NS_PER_MS);
	bool is_right = true;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) >= 0) {
		if (!pid && zi_clock_now_ns() > deadline_ns)
			return crew_says(false, "a process is left");
		is_right &=
			crew_says(!pid || !WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL,
		                  "an orphan (pid %d) ended by signal %d", pid, WTERMSIG(status));
	}
	return is_right;
}

int main(int count, char **words)
{
	uint64_t seed = option_number(count, words, "--seed", 1);
	uint32_t point_count = (uint32_t)option_number(count, words, "--points", 8);
	uint32_t only = (uint32_t)option_number(count, words, "--point", UINT32_MAX);
	uint64_t started_ns = zi_clock_now_ns();
	struct tally tally = { 0 };
	char path[300];
	bool is_right = true;

	if (access(harness_program("zinf-net", path, sizeof(path)), X_OK)) {
		printf("check-crash-nodes: skipped, zinf-net is not built (libgloo-dev)\n");
		return 0;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (uint32_t point = 0; point < point_count && is_right; point += KIND_POINTS) {
		if (only != UINT32_MAX && only / KIND_POINTS != point / KIND_POINTS)
			continue;
		is_right = run_kind(seed, point, ZI_MIN(point + KIND_POINTS, point_count), only,
		                    &tally);
	}
	is_right &= no_orphans();
	printf("check-crash-nodes: seed %llu: %u points of %u blows, %u of them not reached, %u "
	       "refusals, in %.1f s: %s\n",
	       (unsigned long long)seed, tally.points, tally.blows, tally.vain, tally.refusals,
	       (double)(zi_clock_now_ns() - started_ns) / (double)ZI_NS_PER_S,
	       is_right ? "nothing lost, nothing left over" : "FAILED");
	return is_right ? 0 : 1;
}
