/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ranks in one process (--strategy dp): the same life as in processes, in threads. Where
 * processes have a parent that ends them all when one fails, here the one that fails ends the
 * process; but who only suffered from another lets that one tell first, as the process's code says
 * whether a restart is worth it. (A trainer whose replicas are less than a whole loop has
 * zinf_replicas_run() for this.)
 */
#include "examples/gpt/replicas.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct ends {
	pthread_mutex_t mutex; /* guards ended_count; no other is taken under it */
	pthread_cond_t changed;
	uint32_t ended_count;
};

struct replica {
	pthread_t thread;
	struct ends *ends;
	struct gpt_args args;
	struct gpt_board *board;
	gpt_rank_fn rank_main;
	void *arg;
};

/* Until all ranks have ended: the one whose fault it is does not wait, and ends the process. Its
 * session is over, so that nobody waits for it in a call for long; at most --timeout. */
static void wait_for_cause(struct replica *replica)
{
	struct ends *ends = replica->ends;
	struct timespec until;
	int error = clock_gettime(CLOCK_MONOTONIC, &until);

	until.tv_sec += (time_t)replica->args.timeout_s;
	while (ends->ended_count < replica->args.world_count && !error)
		error = pthread_cond_clockwait(&ends->changed, &ends->mutex, CLOCK_MONOTONIC,
		                               &until);
}

static void *replica_main(void *arg)
{
	struct replica *replica = arg;
	struct ends *ends = replica->ends;
	int code = replica->rank_main(&replica->args, replica->board, replica->arg);

	(void)pthread_mutex_lock(&ends->mutex); /* A plain one: neither can fail. */
	ends->ended_count++;
	(void)pthread_cond_broadcast(&ends->changed);
	if (code == GPT_EXIT_AGAIN)
		wait_for_cause(replica);
	if (code) {
		(void)fflush(NULL);
		_exit(code);
	}
	(void)pthread_mutex_unlock(&ends->mutex);
	return NULL;
}

/* @args: of the process; its ranks are 0 to world_count - 1. Return: exit code of the process. */
int gpt_replicas_main(const struct gpt_args *args, struct gpt_board *board, gpt_rank_fn rank_main,
                      void *arg)
{
	static struct replica replicas[ZINF_WORLD_MAX];
	static struct ends ends = { .mutex = PTHREAD_MUTEX_INITIALIZER,
		                    .changed = PTHREAD_COND_INITIALIZER };

	assert(args->world_count <= ZINF_WORLD_MAX);
	for (uint32_t i = 0; i < args->world_count; i++) {
		struct replica *replica = &replicas[i];
		int error;

		*replica = (struct replica){ .ends = &ends,
			                     .args = *args,
			                     .board = board,
			                     .rank_main = rank_main,
			                     .arg = arg };
		replica->args.rank = (int32_t)i;
		error = pthread_create(&replica->thread, NULL, replica_main, replica);
		if (error) {
			(void)fprintf(stderr,
			              "zinf-gpt: starting the thread of rank %u failed: %s\n", i,
			              strerror(error));
			(void)fflush(NULL);
			_exit(GPT_EXIT_ERROR);
		}
	}
	for (uint32_t i = 0; i < args->world_count; i++)
		(void)pthread_join(replicas[i].thread, NULL); /* It was made. */
	return GPT_EXIT_DONE;
}
