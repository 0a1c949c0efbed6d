/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who computes: a device runs tasks away from the shard thread and hands each back exactly once, on
 * the loop that submitted it. `host` is the pool threads of a NUMA node; `fake` (tests) completes
 * in a seeded order on the same thread; `cuda` is not built yet. Floor 2.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/loop.h"

struct dev;
struct dev_task;
typedef void (*dev_task_fn)(struct dev_task *task);

/* Embedded in its owner. `run` executes on a device thread (never blocks on the loop); `done` then
 * on @loop's thread. Both may use container_of. The task belongs to the device in between. */
struct dev_task {
	dev_task_fn run;
	dev_task_fn done;
	struct zi_loop *loop;
	uint64_t queued_ns, started_ns, finished_ns;
	/* private */
	struct dev_task *next;
	struct zi_post post;
};

struct dev_ops {
	const char *name;
	void (*submit)(struct dev *dev, struct dev_task *task); /* any thread, never fails */
	uint32_t (*width)(const struct dev *dev);               /* tasks that run at once */
	struct dev *(*free)(struct dev *dev);                   /* drains first */
};

struct dev {
	const struct dev_ops *ops;
};

/* Binds the calling thread to where the pool lives: 0 or -errno. */
typedef int (*dev_bind_fn)(void *arg);

/* Pool of @thread_count threads "pool-N"; each calls @bind (NULL: unbound) before its first task.
 * -EAGAIN, -ENOMEM, or what @bind said; then no thread is left. */
int dev_host_new(dev_bind_fn bind, void *arg, uint32_t thread_count, struct dev **ret_dev);
/* Runs tasks on the submitting thread when its loop turns, in an order drawn from @seed. One loop
 * for all tasks. A test double, named as such. */
int dev_fake_new(uint64_t seed, struct dev **ret_dev);

void dev_submit(struct dev *dev, struct dev_task *task);
uint32_t dev_width(const struct dev *dev);
/* Runs what was submitted; every `done` is posted, and runs when its loop turns. Before the loops
 * that its tasks name are freed: a pool thread may still be in zi_loop_post() when `done` runs.
 * Returns NULL. */
struct dev *dev_free(struct dev *dev);
ZI_DEFINE_CLEANUP(struct dev *, dev_free)
