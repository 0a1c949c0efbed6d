/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ranks in one process (--strategy dp): the same life as in processes, in threads. Where
 * processes have a parent that ends them all when one fails, here the one that fails ends the
 * process. (A trainer whose replicas are less than a whole loop has zinf_replicas_run() for this.)
 */
#include "examples/gpt/replicas.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct replica {
	pthread_t thread;
	struct gpt_args args;
	struct gpt_board *board;
	gpt_rank_fn rank_main;
	void *arg;
};

/* Others may wait for this one for as long as --timeout says: it has told why, and they end too. */
static void *replica_main(void *arg)
{
	struct replica *replica = arg;
	int code = replica->rank_main(&replica->args, replica->board, replica->arg);

	if (code) {
		(void)fflush(NULL);
		_exit(code);
	}
	return NULL;
}

/* @args: of the process; its ranks are 0 to world_count - 1. Return: exit code of the process. */
int gpt_replicas_main(const struct gpt_args *args, struct gpt_board *board, gpt_rank_fn rank_main,
                      void *arg)
{
	static struct replica replicas[ZINF_WORLD_MAX];

	assert(args->world_count <= ZINF_WORLD_MAX);
	for (uint32_t i = 0; i < args->world_count; i++) {
		struct replica *replica = &replicas[i];
		int error;

		*replica = (struct replica){
			.args = *args, .board = board, .rank_main = rank_main, .arg = arg
		};
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
