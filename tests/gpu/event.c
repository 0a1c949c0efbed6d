/* SPDX-License-Identifier: Apache-2.0 */
/* Events; see event.h. */
#include "tests/gpu/event.h"

#include <stdlib.h>

#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"
#include "tests/gpu/stream.h"

struct zi_cuda_event {
	struct zi_cuda_event *next;
	struct fake_op *recorded; /* a reference */
	uint32_t flags;
};

/* Under the mutex. */
static struct zi_cuda_event *events;

static bool exists(const struct zi_cuda_event *event)
{
	const struct zi_cuda_event *known = events;

	while (known && known != event)
		known = known->next;
	return known;
}

int fake_event_recorded(const struct zi_cuda_event *event, struct fake_op **ret_op)
{
	if (!exists(event))
		return ZI_CUDA_INVALID_HANDLE;
	*ret_op =
		event->recorded && !event->recorded->is_done ? fake_op_ref(event->recorded) : NULL;
	return ZI_CUDA_SUCCESS;
}

int cuEventCreate(struct zi_cuda_event **ret_event, uint32_t flags)
{
	struct zi_cuda_context *context;
	struct zi_cuda_event *event;

	FAKE_ENTER_CONTEXT(context);
	if (flags & ~(ZI_CUDA_EVENT_BLOCKING | ZI_CUDA_EVENT_NO_TIMING))
		return ZI_CUDA_INVALID_VALUE;
	event = calloc(1, sizeof(*event));
	if (!event)
		return ZI_CUDA_OUT_OF_MEMORY;
	event->flags = flags;
	(void)pthread_mutex_lock(&fake_mutex);
	event->next = events;
	events = event;
	(void)pthread_mutex_unlock(&fake_mutex);
	*ret_event = event;
	return ZI_CUDA_SUCCESS;
}

int cuEventRecord(struct zi_cuda_event *event, struct zi_cuda_stream *stream)
{
	struct zi_cuda_context *context;
	struct fake_op *op;
	int code = ZI_CUDA_INVALID_HANDLE;

	FAKE_ENTER_CONTEXT(context);
	op = fake_op_new(FAKE_MARK);
	if (!op)
		return ZI_CUDA_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&fake_mutex);
	stream = fake_stream_find(context, stream);
	if (exists(event) && stream)
		code = fake_context_code(stream->context);
	if (code) {
		fake_op_unref(op);
	} else {
		fake_op_unref(event->recorded);
		event->recorded = fake_op_ref(op);
		fake_stream_push(stream, op);
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

int cuEventQuery(struct zi_cuda_event *event)
{
	struct zi_cuda_context *context;
	struct fake_op *op = NULL;
	int code;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	code = fake_event_recorded(event, &op);
	/* The reference outlives the look. */
	if (op && !fake_op_look(op))
		code = ZI_CUDA_NOT_READY;
	fake_op_unref(op);
	if (fake_context_code(context))
		code = fake_context_code(context);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

int cuEventSynchronize(struct zi_cuda_event *event)
{
	struct zi_cuda_context *context;
	struct fake_op *op = NULL;
	int code;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	code = fake_event_recorded(event, &op);
	if (op)
		fake_op_wait(op);
	fake_op_unref(op);
	if (!code)
		code = fake_context_code(context);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

int cuEventDestroy_v2(struct zi_cuda_event *event)
{
	struct zi_cuda_event **link = &events;
	struct zi_cuda_context *context;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	while (*link && *link != event)
		link = &(*link)->next;
	if (*link) {
		*link = event->next;
		fake_op_unref(event->recorded);
		free(event);
	} else {
		event = NULL;
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return event ? ZI_CUDA_SUCCESS : ZI_CUDA_INVALID_HANDLE;
}

/* Under the mutex. Return: a code. */
static int elapsed(const struct zi_cuda_event *start, const struct zi_cuda_event *end,
                   float *ret_ms)
{
	int64_t ns;

	if (!exists(start) || !exists(end) || !start->recorded || !end->recorded ||
	    (start->flags | end->flags) & ZI_CUDA_EVENT_NO_TIMING)
		return ZI_CUDA_INVALID_HANDLE;
	if (!start->recorded->is_done || !end->recorded->is_done)
		return ZI_CUDA_NOT_READY;
	ns = (int64_t)(end->recorded->done_ns - start->recorded->done_ns);
	*ret_ms = (float)((double)ns * 1e-6);
	return ZI_CUDA_SUCCESS;
}

int cuEventElapsedTime(float *ret_ms, struct zi_cuda_event *start, struct zi_cuda_event *end)
{
	struct zi_cuda_context *context;
	int code;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	code = elapsed(start, end, ret_ms);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}
