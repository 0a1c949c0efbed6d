/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the fake GPUs: queues of operations, and who runs them. In the order `eager` each
 * stream has a thread. In the others the thread that waits, asks or queues runs what order.c
 * chooses. All under the mutex, which is free while an operation runs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/gpu/fake_gpu.h"

struct zi_cuda_context;

/* What the parameters of a kernel may take on GPUs of all kinds. */
#define FAKE_PARAMETERS_BYTES 4096u

enum fake_work {
	FAKE_COPY,
	FAKE_SET,
	FAKE_LAUNCH,
	FAKE_MARK,  /* its end is what an event waits for */
	FAKE_AWAIT, /* another operation */
};

struct fake_op {
	struct fake_op *next;
	struct zi_cuda_stream *stream; /* only while it is not done */
	uint64_t number;               /* in the order of calls */
	uint64_t done_ns;
	uint32_t ref_count;
	bool is_running, is_done, is_hung;
	enum fake_work work;

	/* FAKE_COPY and FAKE_SET. Addresses of a GPU are checked as the operation runs. */
	void *target;
	const void *source;
	uint64_t bytes;
	uint8_t value;
	bool is_target_device, is_source_device;

	struct fake_op *awaited; /* FAKE_AWAIT: a reference; NULL: nothing */

	/* FAKE_LAUNCH */
	const struct fake_kernel *kernel;
	uint32_t shape[6];
	void *parameters[FAKE_PARAMETERS_MAX];
	_Alignas(16) uint8_t parameter_bytes[FAKE_PARAMETERS_BYTES];
};

struct zi_cuda_stream {
	struct zi_cuda_stream *next; /* in the list of all */
	struct zi_cuda_context *context;
	struct fake_op *first, **end;
	uint32_t urgency;  /* of order.c; 0: to be drawn */
	bool is_default;   /* NULL of its context */
	bool is_blocking;  /* in order with the default stream */
	bool is_destroyed; /* ends when its queue is empty */
};

/* All of them, destroyed ones that still have work included. */
extern struct zi_cuda_stream *fake_streams;

/* @flags: as of cuStreamCreateWithPriority(). Return: NULL: no memory, or no thread. */
struct zi_cuda_stream *fake_stream_new(struct zi_cuda_context *context, uint32_t flags);
/* @stream: NULL: the default one of @context. Return: NULL: there is no such stream. */
struct zi_cuda_stream *fake_stream_find(struct zi_cuda_context *context,
                                        struct zi_cuda_stream *stream);
/* What is queued runs first, as the order has it. */
void fake_stream_destroy(struct zi_cuda_stream *stream);
/* Queues @op, which is the stream's from then on. */
void fake_stream_push(struct zi_cuda_stream *stream, struct fake_op *op);
/* Of the newest operation that was queued anywhere. */
uint64_t fake_newest_number(void);

/* Zeroed, with one reference. NULL: no memory. */
struct fake_op *fake_op_new(enum fake_work work);
struct fake_op *fake_op_ref(struct fake_op *op);
void fake_op_unref(struct fake_op *op); /* accepts NULL */
/* Until @op is done. */
void fake_op_wait(struct fake_op *op);
/* Is @op done? If not, it is nearer to it afterwards. */
bool fake_op_look(struct fake_op *op);

/* Queues @op (a reference, given away) on @stream of @context. Takes the mutex. Return: a code. */
int fake_submit(struct zi_cuda_context *context, struct zi_cuda_stream *stream, struct fake_op *op);
/* What a wait in @context returns. Under the mutex. */
int fake_context_code(const struct zi_cuda_context *context);
