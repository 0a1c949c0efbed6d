/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct zi_client_gpu: a rank's GPU from the inside. Private to libclient/gpu.
 *
 * Parameters. A unit's parameters have a place on the chunk ring (common/gpu/ring.h). The daemon
 * holds the unit in CPU memory only while the unit is copied to its place. A unit has a phase:
 *
 *            prefetch            UNSHARD sent          its answer         copied, RESHARD sent
 *    IDLE ─────────────▶ PLACED ─────────────▶ ASKED ─────────────▶ COPYING ─────────────▶ IDLE
 *                          └───────────────────── demand ──────────────┘
 *
 * A demand moves a unit from any phase to COPYING, and waits for the daemon. If an ASKED unit loses
 * its place to another unit, the unit is dropped: libzinf reshards it without a copy. If a COPYING
 * unit loses its place, or its copy fails between two parts, libzinf reshards it when the queued
 * parts have ended.
 * With parameters in a pool (on NVMe, or zero3 over nodes) room in CPU memory is scarce. A unit is
 * asked for only when its place on the GPU is free. At most ZI_GPU_POOL_HELD_MAX units are asked
 * for or copied at one time. So no rank holds pool memory while its stream waits for another rank.
 *
 * Gradients. A unit's gradient is *taken* (on the ring of gradients) from acquire to reduce. Then
 * the gradient is *leaving*, until its copy has ended and REDUCE was sent.
 *
 * Events. The rings know an event by a number: the address of a struct zi_cuda_event. Each unit has
 * one event of each kind, and records it again and again. A stream may wait for a record that is
 * newer than the needed one, but never for a record made after the call that made it wait.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/assert.h"
#include "common/base/order.h"
#include "common/gpu/device.h"
#include "common/gpu/driver.h"
#include "libclient/client.h"
#include "libclient/gpu/budget.h"
#include "libclient/gpu/gpu.h"
#include "libclient/gpu/lane.h"
#include "libclient/gpu/pin.h"

struct zi_gpu_ring;

#define ZI_GPU_NO_UNIT UINT32_MAX

enum zi_gpu_phase { ZI_GPU_IDLE, ZI_GPU_PLACED, ZI_GPU_ASKED, ZI_GPU_COPYING };

struct zi_gpu_unit_state {
	uint64_t param, grad;                         /* device addresses; 0: no such range */
	uint64_t param_range_bytes, grad_range_bytes; /* reserved there, whole chunks */
	uint32_t grad_index;                          /* on the ring of gradients; ZI_GPU_NO_UNIT */
	enum zi_gpu_phase phase;
	bool is_dropped;       /* ASKED, and not to be copied */
	bool is_grad_taken;    /* between acquire and reduce */
	bool has_bucket;       /* with buckets: its place in CPU memory is this rank's */
	bool is_grad_leaving;  /* reduced, and not handed over */
	uint64_t offset_bytes; /* COPYING: of the unit in the plane, or in the pool */
	struct zi_cuda_event *copied, *used;    /* of its parameters */
	struct zi_cuda_event *written, *landed; /* of its gradient */
};

/* How far zinf_materialize() came. */
enum zi_gpu_stage { ZI_GPU_OPEN, ZI_GPU_ARRANGED, ZI_GPU_STARTED, ZI_GPU_FAILED };

struct zi_client_gpu {
	struct zi_gpu_driver driver;
	struct zi_gpu_device device;
	struct zi_cuda_context *context; /* NULL: not retained */
	struct zi_cuda_stream *stream;   /* the trainer's */
	struct zi_cuda_event *switched;  /* of zinf_gpu_stream() */
	uint32_t depth;                  /* of zi_client_gpu_enter() */
	bool is_looking, is_awaiting;

	uint64_t param_budget_bytes, grad_budget_bytes; /* as asked */
	uint32_t neighbour_count;
	uint64_t granularity_bytes, free_bytes; /* as the daemon said last */
	enum zi_gpu_stage stage;
	struct zi_gpu_budget budget;
	struct zi_gpu_ring *params, *grads; /* NULL: not arranged; no gradients */
	struct zi_gpu_unit_state *units;    /* (unit_count,) */
	uint32_t unit_count;                /* 0: not arranged */
	uint32_t param_pin, grad_pin;       /* of pins: where units are copied from, and to */

	struct zi_gpu_pins pins; /* CPU memory, also where none is registered */
	struct zi_gpu_lane up, down;

	struct zi_order order;
	uint32_t place;   /* in it */
	uint32_t *active; /* (active_count,) of unit_count: units that are not IDLE */
	uint32_t active_count;
	uint32_t demanded; /* a look leaves this unit alone; ZI_GPU_NO_UNIT */
	uint32_t *leaving; /* (leaving_count,) of unit_count: in the order of their copies */
	uint32_t leaving_count;

	struct zinf_gpu_stats stats; /* counters and times only */
};

static inline const struct zi_cuda *zi_client_cuda(const struct zinf *zinf)
{
	return &zinf->gpu->driver.cuda;
}

static inline struct zi_gpu_unit_state *zi_gpu_state_of(const struct zinf *zinf, uint32_t unit)
{
	assert(unit < zinf->gpu->unit_count);
	return &zinf->gpu->units[unit];
}

static inline uint64_t zi_gpu_event_number(const struct zi_cuda_event *event)
{
	return (uint64_t)(uintptr_t)event;
}

static inline struct zi_cuda_event *zi_gpu_event(uint64_t number)
{
	return (struct zi_cuda_event *)(uintptr_t)number;
}

/* context.c: the context is current from enter to leave; they nest. */
int zi_client_gpu_enter(struct zinf *zinf);
int zi_client_gpu_leave(struct zinf *zinf);
/* A code of the driver: 0 for success; else the errno, with the text. @format: what failed. */
int zi_client_gpu_fail(struct zinf *zinf, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Until @is_enough(zinf, arg), which the GPU brings about. @what: for the text of a deadline. */
int zi_client_gpu_await(struct zinf *zinf, zi_client_enough_fn is_enough, const void *arg,
                        const char *what);
/* Until the event. Interrupts are held: the caller is amid a copy. */
int zi_client_gpu_await_event(struct zinf *zinf, struct zi_cuda_event *event, const char *what);
/* @ret_is_over: all that was queued before the event was recorded has ended. */
int zi_client_gpu_query(struct zinf *zinf, struct zi_cuda_event *event, bool *ret_is_over);
/* Two events of a unit, for zi_client_gpu_free_events() also where this fails. */
int zi_client_gpu_make_events(struct zinf *zinf, struct zi_cuda_event **ret_first,
                              struct zi_cuda_event **ret_second);
/* Accepts NULL in them, and leaves it there. A driver that fails here keeps the events until the
 * process ends. */
void zi_client_gpu_free_events(struct zinf *zinf, struct zi_cuda_event **first,
                               struct zi_cuda_event **second);
/* The stream waits for the events. */
int zi_client_gpu_wait(struct zinf *zinf, struct zi_cuda_stream *stream, const uint64_t *events,
                       uint32_t count);

/* copies.c */
int zi_gpu_copies_init(struct zinf *zinf);
void zi_gpu_copies_deinit(struct zinf *zinf);

/* grads.c */
int zi_gpu_grads_init(struct zinf *zinf);
void zi_gpu_grads_deinit(struct zinf *zinf);
int zi_gpu_grads_look(struct zinf *zinf);
