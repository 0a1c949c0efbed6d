/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device for tests: tasks run on the thread of the loop that submits them, one event per turn of
 * a wheel, in an order drawn from a seed. Floor 2; the loop's thread only.
 *
 * A task is in one of two lists: waiting to run, or run and waiting to be handed back. An event
 * draws one task of either list, so that tasks are started out of order, end out of order, and
 * other work of the loop comes in between: what a pool of threads does, but the same every time.
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/device/device.h"

/* What it claims to run at once, so that a pipeline that asks has something in flight to
 * reorder. */
#define FAKE_WIDTH 4u

struct fake_list {
	struct dev_task *first;
	uint32_t count;
};

struct fake {
	struct dev dev;
	struct zi_loop *loop; /* of all tasks in flight */
	struct fake_list waiting;
	struct fake_list finished;
	uint64_t random;
	struct zi_post turn;
	bool is_turning; /* `turn` is the loop's */
	bool is_freed;   /* by its owner; `turn` frees the memory */
};

/* SplitMix64 (Steele, Lea, Flood 2014): any seed will do, zero too. */
static uint64_t fake_random(struct fake *fake)
{
	uint64_t z = fake->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static void fake_push(struct fake_list *list, struct dev_task *task)
{
	task->next = list->first;
	list->first = task;
	list->count++;
}

static struct dev_task *fake_take(struct fake_list *list, uint32_t index)
{
	struct dev_task **place = &list->first;
	struct dev_task *task;

	assert(index < list->count);
	for (uint32_t i = 0; i < index; i++)
		place = &(*place)->next;
	task = *place;
	*place = task->next;
	task->next = NULL;
	list->count--;
	return task;
}

static void fake_run(struct fake *fake, struct dev_task *task)
{
	task->started_ns = zi_clock_now_ns();
	task->run(task);
	task->finished_ns = zi_clock_now_ns();
	fake_push(&fake->finished, task);
}

/* One event, then the next turn if there is more to do. */
static void fake_turn(struct zi_post *post)
{
	struct fake *fake = container_of(post, struct fake, turn);
	uint32_t total = fake->waiting.count + fake->finished.count;
	struct dev_task *task = NULL;
	uint32_t draw;

	fake->is_turning = false;
	if (fake->is_freed) {
		free(fake);
		return;
	}
	assert(total > 0);
	draw = (uint32_t)(fake_random(fake) % total);
	if (draw < fake->waiting.count)
		fake_run(fake, fake_take(&fake->waiting, draw));
	else
		task = fake_take(&fake->finished, draw - fake->waiting.count);
	if (fake->waiting.count + fake->finished.count) {
		fake->is_turning = true;
		zi_loop_post(fake->loop, &fake->turn, fake_turn);
	}
	/* Last: it may submit again, or free this device. */
	if (task)
		task->done(task);
}

static void fake_submit(struct dev *dev, struct dev_task *task)
{
	struct fake *fake = container_of(dev, struct fake, dev);

	assert(!fake->loop || fake->loop == task->loop);
	fake->loop = task->loop;
	fake_push(&fake->waiting, task);
	if (fake->is_turning)
		return;
	fake->is_turning = true;
	zi_loop_post(fake->loop, &fake->turn, fake_turn);
}

static uint32_t fake_width(const struct dev *dev)
{
	(void)dev; /* Constant. */
	return FAKE_WIDTH;
}

static void fake_done(struct zi_post *post)
{
	struct dev_task *task = container_of(post, struct dev_task, post);

	task->done(task);
}

static struct dev *fake_free(struct dev *dev)
{
	struct fake *fake = container_of(dev, struct fake, dev);

	while (fake->waiting.count)
		fake_run(fake, fake_take(&fake->waiting,
		                         (uint32_t)(fake_random(fake) % fake->waiting.count)));
	while (fake->finished.count) {
		struct dev_task *task = fake_take(
			&fake->finished, (uint32_t)(fake_random(fake) % fake->finished.count));

		zi_loop_post(task->loop, &task->post, fake_done);
	}
	fake->is_freed = true;
	if (!fake->is_turning)
		free(fake);
	return NULL;
}

static const struct dev_ops fake_ops = {
	.name = "fake",
	.submit = fake_submit,
	.width = fake_width,
	.free = fake_free,
};

/* @ret_dev: the caller's, dev_free(); the loop must turn once more after that. Return: 0,
 * -ENOMEM. */
int dev_fake_new(uint64_t seed, struct dev **ret_dev)
{
	struct fake *fake = calloc(1, sizeof(*fake));

	if (!fake)
		return err_origin(-ENOMEM);
	fake->dev.ops = &fake_ops;
	fake->random = seed;
	*ret_dev = &fake->dev;
	return 0;
}
