/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream of the model of the chunk ring has to do, in order. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/harness/ring_model.h"

/* A copy, or a use, of all chunks of a unit. */
struct ring_model_work {
	uint32_t unit, version;
	bool is_write, is_running;
	uint32_t wait_count;
	uint64_t waits[RING_MODEL_CHUNKS_MAX]; /* (wait_count,) events */
	uint64_t event;                        /* done when the work is */
};

/* NULL: no memory. */
struct ring_model_queue *ring_model_queue_new(void);
struct ring_model_queue *ring_model_queue_free(struct ring_model_queue *queue);
/* Aborts without memory. */
void ring_model_queue_push(struct ring_model_queue *queue, const struct ring_model_work *work);
/* The oldest work; NULL: there is none. */
struct ring_model_work *ring_model_queue_first(struct ring_model_queue *queue);
void ring_model_queue_pop(struct ring_model_queue *queue);
