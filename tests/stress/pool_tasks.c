/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the pool has no data race and loses, doubles or misdirects no task. Method: several threads
 * with a loop each submit to one pool; every `done` checks what `run` wrote into plain memory and
 * submits again; at the end the pool is freed with tasks still in flight. Meant for TSan; a plain
 * main, because a Criterion binary does not start under it. Exits 0, or asserts.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/thread.h"
#include "daemon/device/device.h"

#define LOOPS      3u
#define TASKS      16u    /* in flight per loop */
#define ROUNDS     20000u /* tasks per loop */
#define POOL       4u
#define TAIL_TASKS 512u /* in flight when the pool is freed */

struct client {
	struct zi_thread thread;
	struct zi_loop *loop;
	struct dev *dev;
	uint32_t submitted_count;
	uint32_t done_count;
};

struct work {
	struct dev_task task;
	struct client *client;
	uint64_t input;
	uint64_t output; /* plain memory: written by the pool, read by the loop */
	uint32_t pending;
};

/* A failed check must stop NDEBUG builds too. */
static void check(int is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "pool_tasks: %s\n", what);
	abort();
}

static void work_run(struct dev_task *task)
{
	struct work *work = container_of(task, struct work, task);

	work->output = work->input * 3 + 1;
}

static void work_submit(struct work *work)
{
	struct client *client = work->client;

	work->input = client->submitted_count++;
	work->output = 0;
	work->pending++;
	dev_submit(client->dev, &work->task);
}

static void work_done(struct dev_task *task)
{
	struct work *work = container_of(task, struct work, task);
	struct client *client = work->client;

	check(zi_loop_is_owner(client->loop), "done on another loop's thread");
	check(--work->pending == 0, "a task came back twice");
	check(work->output == work->input * 3 + 1, "done before run was over");
	client->done_count++;
	if (client->submitted_count < ROUNDS)
		work_submit(work);
	else if (client->done_count == client->submitted_count)
		zi_loop_stop(client->loop);
}

static void work_init(struct work *work, struct client *client)
{
	*work = (struct work){ .client = client };
	work->task = (struct dev_task){ .run = work_run, .done = work_done, .loop = client->loop };
}

static int client_main(void *arg)
{
	struct client *client = arg;
	struct work work[TASKS];

	for (uint32_t i = 0; i < TASKS; i++) {
		work_init(&work[i], client);
		work_submit(&work[i]);
	}
	return zi_loop_run(client->loop);
}

/* The pool is freed with tasks queued: all must still come back. */
static void drain(void)
{
	static struct work work[TAIL_TASKS];
	struct client client = { .submitted_count = 0 };

	check(zi_loop_new(&client.loop) == 0, "zi_loop_new");
	check(dev_host_new(NULL, NULL, POOL, &client.dev) == 0, "dev_host_new");
	client.submitted_count = ROUNDS - TAIL_TASKS;
	client.done_count = client.submitted_count;
	for (uint32_t i = 0; i < TAIL_TASKS; i++) {
		work_init(&work[i], &client);
		work_submit(&work[i]);
	}
	client.dev = dev_free(client.dev);
	check(zi_loop_run(client.loop) == 0, "zi_loop_run");
	check(client.done_count == ROUNDS, "tasks were lost");
	client.loop = zi_loop_free(client.loop);
}

int main(void)
{
	struct client clients[LOOPS];
	struct dev *dev = NULL;

	memset(clients, 0, sizeof(clients));
	check(dev_host_new(NULL, NULL, POOL, &dev) == 0, "dev_host_new");
	for (uint32_t i = 0; i < LOOPS; i++) {
		clients[i].dev = dev;
		check(zi_loop_new(&clients[i].loop) == 0, "zi_loop_new");
		check(zi_thread_start(&clients[i].thread, "client", client_main, &clients[i]) == 0,
		      "zi_thread_start");
	}
	for (uint32_t i = 0; i < LOOPS; i++) {
		check(zi_thread_join(&clients[i].thread) == 0, "a loop failed");
		check(clients[i].done_count == ROUNDS, "tasks were lost");
	}
	/* The device before its loops: see dev_free(). */
	dev = dev_free(dev);
	for (uint32_t i = 0; i < LOOPS; i++)
		clients[i].loop = zi_loop_free(clients[i].loop);
	drain();
	(void)printf("pool_tasks: %u tasks through %u threads\n", LOOPS * ROUNDS + TAIL_TASKS,
	             POOL);
	return 0;
}
