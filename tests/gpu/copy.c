/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on streams. Ranges are checked when a copy is queued (an error of this call), and again
 * when it runs (an illegal address, which breaks the context). */
#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"
#include "tests/gpu/host.h"
#include "tests/gpu/range.h"
#include "tests/gpu/stream.h"

/* @wanted: what is copied, and what of it is GPU memory. Return: a code. */
static int submit(struct zi_cuda_context *context, struct zi_cuda_stream *stream,
                  const struct fake_op *wanted)
{
	struct fake_op *op;

	if (!wanted->bytes)
		return ZI_CUDA_SUCCESS;
	if (wanted->is_target_device
	            ? !fake_range_is_usable((uintptr_t)wanted->target, wanted->bytes, true)
	            : fake_host_is_read_only(wanted->target, wanted->bytes))
		return ZI_CUDA_INVALID_VALUE;
	if (wanted->is_source_device &&
	    !fake_range_is_usable((uintptr_t)wanted->source, wanted->bytes, false))
		return ZI_CUDA_INVALID_VALUE;
	op = fake_op_new(wanted->work);
	if (!op)
		return ZI_CUDA_OUT_OF_MEMORY;
	*op = *wanted;
	op->ref_count = 1;
	return fake_submit(context, stream, op);
}

int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t bytes,
                         struct zi_cuda_stream *stream)
{
	const struct fake_op op = {
		.work = FAKE_COPY,
		.target = (void *)target,
		.source = source,
		.bytes = bytes,
		.is_target_device = true,
	};
	struct zi_cuda_context *context;

	FAKE_ENTER_CONTEXT(context);
	return submit(context, stream, &op);
}

int cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t bytes, struct zi_cuda_stream *stream)
{
	const struct fake_op op = {
		.work = FAKE_COPY,
		.target = target,
		.source = (const void *)source,
		.bytes = bytes,
		.is_source_device = true,
	};
	struct zi_cuda_context *context;

	FAKE_ENTER_CONTEXT(context);
	return submit(context, stream, &op);
}

int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t bytes,
                         struct zi_cuda_stream *stream)
{
	const struct fake_op op = {
		.work = FAKE_COPY,
		.target = (void *)target,
		.source = (const void *)source,
		.bytes = bytes,
		.is_target_device = true,
		.is_source_device = true,
	};
	struct zi_cuda_context *context;

	FAKE_ENTER_CONTEXT(context);
	return submit(context, stream, &op);
}

int cuMemsetD8Async(uint64_t target, uint8_t value, size_t bytes, struct zi_cuda_stream *stream)
{
	const struct fake_op op = {
		.work = FAKE_SET,
		.target = (void *)target,
		.value = value,
		.bytes = bytes,
		.is_target_device = true,
	};
	struct zi_cuda_context *context;

	FAKE_ENTER_CONTEXT(context);
	return submit(context, stream, &op);
}
