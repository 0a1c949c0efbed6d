/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a block; see fake_threads.h. */
#include "tests/gpu/threads/fake_threads.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#define BLOCK_THREADS_MAX 1024u
#define GROUP_LANES       16u /* half a warp */

struct group {
	pthread_barrier_t barrier;
	float slots[GROUP_LANES];
};

struct thread {
	pthread_t thread;
	struct fake_dim index, block, block_shape, grid_shape;
	void (*body)(const void *args);
	const void *args;
};

__thread struct fake_dim fake_thread, fake_block, fake_block_shape, fake_grid_shape;

/* Of the block that runs. */
static struct group groups[BLOCK_THREADS_MAX / GROUP_LANES];
static struct thread threads[BLOCK_THREADS_MAX];
static pthread_barrier_t block_barrier;

static void *thread_main(void *arg)
{
	const struct thread *thread = arg;

	fake_thread = thread->index;
	fake_block = thread->block;
	fake_block_shape = thread->block_shape;
	fake_grid_shape = thread->grid_shape;
	thread->body(thread->args);
	return NULL;
}

static void run_block(const struct thread *like, unsigned count)
{
	for (unsigned i = 0; i < count / GROUP_LANES; i++)
		(void)pthread_barrier_init(&groups[i].barrier, NULL, GROUP_LANES);
	(void)pthread_barrier_init(&block_barrier, NULL, count);
	for (unsigned i = 0; i < count; i++) {
		threads[i] = *like;
		threads[i].index =
			(struct fake_dim){ i % like->block_shape.x, i / like->block_shape.x, 0 };
		if (pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]))
			abort(); /* The others would wait for it. */
	}
	for (unsigned i = 0; i < count; i++)
		(void)pthread_join(threads[i].thread, NULL); /* It was made. */
	for (unsigned i = 0; i < count / GROUP_LANES; i++)
		(void)pthread_barrier_destroy(&groups[i].barrier);
	(void)pthread_barrier_destroy(&block_barrier);
}

void fake_grid_run(unsigned grid, struct fake_dim block, void (*body)(const void *args),
                   const void *args)
{
	struct thread like = {
		.block_shape = block, .grid_shape = { grid, 1, 1 }, .body = body, .args = args
	};
	unsigned count = block.x * block.y;

	assert(count <= BLOCK_THREADS_MAX);
	assert(count % GROUP_LANES == 0);
	for (unsigned i = 0; i < grid; i++) {
		like.block.x = i;
		run_block(&like, count);
	}
}

static struct group *group_of(unsigned mask)
{
	unsigned number = fake_thread.y * fake_block_shape.x + fake_thread.x;

	/* Only the threads of one row may wait for each other. */
	if (mask != 0xffffu << (number & GROUP_LANES))
		abort();
	return &groups[number / GROUP_LANES];
}

void fake_syncthreads(void)
{
	(void)pthread_barrier_wait(&block_barrier);
}

void fake_syncwarp(unsigned mask)
{
	(void)pthread_barrier_wait(&group_of(mask)->barrier);
}

float fake_shuffle(unsigned mask, float value, unsigned source)
{
	struct group *group = group_of(mask);
	float got;

	group->slots[fake_thread.x % GROUP_LANES] = value;
	(void)pthread_barrier_wait(&group->barrier);
	got = group->slots[source];
	(void)pthread_barrier_wait(&group->barrier); /* All have read. */
	return got;
}
