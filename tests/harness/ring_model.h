/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain model of the chunk ring (common/gpu/ring.h) and of a GPU that runs what it orders. The
 * model remembers for each chunk which unit was written there, and runs copies and uses on three
 * streams in any order that their events allow. A use that sees other bytes than its unit's newest,
 * a write to a chunk that is being read, and an answer of the ring that differs from the model's
 * own are failures. Tests and a fuzz target drive the model with decisions of their own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/order.h"
#include "common/gpu/need.h"
#include "common/gpu/ring.h"

#define RING_MODEL_CHUNKS_MAX 96u
#define RING_MODEL_UNITS_MAX  40u
#define RING_MODEL_FAIL_BYTES 160u

/* The host queues; each stream runs its own queue in order. */
enum ring_stream { RING_STREAM_UP, RING_STREAM_COMPUTE, RING_STREAM_DOWN, _RING_STREAM_COUNT };

struct ring_model_queue;

struct ring_model_unit {
	uint32_t first, count; /* chunks: the model's own layout */
	bool is_apart;
	enum zi_gpu_presence presence;
	uint32_t use_count;
	bool is_pinned;
	uint32_t version; /* of the values that a copy or a write brings */
	uint64_t copied;  /* event of the newest copy, or of the newest write of gradients */
	bool is_written;  /* gradients: a write was queued since the unit was acquired */
};

struct ring_model {
	struct zi_gpu_ring *ring;
	struct ring_model_unit units[RING_MODEL_UNITS_MAX];
	uint32_t unit_count, chunk_count, ring_count;
	uint64_t content[RING_MODEL_CHUNKS_MAX]; /* which chunk of which unit, of which version */
	uint32_t reader_count[RING_MODEL_CHUNKS_MAX];
	bool is_written[RING_MODEL_CHUNKS_MAX]; /* right now */
	struct ring_model_queue *queues[_RING_STREAM_COUNT];
	bool *is_done; /* (event_count + 1,) of event_capacity */
	uint64_t event_count, event_capacity;
	struct zi_order order;
	uint32_t place;
	bool is_cyclic; /* no step marks the end of the order */
	uint64_t copy_count, busy_count, prefetch_count, displaced_count;
	char failure[RING_MODEL_FAIL_BYTES]; /* the first one; "": none */
};

/* A decision below @below. */
typedef uint32_t (*ring_draw_fn)(void *source, uint32_t below);

/* A ring of @chunk_count chunks for @units, which it can hold, and the model of it. Return: 0;
 * -EINVAL, -ENOSPC, -ENOMEM of zi_gpu_ring_new(). */
int ring_model_init(struct ring_model *model, const struct zi_gpu_units *units,
                    uint32_t chunk_count);
/* As a forward-only job: the order finds its rounds. Before the first use. */
void ring_model_cycle(struct ring_model *model);
void ring_model_deinit(struct ring_model *model);

/* ---- parameters ---- */

/* zi_gpu_ring_unshard(), compared with the model, and noted in the order. Return: its condition. */
int ring_model_unshard(struct ring_model *model, uint32_t unit);
/* Queues the copy of a coming unit. */
void ring_model_copy(struct ring_model *model, uint32_t unit);
/* Queues a use of a present unit, and ends it. */
void ring_model_reshard(struct ring_model *model, uint32_t unit);
/* Ends a use for which nothing was queued. */
void ring_model_reshard_unused(struct ring_model *model, uint32_t unit);
/* Return: false: nothing is to be prefetched, as the model agrees. */
bool ring_model_prefetch(struct ring_model *model, uint32_t *ret_unit);
/* A coming unit does not come. */
void ring_model_cancel(struct ring_model *model, uint32_t unit);
/* Queues a copy of a coming unit that brings other bytes than its own. */
void ring_model_lose(struct ring_model *model, uint32_t unit);
/* Of a unit that is coming or present. */
void ring_model_pin(struct ring_model *model, uint32_t unit, bool is_pinned);
/* The unit, which is not in use, has new values. */
void ring_model_renew(struct ring_model *model, uint32_t unit);
/* All units that are not in use have new values, and the order begins anew. */
void ring_model_step(struct ring_model *model);
/* The order begins anew, and the values are the same. */
void ring_model_discard(struct ring_model *model);

/* ---- gradients ---- */

int ring_model_acquire(struct ring_model *model, uint32_t unit);
/* Queues a write of an acquired unit: a micro-batch. */
void ring_model_write(struct ring_model *model, uint32_t unit);
/* Queues the copy of a written unit to the host. */
void ring_model_hand(struct ring_model *model, uint32_t unit);

/* ---- the GPU ---- */

/* One piece of work begins or ends. Return: false: the stream waits, or has nothing to do. */
bool ring_model_run(struct ring_model *model, enum ring_stream stream);
/* Until nothing is queued. */
void ring_model_drain(struct ring_model *model);

/* ---- decisions ---- */

/* One step of the host or of a stream, of any kind that is possible now. */
void ring_model_act_param(struct ring_model *model, ring_draw_fn draw, void *source);
void ring_model_act_grad(struct ring_model *model, ring_draw_fn draw, void *source);
