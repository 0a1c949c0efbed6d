/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that dies in the middle of whatever call leaves nobody hanging and nobody in doubt:
 * every survivor's calls of the groups it was in end with -EPIPE, naming it; groups without it go
 * on; another job's collectives never notice; the job starts again at once; nothing stays behind.
 * Method: ranks of a real zinfd make the calls of drawn cases (script.h); the parent watches how
 * far one of them has come, and kills it with SIGKILL then. A job of two ranks adds numbers all the
 * while. Charges and descriptors of the daemon are counted before and after.
 * Usage: check_deaths [--seed N] [--rounds N] [--round N] [--simple]
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/coll/arguments.h"
#include "tests/coll/neighbour.h"
#include "tests/coll/runner.h"
#include "tests/coll/zinf_rank.h"

#define TIMEOUT_MS   30000u
#define HUNG_MS      60000u
#define VICTIM_RANKS 5u /* at most */
#define SPINS_MAX    200000u

/* Shared by all processes. */
struct shared {
	struct rank_report reports[SCRIPT_RANKS_MAX];
};

struct test {
	struct harness harness;
	struct shared *shared;
	uint64_t seed;
	bool is_simple;
	uint32_t incarnation;
	struct neighbour neighbour;
	uint32_t hit_count; /* deaths that somebody met inside a call */
};

struct body {
	struct test *test;
	const struct script *script;
	uint32_t rank, victim;
	int done_fd, go_fd; /* says that its calls are over; ends when it may leave */
};

static uint32_t load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* ---- the victim and those who survive it ---- */

static int rank_main(void *arg)
{
	struct body *body = arg;
	struct rank_report *report = &body->test->shared->reports[body->rank];
	struct zinf_rank rank;
	char incarnation[32], byte = 0;
	int r;

	(void)snprintf(incarnation, sizeof incarnation, "%u", body->test->incarnation);
	r = zinf_rank_open(&rank, &(struct zinf_rank_options){
					  .socket_path = body->test->harness.socket_path,
					  .job = "victim",
					  .incarnation = incarnation,
					  .script = body->script,
					  .rank = body->rank,
					  .timeout_ms = TIMEOUT_MS,
				  });
	if (r) {
		report->call = INT32_MAX;
		(void)snprintf(report->words, sizeof report->words, "attaching: %s: %s",
		               strerror(-r), rank.words);
	} else {
		rank.link.ends_with = -EPIPE;
		rank.link.absent_from = UINT32_MAX;
		for (uint32_t i = 0; i < body->script->group_count; i++)
			if (body->script->groups[i] >> body->victim & 1u)
				rank.link.breakable_groups |= 1u << i;
		r = rank_run(&rank.link, body->script, report);
	}
	(void)!write(body->done_fd, &byte, 1);
	(void)!read(body->go_fd, &byte, 1);
	zinf_rank_close(&rank);
	return r != 0;
}

/* Until the victim has begun that many calls; then a little longer. */
static void await_moment(const struct test *test, uint32_t victim, uint32_t call_count,
                         uint32_t spins)
{
	uint64_t end_ns = zi_clock_deadline_ns(HUNG_MS * ZI_NS_PER_MS);
	const struct rank_report *report = &test->shared->reports[victim];

	while (load(&report->progress) < call_count && zi_clock_now_ns() < end_ns)
		(void)sched_yield();
	for (uint32_t i = 0; i < spins; i++)
		(void)load(&report->progress);
}

/* Until all but one have made their calls. */
static bool await_done(int done_fd, uint32_t count)
{
	struct pollfd poller = { .fd = done_fd, .events = POLLIN };
	char byte;

	for (uint32_t i = 0; i < count; i++)
		if (poll(&poller, 1, HUNG_MS) != 1 || read(done_fd, &byte, 1) != 1)
			return false;
	return true;
}

static bool is_told_rightly(struct test *test, const struct script *script, uint32_t victim)
{
	char name[24];
	bool is_right = true;

	(void)snprintf(name, sizeof name, "rank %u ", victim);
	for (uint32_t i = 0; i < script->ranks; i++) {
		const struct rank_report *report = &test->shared->reports[i];

		if (i == victim)
			continue;
		if (report->call >= 0) {
			printf("check-deaths: rank %u: call %d: %s\n", i, report->call,
			       report->words);
			is_right = false;
		} else if (report->broken_groups) {
			test->hit_count++;
			if (!strstr(report->words, name) || !strstr(report->words, " died")) {
				printf("check-deaths: rank %u was not told of rank %u: '%s'\n", i,
				       victim, report->words);
				is_right = false;
			}
		}
	}
	return is_right;
}

static uint32_t pick(const struct test *test, uint64_t round, uint32_t what, uint32_t sides)
{
	return (uint32_t)(script_mix(script_mix(test->seed * 31 + round) + what) % sides);
}

