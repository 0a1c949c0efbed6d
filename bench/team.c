/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of a bench; see team.h. Between runs all members wait at a barrier; the barrier's
 * wake-up (tens of microseconds) is outside the time, which each member takes for itself.
 */
#include "bench/team.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/clock.h"

struct team_member {
	struct team *team;
	pthread_t thread;
	unsigned index;
	int cpu;
	uint64_t started_ns, ended_ns;
};

struct team {
	struct team_member members[TEAM_MEMBERS_MAX];
	unsigned member_count;
	pthread_barrier_t begin, end; /* all members and the caller */
	/* Written by the caller before begin, read by members after it. */
	team_fn function;
	void *work;
	unsigned active_count;
	bool is_stopping;
};

static void *member_main(void *arg)
{
	struct team_member *member = arg;
	struct team *team = member->team;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(member->cpu, &cpus);
	/* Unpinned is slower, not wrong. */
	(void)pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
	for (;;) {
		(void)pthread_barrier_wait(&team->begin);
		if (team->is_stopping)
			return NULL;
		if (member->index < team->active_count) {
			member->started_ns = zi_clock_now_ns();
			team->function(team->work, member->index, team->active_count);
			member->ended_ns = zi_clock_now_ns();
		}
		(void)pthread_barrier_wait(&team->end);
	}
}

/**
 * team_new() - start one pinned thread per allowed CPU
 *
 * Return: the team, to be freed by team_free(); NULL with errno set. A thread that cannot be
 * started ends the process: the barrier's count could no longer be met.
 */
struct team *team_new(void)
{
	struct team *team;
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof cpus, &cpus) < 0)
		return NULL;
	team = calloc(1, sizeof *team);
	if (!team)
		return NULL;
	for (int cpu = 0; cpu < CPU_SETSIZE && team->member_count < TEAM_MEMBERS_MAX; cpu++)
		if (CPU_ISSET(cpu, &cpus)) {
			team->members[team->member_count] = (struct team_member){
				.team = team,
				.index = team->member_count,
				.cpu = cpu,
			};
			team->member_count++;
		}
	if (pthread_barrier_init(&team->begin, NULL, team->member_count + 1) ||
	    pthread_barrier_init(&team->end, NULL, team->member_count + 1))
		abort();
	for (unsigned i = 0; i < team->member_count; i++)
		if (pthread_create(&team->members[i].thread, NULL, member_main, &team->members[i]))
			abort();
	return team;
}

/**
 * team_member_count() - CPUs this process may use
 * @team: as team_new() made it
 */
unsigned team_member_count(const struct team *team)
{
	return team->member_count;
}

/**
 * team_run() - run a piece of work together
 * @team: idle
 * @function: called once on each of the first @member_count members
 * @work: its argument
 * @member_count: 1 … team_member_count()
 *
 * Return: nanoseconds from the first member's start to the last one's end.
 */
uint64_t team_run(struct team *team, team_fn function, void *work, unsigned member_count)
{
	uint64_t started_ns = UINT64_MAX;
	uint64_t ended_ns = 0;

	assert(member_count > 0);
	assert(member_count <= team->member_count);
	team->function = function;
	team->work = work;
	team->active_count = member_count;
	(void)pthread_barrier_wait(&team->begin);
	(void)pthread_barrier_wait(&team->end);
	for (unsigned i = 0; i < member_count; i++) {
		const struct team_member *member = &team->members[i];

		if (member->started_ns < started_ns)
			started_ns = member->started_ns;
		if (member->ended_ns > ended_ns)
			ended_ns = member->ended_ns;
	}
	assert(ended_ns > started_ns);
	return ended_ns - started_ns;
}

/**
 * team_free() - stop and join every member
 * @team: idle, or NULL
 *
 * Return: NULL.
 */
struct team *team_free(struct team *team)
{
	if (!team)
		return NULL;
	team->is_stopping = true;
	(void)pthread_barrier_wait(&team->begin);
	for (unsigned i = 0; i < team->member_count; i++)
		(void)pthread_join(team->members[i].thread, NULL);
	(void)pthread_barrier_destroy(&team->begin);
	(void)pthread_barrier_destroy(&team->end);
	free(team);
	return NULL;
}
