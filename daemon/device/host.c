/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host as a device: the pool threads of one NUMA node. Floor 2. dev_submit(): any thread;
 * new and free: the control thread.
 *
 * One queue, first in first out, and a stack of the threads that sleep, each on a condition of its
 * own. A submitter wakes exactly one sleeper, the one that slept last (its caches are the warmest,
 * and the others' CPUs may sleep deeply), and none when all are awake. The task stays in the queue:
 * a thread that is already running may get to it before the sleeper is up (40 us on a virtual CPU),
 * which then finds nothing and lies down again. Idle threads never spin: the CPUs are the ranks'.
 *
 * The mutex `lock` guards the queue, the stack of sleepers, each thread's `is_asleep`, and the
 * words of start and stop. Its rank is a leaf: nothing is called while it is held but the thread
 * library, least of all a callback. A mutex is right here although this is the data path: it is
 * held for some ten nanoseconds, twice per task, and a task computes for 100 us and more, so that
 * a lock-free queue could save one part in a thousand and would still need the sleep below it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/thread.h"
#include "daemon/device/device.h"

/* A bound against nonsense, and what "pool-N" has room for: more than any node has CPUs. */
#define HOST_THREADS_MAX 4096u

struct host;

struct host_thread {
	struct zi_thread thread;
	struct host *host;
	pthread_cond_t wake;
	struct host_thread *next_asleep;
	bool is_asleep;
};

struct host {
	struct dev dev;
	dev_bind_fn bind;
	void *bind_arg;

	pthread_mutex_t lock;
	pthread_cond_t bound; /* bound_count reached thread_count */
	struct dev_task *queue;
	struct dev_task **queue_end;
	struct host_thread *asleep;
	uint32_t bound_count; /* threads that have been through `bind` */
	int bind_result;      /* the first failure */
	bool is_stopping;

	uint32_t thread_count; /* started */
	struct host_thread threads[];
};

/* With the lock held. Return: whom to wake once it is released, or NULL when all are awake. */
static struct host_thread *host_pop_asleep(struct host *host)
{
	struct host_thread *thread = host->asleep;

	if (!thread)
		return NULL;
	assert(thread->is_asleep);
	host->asleep = thread->next_asleep;
	thread->is_asleep = false;
	return thread;
}

/* Sleeps until there is a task. Return: NULL when the queue is empty and the pool stops. */
static struct dev_task *host_take(struct host *host, struct host_thread *thread)
{
	struct dev_task *task;

	(void)pthread_mutex_lock(&host->lock); /* Fails only by misuse, here and below. */
	while (!host->queue && !host->is_stopping) {
		thread->is_asleep = true;
		thread->next_asleep = host->asleep;
		host->asleep = thread;
		/* The flag, which only host_pop_asleep() clears, tells a wake-up from a spurious
		 * one. */
		while (thread->is_asleep)
			(void)pthread_cond_wait(&thread->wake, &host->lock);
	}
	task = host->queue;
	if (task) {
		host->queue = task->next;
		if (!host->queue)
			host->queue_end = &host->queue;
		task->next = NULL;
	}
	(void)pthread_mutex_unlock(&host->lock);
	return task;
}

/* Context: the task's loop. */
static void host_done(struct zi_post *post)
{
	struct dev_task *task = container_of(post, struct dev_task, post);

	task->done(task);
}

static int host_main(void *arg)
{
	struct host_thread *thread = arg;
	struct host *host = thread->host;
	struct dev_task *task;
	int r = host->bind ? host->bind(host->bind_arg) : 0;

	(void)pthread_mutex_lock(&host->lock);
	if (r && !host->bind_result)
		host->bind_result = r;
	host->bound_count++;
	(void)pthread_cond_signal(&host->bound);
	(void)pthread_mutex_unlock(&host->lock);

	/* Unbound after a failure is no matter: nothing is submitted, dev_host_new() fails. */
	while ((task = host_take(host, thread))) {
		task->started_ns = zi_clock_now_ns();
		task->run(task);
		task->finished_ns = zi_clock_now_ns();
		/* From here on the task is its owner's: the loop's thread may free it at once. */
		zi_loop_post(task->loop, &task->post, host_done);
	}
	return 0;
}

static void host_submit(struct dev *dev, struct dev_task *task)
{
	struct host *host = container_of(dev, struct host, dev);
	struct host_thread *sleeper;

	(void)pthread_mutex_lock(&host->lock);
	assert(!host->is_stopping);
	*host->queue_end = task;
	host->queue_end = &task->next;
	sleeper = host_pop_asleep(host);
	(void)pthread_mutex_unlock(&host->lock);
	/* After the unlock, so that the sleeper does not run into the lock. Threads outlive this
	 * call: dev_free() may only follow it. */
	if (sleeper)
		(void)pthread_cond_signal(&sleeper->wake);
}

static uint32_t host_width(const struct dev *dev)
{
	return container_of(dev, const struct host, dev)->thread_count;
}

/* Runs what is queued, ends the threads. Also of a pool of which only some threads were started. */
static struct dev *host_free(struct dev *dev)
{
	struct host *host = container_of(dev, struct host, dev);
	struct host_thread *sleeper;

	(void)pthread_mutex_lock(&host->lock);
	host->is_stopping = true;
	/* Under the lock for once: nobody is in a hurry, and the stack is walked in one go. */
	while ((sleeper = host_pop_asleep(host)))
		(void)pthread_cond_signal(&sleeper->wake);
	(void)pthread_mutex_unlock(&host->lock);
	for (uint32_t i = 0; i < host->thread_count; i++) {
		(void)zi_thread_join(&host->threads[i].thread); /* host_main() returns 0. */
		(void)pthread_cond_destroy(&host->threads[i].wake);
	}
	assert(!host->queue);
	assert(!host->asleep);
	(void)pthread_cond_destroy(&host->bound);
	(void)pthread_mutex_destroy(&host->lock);
	free(host);
	return NULL;
}

static const struct dev_ops host_ops = {
	.name = "host",
	.submit = host_submit,
	.width = host_width,
	.free = host_free,
};

/* Waits until every thread has been through `bind`. Return: 0, or its first failure. */
static int host_wait_bound(struct host *host)
{
	int r;

	(void)pthread_mutex_lock(&host->lock);
	while (host->bound_count < host->thread_count)
		(void)pthread_cond_wait(&host->bound, &host->lock);
	r = host->bind_result;
	(void)pthread_mutex_unlock(&host->lock);
	return r;
}

/*
 * @bind: called once on each new thread with @arg, which is only used until this returns.
 * @thread_count: 1 to 4096. @ret_dev: the caller's, dev_free().
 * Return: 0, -EAGAIN (too many threads), -ENOMEM, or what @bind returned.
 */
int dev_host_new(dev_bind_fn bind, void *arg, uint32_t thread_count, struct dev **ret_dev)
{
	_cleanup_(dev_freep) struct dev *dev = NULL;
	struct host *host;
	int r;

	assert(thread_count > 0);
	assert(thread_count <= HOST_THREADS_MAX);
	host = calloc(1, sizeof(*host) + thread_count * sizeof(host->threads[0]));
	if (!host)
		return err_origin(-ENOMEM);
	dev = &host->dev;
	host->dev.ops = &host_ops;
	host->bind = bind;
	host->bind_arg = arg;
	host->queue_end = &host->queue;
	(void)pthread_mutex_init(&host->lock,
	                         NULL); /* glibc's never fail with default attributes. */
	(void)pthread_cond_init(&host->bound, NULL);
	for (uint32_t i = 0; i < thread_count; i++) {
		struct host_thread *thread = &host->threads[i];
		char name[sizeof(thread->thread.name)];

		thread->host = host;
		(void)snprintf(name, sizeof(name), "pool-%u",
		               i); /* Fits: below HOST_THREADS_MAX. */
		(void)pthread_cond_init(&thread->wake, NULL);
		r = zi_thread_start(&thread->thread, name, host_main, thread);
		if (r) {
			(void)pthread_cond_destroy(&thread->wake);
			return err_trace(r);
		}
		host->thread_count++;
	}
	r = host_wait_bound(host);
	if (r)
		return err_trace(r);
	*ret_dev = zi_steal(dev);
	return 0;
}
