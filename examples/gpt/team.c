/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A *call* is one gpt_team_run(). A worker looks for a new call in a short loop, as the next one
 * mostly comes within microseconds, and then sleeps. A worker that comes after all parts are taken
 * finds the call closed and leaves it alone.
 */
#include "examples/gpt/team.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* Turns of a loop before a thread sleeps: some 20 us, the length of a system call or two. */
#define SPIN_TURNS  1000u
#define ALIGN_BYTES 64u
#define THREADS_MAX 256u

struct worker {
	struct gpt_team *team;
	pthread_t thread;
	void *scratch;
};

struct gpt_team {
	/* Guards the call, active_count and is_ending; no other is taken under it. */
	pthread_mutex_t mutex;
	pthread_cond_t called, left;
	gpt_part_fn compute;
	void *arg;
	uint64_t part_count;
	bool is_open, is_ending;
	atomic_uint_fast64_t call_count; /* written under the mutex */
	atomic_uint_fast64_t next_part;
	atomic_uint active_count; /* workers in the call; written under the mutex */
	uint32_t worker_count;    /* that were started */
	uint32_t thread_count;    /* with the rank's own */
	void *shared;
	struct worker workers[]; /* (thread_count,); 0: the rank's own thread */
};

static void pause_cpu(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* CPUs of this process shared among the ranks of its node. At least 1. */
uint32_t gpt_team_default_threads(uint32_t rank_count)
{
	cpu_set_t cpus;
	uint32_t count;

	assert(rank_count > 0);
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return 1; /* More CPUs than a cpu_set_t holds. */
	count = (uint32_t)CPU_COUNT(&cpus) / rank_count;
	return count > 0 ? count : 1;
}

static void take_parts(struct gpt_team *team, gpt_part_fn compute, void *arg, uint64_t part_count,
                       void *scratch)
{
	uint64_t part;

	/* Relaxed: the call itself came by the mutex. */
	while ((part = atomic_fetch_add_explicit(&team->next_part, 1, memory_order_relaxed)) <
	       part_count)
		compute(arg, part, scratch);
}

/* Return: false when the team ends. */
static bool wait_for_call(struct gpt_team *team, uint64_t *seen)
{
	for (unsigned i = 0; i < SPIN_TURNS; i++) {
		if (atomic_load_explicit(&team->call_count, memory_order_relaxed) != *seen)
			break;
		pause_cpu();
	}
	(void)pthread_mutex_lock(&team->mutex); /* A plain one cannot fail. */
	while (atomic_load_explicit(&team->call_count, memory_order_relaxed) == *seen &&
	       !team->is_ending)
		(void)pthread_cond_wait(&team->called, &team->mutex);
	*seen = atomic_load_explicit(&team->call_count, memory_order_relaxed);
	if (team->is_ending) {
		(void)pthread_mutex_unlock(&team->mutex);
		return false;
	}
	return true;
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct gpt_team *team = worker->team;
	uint64_t seen = 0;

	/* With the mutex. */
	while (wait_for_call(team, &seen)) {
		gpt_part_fn compute = team->compute;
		void *words = team->arg;
		uint64_t part_count = team->part_count;
		bool is_open = team->is_open;

		if (is_open)
			atomic_fetch_add_explicit(&team->active_count, 1, memory_order_relaxed);
		(void)pthread_mutex_unlock(&team->mutex);
		if (!is_open)
			continue;
		take_parts(team, compute, words, part_count, worker->scratch);
		(void)pthread_mutex_lock(&team->mutex);
		/* Release: pairs with wait_for_workers(). */
		atomic_fetch_sub_explicit(&team->active_count, 1, memory_order_release);
		(void)pthread_cond_signal(&team->left);
		(void)pthread_mutex_unlock(&team->mutex);
	}
	return NULL;
}

/* Until the parts that workers have taken are computed. */
static void wait_for_workers(struct gpt_team *team)
{
	(void)pthread_mutex_lock(&team->mutex);
	team->is_open = false;
	(void)pthread_mutex_unlock(&team->mutex);
	for (unsigned i = 0; i < SPIN_TURNS; i++) {
		/* Acquire: pairs with worker_main(); what the parts wrote is seen. */
		if (atomic_load_explicit(&team->active_count, memory_order_acquire) == 0)
			return;
		pause_cpu();
	}
	(void)pthread_mutex_lock(&team->mutex);
	while (atomic_load_explicit(&team->active_count, memory_order_relaxed) > 0)
		(void)pthread_cond_wait(&team->left, &team->mutex);
	(void)pthread_mutex_unlock(&team->mutex);
}

/* Calls @compute for each part, in any order and in several threads at once; returns when all are
 * computed. */
void gpt_team_run(struct gpt_team *team, uint64_t part_count, gpt_part_fn compute, void *arg)
{
	assert(!team->is_open);
	if (team->worker_count == 0 || part_count <= 1) {
		for (uint64_t part = 0; part < part_count; part++)
			compute(arg, part, team->workers[0].scratch);
		return;
	}
	(void)pthread_mutex_lock(&team->mutex);
	team->compute = compute;
	team->arg = arg;
	team->part_count = part_count;
	team->is_open = true;
	atomic_store_explicit(&team->next_part, 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&team->call_count, 1, memory_order_relaxed);
	(void)pthread_cond_broadcast(&team->called);
	(void)pthread_mutex_unlock(&team->mutex);
	take_parts(team, compute, arg, part_count, team->workers[0].scratch);
	wait_for_workers(team);
}

/* With the rank's own; fewer than asked for where a thread could not be started. */
uint32_t gpt_team_thread_count(const struct gpt_team *team)
{
	return team->worker_count + 1;
}

/* (shared_bytes,) of gpt_team_new(), for what one call leaves to the next one. */
void *gpt_team_shared(struct gpt_team *team)
{
	return team->shared;
}

static void *allocate(uint64_t bytes)
{
	return aligned_alloc(ALIGN_BYTES, (bytes + ALIGN_BYTES) / ALIGN_BYTES * ALIGN_BYTES);
}

/* With fewer workers than asked for the team is slower, and right. */
static void start_workers(struct gpt_team *team)
{
	for (uint32_t i = 1; i < team->thread_count; i++) {
		if (pthread_create(&team->workers[i].thread, NULL, worker_main, &team->workers[i]))
			return;
		team->worker_count++;
	}
}

/*
 * @thread_count: with the caller's own, from 1. @shared_bytes: of the team. @scratch_bytes: of each
 * thread. Return: NULL when memory is short.
 * Context: one thread calls gpt_team_run().
 */
struct gpt_team *gpt_team_new(uint32_t thread_count, uint64_t shared_bytes, uint64_t scratch_bytes)
{
	struct gpt_team *team;
	bool is_whole = true;

	assert(thread_count > 0);
	if (thread_count > THREADS_MAX)
		thread_count = THREADS_MAX;
	team = calloc(1, sizeof(*team) + thread_count * sizeof(team->workers[0]));
	if (!team)
		return NULL;
	(void)pthread_mutex_init(&team->mutex, NULL); /* Of glibc these cannot fail. */
	(void)pthread_cond_init(&team->called, NULL);
	(void)pthread_cond_init(&team->left, NULL);
	team->thread_count = thread_count;
	team->shared = allocate(shared_bytes);
	is_whole = team->shared != NULL;
	for (uint32_t i = 0; i < thread_count; i++) {
		team->workers[i].team = team;
		team->workers[i].scratch = allocate(scratch_bytes);
		is_whole = is_whole && team->workers[i].scratch;
	}
	if (!is_whole)
		return gpt_team_free(team);
	start_workers(team);
	return team;
}

/* NULL is fine. Return: NULL. */
struct gpt_team *gpt_team_free(struct gpt_team *team)
{
	if (!team)
		return NULL;
	assert(!team->is_open);
	(void)pthread_mutex_lock(&team->mutex);
	team->is_ending = true;
	(void)pthread_cond_broadcast(&team->called);
	(void)pthread_mutex_unlock(&team->mutex);
	for (uint32_t i = 1; i <= team->worker_count; i++)
		(void)pthread_join(team->workers[i].thread, NULL); /* It was made. */
	for (uint32_t i = 0; i < team->thread_count; i++)
		free(team->workers[i].scratch);
	free(team->shared);
	(void)pthread_cond_destroy(&team->called);
	(void)pthread_cond_destroy(&team->left);
	(void)pthread_mutex_destroy(&team->mutex);
	free(team);
	return NULL;
}
