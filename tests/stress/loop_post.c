/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: posts of several threads reach a loop that keeps falling asleep, each once, their contents
 * seen whole; for the thread sanitizer, under which Criterion does not start. Method: each producer
 * posts one object, waits for its answer on a semaphore, and posts it again, so that the loop is
 * often between its last look and its sleep; the payload is plain memory, which only the mailbox's
 * release and acquire order. A lost wake-up hangs; whoever runs this has a time limit.
 */
#include <semaphore.h>
#include <stdio.h>

#include "common/base/loop.h"
#include "common/base/thread.h"

enum { PRODUCERS_COUNT = 3, ROUNDS_COUNT = 20000 };

struct producer {
	struct zi_post post;
	struct zi_thread thread;
	struct zi_loop *loop;
	sem_t answered;
	unsigned question; /* written by the producer before the post, by the loop after it */
	unsigned errors;
};

static void on_post(struct zi_post *post)
{
	struct producer *producer = container_of(post, struct producer, post);

	producer->question *= 2;
	sem_post(&producer->answered);
}

static int produce(void *arg)
{
	struct producer *producer = arg;

	for (unsigned i = 0; i < ROUNDS_COUNT; i++) {
		producer->question = i;
		zi_loop_post(producer->loop, &producer->post, on_post);
		while (sem_wait(&producer->answered))
			;
		producer->errors += producer->question != 2 * i;
	}
	return 0;
}

static int run(void *arg)
{
	return zi_loop_run(arg);
}

int main(void)
{
	static struct producer producers[PRODUCERS_COUNT];
	struct zi_thread owner = { 0 };
	struct zi_loop *loop = NULL;
	unsigned errors = 0;

	if (zi_loop_new(&loop) || zi_thread_start(&owner, "owner", run, loop))
		return 1;
	for (int i = 0; i < PRODUCERS_COUNT; i++) {
		producers[i].loop = loop;
		sem_init(&producers[i].answered, 0, 0);
		if (zi_thread_start(&producers[i].thread, "producer", produce, &producers[i]))
			return 1;
	}
	for (int i = 0; i < PRODUCERS_COUNT; i++) {
		(void)zi_thread_join(&producers[i].thread); /* Always 0: see produce(). */
		errors += producers[i].errors;
	}
	zi_loop_stop(loop);
	if (zi_thread_join(&owner))
		return 1;
	loop = zi_loop_free(loop);
	printf("loop_post: %d posts, %u errors\n", PRODUCERS_COUNT * ROUNDS_COUNT, errors);
	return errors != 0;
}