/* One life and death of the victim's job. */
static bool die_once(struct test *test, uint64_t round)
{
	struct body bodies[SCRIPT_RANKS_MAX];
	pid_t pids[SCRIPT_RANKS_MAX];
	int done_fds[2], go_fds[2];
	struct script script;
	uint32_t victim;
	bool is_right;

	script_draw(&script, test->seed, round, 2 + pick(test, round, 0, VICTIM_RANKS - 1));
	if (test->is_simple)
		script_simplify(&script);
	script.arena_bytes *= 3; /* what a broken call used is not used again */
	victim = pick(test, round, 1, script.ranks);
	test->incarnation++;
	memset(test->shared->reports, 0, sizeof test->shared->reports);
	if (pipe(done_fds) || pipe(go_fds))
		abort();
	for (uint32_t i = 0; i < script.ranks; i++) {
		bodies[i] = (struct body){ test, &script, i, victim, done_fds[1], go_fds[0] };
		pids[i] = fork();
		if (!pids[i]) { /* not harness_fork(): the other end of the pipe is the parent's */
			(void)close(go_fds[1]);
			_exit(rank_main(&bodies[i]));
		}
	}
	await_moment(test, victim, pick(test, round, 2, rank_call_count(&script, victim)) + 1,
	             pick(test, round, 3, SPINS_MAX));
	(void)kill(pids[victim], SIGKILL);
	(void)harness_wait(pids[victim], HUNG_MS);
	is_right = neighbour_goes_on(&test->neighbour);
	if (!await_done(done_fds[0], script.ranks - 1)) {
		printf("check-deaths: somebody hangs\n");
		is_right = false;
	}
	(void)close(go_fds[0]);
	(void)close(go_fds[1]);
	for (uint32_t i = 0; i < script.ranks; i++)
		if (i != victim)
			(void)harness_wait(pids[i], HUNG_MS);
	(void)close(done_fds[0]);
	(void)close(done_fds[1]);
	is_right = is_told_rightly(test, &script, victim) && is_right;
	if (!is_right)
		printf("check-deaths: --seed %llu --round %llu: rank %u of %u was killed\n",
		       (unsigned long long)test->seed, (unsigned long long)round, victim,
		       script.ranks);
	return is_right;
}

/* ---- all of it ---- */

static uint32_t fd_count(const struct harness *harness)
{
	char path[64];
	uint32_t count = 0;
	DIR *directory;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", harness->pid);
	directory = opendir(path);
	while (directory && readdir(directory))
		count++;
	if (directory)
		(void)closedir(directory);
	return count;
}

/* What belongs to processes that have just ended goes a moment later. */
static bool fds_return(struct harness *harness, uint32_t count)
{
	uint64_t end_ns = zi_clock_deadline_ns(20 * ZI_NS_PER_S);

	while (fd_count(harness) > count)
		if (zi_clock_now_ns() > end_ns || harness_cpu_bytes(harness) == UINT64_MAX)
			return false;
	return true;
}

static bool run(struct test *test, uint64_t first, uint64_t count)
{
	const char *const sockets[] = { test->harness.socket_path, test->harness.socket_path };
	uint64_t baseline_bytes, begin_ns = zi_clock_now_ns();
	uint32_t baseline_fds;
	bool is_right;

	if (!neighbour_start(&test->neighbour, "check-deaths", sockets))
		return false;
	is_right = neighbour_goes_on(&test->neighbour);
	baseline_bytes = harness_cpu_bytes(&test->harness);
	baseline_fds = fd_count(&test->harness);
	for (uint64_t i = 0; i < count && is_right; i++)
		is_right = die_once(test, first + i);
	if (is_right && !harness_charges_return(&test->harness, baseline_bytes, 20000)) {
		printf("check-deaths: %llu bytes are charged, before the deaths %llu were\n",
		       (unsigned long long)harness_cpu_bytes(&test->harness),
		       (unsigned long long)baseline_bytes);
		is_right = false;
	}
	if (is_right && !fds_return(&test->harness, baseline_fds)) {
		printf("check-deaths: zinfd has %u descriptors, before the deaths %u\n",
		       fd_count(&test->harness), baseline_fds);
		is_right = false;
	}
	is_right = neighbour_stop(&test->neighbour) && is_right;
	if (is_right)
		printf("check-deaths: %llu deaths, met by %u survivors inside a call, each told by "
		       "name; %u calls of a neighbour (seed %llu, %.1f s)\n",
		       (unsigned long long)count, test->hit_count,
		       neighbour_call_count(&test->neighbour), (unsigned long long)test->seed,
		       (double)(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_S);
	else
		harness_print_log(&test->harness);
	return is_right;
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	struct test test = { .seed = 0 };
	bool is_right;

	if (!arguments_take(argc, argv, 20, true, &arguments))
		return 2;
	test.seed = arguments.seed;
	test.is_simple = arguments.is_simple;
	test.shared = mmap(NULL, sizeof(*test.shared), PROT_READ | PROT_WRITE,
	                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (test.shared == MAP_FAILED ||
	    harness_start(&test.harness, &(struct harness_options){ .cpu_capacity = "1G" }))
		return 1;
	is_right = run(&test, arguments.first, arguments.count);
	return harness_stop(&test.harness) != 0 || !is_right;
}
