/* SPDX-License-Identifier: Apache-2.0 */
/* The border of every device: what is asserted once for all kinds. Floor 2, any thread. */
#include "daemon/device/device.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"

/*
 * Hands @task over. Its owner sets `run`, `done` and `loop`, and keeps it in place until `done`.
 * Nothing is promised of the order in which tasks run or end. Context: any thread.
 */
void dev_submit(struct dev *dev, struct dev_task *task)
{
	assert(task->run);
	assert(task->done);
	assert(task->loop);
	task->next = NULL;
	task->queued_ns = zi_clock_now_ns();
	task->started_ns = 0;
	task->finished_ns = 0;
	dev->ops->submit(dev, task);
}

/* Return: tasks that run at the same time, at least 1: how many a pipeline keeps in flight. */
uint32_t dev_width(const struct dev *dev)
{
	uint32_t width = dev->ops->width(dev);

	assert(width > 0);
	return width;
}

/* NULL: nothing to do. The last dev_submit() must have returned; tasks in flight are run. */
struct dev *dev_free(struct dev *dev)
{
	return dev ? dev->ops->free(dev) : NULL;
}
