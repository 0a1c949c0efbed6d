/* SPDX-License-Identifier: Apache-2.0 */
/* A signal that ends the run (interrupt.h). */
#include "examples/gpt/interrupt.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "examples/gpt/use.h"

struct watch {
	const struct gpt_args *args;
	const struct gpt_board *board;
	sigset_t signals;
};

/* @board: of the ranks. A step may have been committed since rank 0 looked: the job stands at that
 * one then. Nothing is printed of a run that trains nothing. */
void gpt_interrupt_tell(const struct gpt_args *args, const struct gpt_board *board, FILE *file)
{
	uint64_t count = board->committed_count;

	if (gpt_is_using(args))
		return;
	if (!count)
		(void)fprintf(file, "zinf-gpt: stopped before the first step was committed\n");
	else
		(void)fprintf(file,
		              "zinf-gpt: stopped at step %" PRIu64 ", which is committed; %s\n",
		              count - 1,
		              args->resumes_step ? "--resume latest goes on from there"
		                                 : "the same command goes on from there");
}

/* Ends this process as @number ends a process that does not handle it. */
void gpt_interrupt_end(int number)
{
	sigset_t set;

	(void)fflush(NULL);
	(void)signal(number, SIG_DFL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, number);
	(void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	(void)kill(getpid(), number);
	_exit(128 + number); /* Another thread may take the signal, a moment later. */
}

static void *watch_main(void *arg)
{
	const struct watch *watch = arg;
	int number = sigwaitinfo(&watch->signals, NULL);

	while (number < 0)
		number = sigwaitinfo(&watch->signals, NULL);
	gpt_interrupt_tell(watch->args, watch->board, stderr);
	gpt_interrupt_end(number);
}

/* Of rank 0 that a launcher started: a thread that waits for the signal, to the end of the process.
 * Before other threads are made, which inherit the mask. Return: 0, -errno. */
int gpt_interrupt_watch(const struct gpt_args *args, const struct gpt_board *board)
{
	static struct watch watch;
	pthread_t thread;
	struct sigaction former;
	int error;

	watch = (struct watch){ .args = args, .board = board };
	if (sigaction(SIGINT, NULL, &former) || former.sa_handler == SIG_IGN)
		return 0;
	(void)sigemptyset(&watch.signals);
	(void)sigaddset(&watch.signals, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &watch.signals, NULL);
	error = pthread_create(&thread, NULL, watch_main, &watch);
	if (error)
		(void)pthread_sigmask(SIG_UNBLOCK, &watch.signals, NULL);
	else
		(void)pthread_detach(thread);
	return -error;
}
