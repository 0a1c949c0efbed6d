/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of operations and their execution; see stream.h. */
#include "tests/gpu/stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "tests/gpu/context.h"
#include "tests/gpu/fake.h"
#include "tests/gpu/order.h"
#include "tests/gpu/range.h"

struct zi_cuda_stream *fake_streams;
static uint64_t newest_number;

struct fake_op *fake_op_new(enum fake_work work)
{
	struct fake_op *op = calloc(1, sizeof(*op));

	if (op) {
		op->work = work;
		op->ref_count = 1;
	}
	return op;
}

struct fake_op *fake_op_ref(struct fake_op *op)
{
	op->ref_count++;
	return op;
}

void fake_op_unref(struct fake_op *op)
{
	/* An operation that awaits another one is never awaited itself. */
	if (!op || --op->ref_count)
		return;
	if (op->awaited && !--op->awaited->ref_count)
		free(op->awaited);
	free(op);
}

int fake_context_code(const struct zi_cuda_context *context)
{
	return context->retain_count ? context->sticky_code : ZI_CUDA_INVALID_CONTEXT;
}

/* Without the mutex. Return: a code that breaks the context. */
static int compute(const struct fake_op *op)
{
	switch (op->work) {
	case FAKE_COPY:
	case FAKE_SET:
		if (op->is_target_device &&
		    !fake_range_is_usable((uintptr_t)op->target, op->bytes, true))
			return ZI_CUDA_ILLEGAL_ADDRESS;
		if (op->is_source_device &&
		    !fake_range_is_usable((uintptr_t)op->source, op->bytes, false))
			return ZI_CUDA_ILLEGAL_ADDRESS;
		if (op->work == FAKE_SET)
			memset(op->target, op->value, op->bytes);
		else
			memmove(op->target, op->source, op->bytes);
		break;
	case FAKE_LAUNCH:
		op->kernel->run(op->shape, op->parameters);
		break;
	case FAKE_MARK:
	case FAKE_AWAIT:
		break;
	}
	return ZI_CUDA_SUCCESS;
}

/* Runs the first operation of @stream, which is ready. Frees the mutex meanwhile. */
static void run_first(struct zi_cuda_stream *stream)
{
	static const char *const places[] = {
		[FAKE_COPY] = "copy", [FAKE_SET] = "copy", [FAKE_LAUNCH] = "kernel"
	};
	struct fake_op *op = stream->first;
	const bool is_broken = fake_context_code(stream->context) != ZI_CUDA_SUCCESS;
	bool hangs = false;
	int code = ZI_CUDA_SUCCESS;

	assert(fake_order_is_ready(op));
	op->is_running = true;
	(void)pthread_mutex_unlock(&fake_mutex);
	/* A broken context runs nothing more. */
	if (op->work <= FAKE_LAUNCH && !is_broken) {
		code = fake_enter_operation(places[op->work], &hangs);
		if (!code && !hangs)
			code = compute(op);
		if (code)
			fake_context_break(stream->context, code);
	}
	(void)pthread_mutex_lock(&fake_mutex);
	op->is_running = false;
	op->is_hung = hangs;
	if (!hangs) {
		stream->first = op->next;
		if (!stream->first)
			stream->end = &stream->first;
		op->is_done = true;
		op->done_ns = zi_clock_now_ns();
		op->stream = NULL;
		fake_op_unref(op);
	}
	(void)pthread_cond_broadcast(&fake_changed);
}

/* @stream is destroyed and empty. */
static void forget(struct zi_cuda_stream *stream)
{
	struct zi_cuda_stream **link = &fake_streams;

	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	free(stream);
}

static void *eager_main(void *arg)
{
	struct zi_cuda_stream *stream = arg;

	(void)pthread_mutex_lock(&fake_mutex);
	while (stream->first || !stream->is_destroyed)
		if (stream->first && fake_order_is_ready(stream->first))
			run_first(stream);
		else
			(void)pthread_cond_wait(&fake_changed, &fake_mutex);
	forget(stream);
	(void)pthread_mutex_unlock(&fake_mutex);
	return NULL;
}

