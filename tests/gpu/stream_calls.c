/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's functions for streams. */
#include "tests/gpu/entry.h"
#include "tests/gpu/event.h"
#include "tests/gpu/fake.h"
#include "tests/gpu/stream.h"

int cuStreamCreateWithPriority(struct zi_cuda_stream **ret_stream, uint32_t flags, int priority)
{
	struct zi_cuda_context *context;
	struct zi_cuda_stream *stream;

	FAKE_ENTER_CONTEXT(context);
	(void)priority; /* Any number is taken, and brought into its bounds. */
	if (flags & ~ZI_CUDA_STREAM_NON_BLOCKING)
		return ZI_CUDA_INVALID_VALUE;
	(void)pthread_mutex_lock(&fake_mutex);
	stream = fake_stream_new(context, flags);
	(void)pthread_mutex_unlock(&fake_mutex);
	if (!stream)
		return ZI_CUDA_OUT_OF_MEMORY;
	*ret_stream = stream;
	return ZI_CUDA_SUCCESS;
}

/* What a wait or a query is about. */
struct scope {
	struct zi_cuda_context *context;
	struct zi_cuda_stream *stream; /* NULL: all of the context */
	uint64_t number_max;           /* what is queued later does not count */
};

/* Under the mutex. @stream: NULL: the default stream. Return: a code. */
static int open_scope(struct zi_cuda_context *context, struct zi_cuda_stream *stream,
                      struct scope *scope)
{
	stream = fake_stream_find(context, stream);
	if (!stream)
		return ZI_CUDA_INVALID_HANDLE;
	*scope = (struct scope){ context, stream, fake_newest_number() };
	return ZI_CUDA_SUCCESS;
}

static bool is_in_scope(const struct scope *scope, const struct zi_cuda_stream *stream)
{
	if (!scope->stream)
		return stream->context == scope->context;
	/* The default stream ends when those in order with it have ended. */
	return stream == scope->stream || (scope->stream->is_default && stream->is_blocking &&
	                                   stream->context == scope->context);
}

/* Under the mutex. Return: an operation that is not done; NULL: there is none. */
static struct fake_op *pending(const struct scope *scope)
{
	for (struct zi_cuda_stream *stream = fake_streams; stream; stream = stream->next)
		if (stream->first && stream->first->number <= scope->number_max &&
		    is_in_scope(scope, stream))
			return stream->first;
	return NULL;
}

int cuStreamQuery(struct zi_cuda_stream *stream)
{
	struct zi_cuda_context *context;
	struct scope scope;
	int code;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	code = open_scope(context, stream, &scope);
	if (!code) {
		struct fake_op *op = pending(&scope);

		if (op && !fake_op_look(op))
			code = ZI_CUDA_NOT_READY;
		if (fake_context_code(context))
			code = fake_context_code(context);
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

/* Under the mutex. */
static int wait_for(const struct scope *scope)
{
	struct fake_op *op;

	while ((op = pending(scope)))
		fake_op_wait(op);
	return fake_context_code(scope->context);
}

int cuStreamSynchronize(struct zi_cuda_stream *stream)
{
	struct zi_cuda_context *context;
	struct scope scope;
	int code;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	code = open_scope(context, stream, &scope);
	if (!code)
		code = wait_for(&scope);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

int cuCtxSynchronize(void)
{
	struct scope scope = { .number_max = UINT64_MAX };
	int code;

	FAKE_ENTER_CONTEXT(scope.context);
	(void)pthread_mutex_lock(&fake_mutex);
	code = wait_for(&scope);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

int cuStreamWaitEvent(struct zi_cuda_stream *stream, struct zi_cuda_event *event, uint32_t flags)
{
	struct zi_cuda_context *context;
	struct fake_op *op;
	int code;

	FAKE_ENTER_CONTEXT(context);
	if (flags)
		return ZI_CUDA_INVALID_VALUE;
	op = fake_op_new(FAKE_AWAIT);
	if (!op)
		return ZI_CUDA_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&fake_mutex);
	code = fake_event_recorded(event, &op->awaited);
	if (code)
		fake_op_unref(op);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code ? code : fake_submit(context, stream, op);
}

int cuStreamDestroy_v2(struct zi_cuda_stream *stream)
{
	struct zi_cuda_context *context;
	int code = ZI_CUDA_INVALID_HANDLE;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	if (stream && fake_stream_find(context, stream)) {
		fake_stream_destroy(stream);
		code = ZI_CUDA_SUCCESS;
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

int cuStreamGetCtx(struct zi_cuda_stream *stream, struct zi_cuda_context **ret_context)
{
	struct zi_cuda_context *context;
	int code = ZI_CUDA_INVALID_HANDLE;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	stream = fake_stream_find(context, stream);
	if (stream) {
		*ret_context = stream->context;
		code = ZI_CUDA_SUCCESS;
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}
