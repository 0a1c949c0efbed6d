/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a stream of the model of the chunk ring. */
#include "tests/harness/ring_model_queue.h"

#include <stdlib.h>

struct ring_model_queue {
	struct ring_model_work *work; /* (count,) of capacity */
	uint32_t first, count, capacity;
};

struct ring_model_queue *ring_model_queue_new(void)
{
	return calloc(1, sizeof(struct ring_model_queue));
}

struct ring_model_queue *ring_model_queue_free(struct ring_model_queue *queue)
{
	if (queue)
		free(queue->work);
	free(queue);
	return NULL;
}

void ring_model_queue_push(struct ring_model_queue *queue, const struct ring_model_work *work)
{
	if (queue->count == queue->capacity) {
		uint32_t capacity = 2 * queue->capacity + 16;
		struct ring_model_work *grown =
			realloc(queue->work, capacity * sizeof(*queue->work));

		if (!grown)
			abort();
		queue->work = grown;
		queue->capacity = capacity;
	}
	queue->work[queue->count++] = *work;
}

struct ring_model_work *ring_model_queue_first(struct ring_model_queue *queue)
{
	return queue->first < queue->count ? &queue->work[queue->first] : NULL;
}

void ring_model_queue_pop(struct ring_model_queue *queue)
{
	if (++queue->first == queue->count)
		queue->first = queue->count = 0;
}