/* Detached, as a stream that hangs must not keep the process from its end. No signal is for it.
 * Return: 0, or an errno. */
static int start_thread(struct zi_cuda_stream *stream)
{
	pthread_attr_t attributes;
	sigset_t all, saved;
	pthread_t thread;
	int r;

	(void)sigfillset(&all);                           /* Cannot fail. */
	(void)pthread_sigmask(SIG_SETMASK, &all, &saved); /* Nor this. */
	(void)pthread_attr_init(&attributes);             /* Nor this, on Linux. */
	(void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&thread, &attributes, eager_main, stream);
	(void)pthread_attr_destroy(&attributes);
	(void)pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return r;
}

/* Any order but eager: whoever calls runs what is drawn. */
static void run_drawn(void)
{
	for (uint32_t count = fake_order_draw_count(); count; count--) {
		struct zi_cuda_stream *stream = fake_order_draw();

		if (!stream)
			return;
		run_first(stream);
		if (stream->is_destroyed && !stream->first)
			forget(stream);
	}
}

struct zi_cuda_stream *fake_stream_new(struct zi_cuda_context *context, uint32_t flags)
{
	struct zi_cuda_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->context = context;
	stream->end = &stream->first;
	stream->is_blocking = !(flags & ZI_CUDA_STREAM_NON_BLOCKING);
	if (fake_options()->order == FAKE_EAGER && start_thread(stream)) {
		free(stream);
		return NULL;
	}
	stream->next = fake_streams;
	fake_streams = stream;
	return stream;
}

struct zi_cuda_stream *fake_stream_find(struct zi_cuda_context *context,
                                        struct zi_cuda_stream *stream)
{
	struct zi_cuda_stream *found = fake_streams;

	while (found && (stream ? found != stream || found->is_destroyed || found->is_default
	                        : !found->is_default || found->context != context))
		found = found->next;
	if (found || stream)
		return found;
	found = fake_stream_new(context, 0);
	if (found)
		found->is_default = true;
	return found;
}

void fake_stream_destroy(struct zi_cuda_stream *stream)
{
	stream->is_destroyed = true;
	if (fake_options()->order == FAKE_EAGER)
		(void)pthread_cond_broadcast(&fake_changed);
	else if (!stream->first)
		forget(stream);
}

void fake_stream_push(struct zi_cuda_stream *stream, struct fake_op *op)
{
	op->stream = stream;
	op->number = ++newest_number;
	op->next = NULL;
	*stream->end = op;
	stream->end = &op->next;
	(void)pthread_cond_broadcast(&fake_changed);
	run_drawn();
}

uint64_t fake_newest_number(void)
{
	return newest_number;
}

/* Runs one operation for the sake of @op. Return: false: none can run here. */
static bool advance(struct fake_op *op)
{
	struct zi_cuda_stream *stream =
		fake_options()->order == FAKE_EAGER ? NULL : fake_order_next(op);

	if (!stream)
		return false;
	run_first(stream);
	if (stream->is_destroyed && !stream->first)
		forget(stream);
	return true;
}

void fake_op_wait(struct fake_op *op)
{
	(void)fake_op_ref(op);
	while (!op->is_done)
		if (!advance(op))
			(void)pthread_cond_wait(&fake_changed, &fake_mutex);
	fake_op_unref(op);
}

bool fake_op_look(struct fake_op *op)
{
	/* What runs now shows at the next look: a program must not count on the first one. */
	if (op->is_done)
		return true;
	(void)advance(op); /* May free @op. */
	return false;
}

int fake_submit(struct zi_cuda_context *context, struct zi_cuda_stream *stream, struct fake_op *op)
{
	int code;

	if (!op)
		return ZI_CUDA_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&fake_mutex);
	stream = fake_stream_find(context, stream);
	code = stream ? fake_context_code(stream->context) : ZI_CUDA_INVALID_HANDLE;
	if (code)
		fake_op_unref(op);
	else
		fake_stream_push(stream, op);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}
