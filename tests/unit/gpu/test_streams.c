/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: streams run in the order in which they were filled, events order them towards each other,
 * queries and waits tell how far they are, in all orders that the fake knows. Method: each body
 * runs in a child for each order; kernels of the test note who ran when.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/gpu/fixture.h"

static struct zi_gpu_driver driver;
static const char *const orders[] = { "order=eager", "order=late", "order=shuffled:1",
	                              "order=shuffled:2", "order=shuffled:3" };

#define CHECK(condition)                 \
	do {                             \
		if (!(condition))        \
			return __LINE__; \
	} while (0)

/* Runs @body with an open fake in each order. It returns the line that failed; 0: none. */
static void in_all_orders(int (*body)(const struct zi_cuda *cuda))
{
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		pid_t child = fork();
		int status;

		if (!child) {
			struct zi_cuda_context *context;
			int line;

			if (open_gpu(&driver, orders[i], NULL) ||
			    driver.cuda.cuDevicePrimaryCtxRetain(&context, 0) ||
			    driver.cuda.cuCtxSetCurrent(context))
				_exit(1);
			line = body(&driver.cuda);
			if (line)
				(void)fprintf(stderr, "%s: line %d\n", orders[i], line);
			_exit(line != 0);
		}
		status = wait_child(child);
		cr_assert(WIFEXITED(status), "%s", orders[i]);
		cr_assert_eq(WEXITSTATUS(status), 0, "%s", orders[i]);
	}
}

/* What ran, in its order. Only operations that have an order among them append. */
static uint32_t notes[64];
static uint32_t note_count;

/* note(number) */
static void run_note(const uint32_t *shape, void *const *parameters)
{
	(void)shape;
	notes[note_count++ % 64] = *(const uint32_t *)parameters[0];
}

static const struct fake_kernel note_kernel = { "note", run_note, { 4 } };

static struct zi_cuda_function *load_note(const struct zi_cuda *cuda)
{
	struct zi_cuda_function *function = NULL;
	struct zi_cuda_module *module = NULL;
	fake_kernel_add_fn add;

	find_fake_symbol(driver.handle, "fake_kernel_add", &add);
	if (add(&note_kernel) || cuda->cuModuleLoadData(&module, ".version 7.0\n") ||
	    cuda->cuModuleGetFunction(&function, module, "note"))
		return NULL;
	return function;
}

static int note(const struct zi_cuda *cuda, struct zi_cuda_function *function,
                struct zi_cuda_stream *stream, uint32_t number)
{
	void *parameters[] = { &number };

	return cuda->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static int notes_are(uint32_t count)
{
	if (note_count != count)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		if (notes[i] != i)
			return 0;
	return 1;
}

static int fill_one_stream(const struct zi_cuda *cuda)
{
	struct zi_cuda_function *function = load_note(cuda);
	struct zi_cuda_context *context = NULL, *current = NULL;
	struct zi_cuda_stream *stream;

	CHECK(function);
	CHECK(!cuda->cuStreamCreateWithPriority(&stream, ZI_CUDA_STREAM_NON_BLOCKING, -1));
	CHECK(!cuda->cuStreamGetCtx(stream, &context));
	CHECK(!cuda->cuCtxGetCurrent(&current));
	CHECK(context && context == current);
	CHECK(!cuda->cuStreamQuery(stream));
	CHECK(!cuda->cuStreamSynchronize(stream));
	for (uint32_t i = 0; i < 20; i++)
		CHECK(!note(cuda, function, stream, i));
	CHECK(!cuda->cuStreamSynchronize(stream));
	CHECK(notes_are(20));
	CHECK(!cuda->cuStreamQuery(stream));
	CHECK(!cuda->cuStreamDestroy(stream));
	return 0;
}

Test(gpu_streams, run_in_the_order_in_which_they_were_filled)
{
	in_all_orders(fill_one_stream);
}

/* Three streams in a ring: each one waits for the former. */
static int pass_around(const struct zi_cuda *cuda)
{
	struct zi_cuda_function *function = load_note(cuda);
	struct zi_cuda_stream *streams[3];
	struct zi_cuda_event *event;

	CHECK(function);
	CHECK(!cuda->cuEventCreate(&event, ZI_CUDA_EVENT_NO_TIMING));
	for (uint32_t i = 0; i < 3; i++)
		CHECK(!cuda->cuStreamCreateWithPriority(&streams[i], 1, 0));
	/* One event is recorded anew for each turn: a wait is for what was recorded before it. */
	for (uint32_t i = 0; i < 30; i++) {
		CHECK(!cuda->cuStreamWaitEvent(streams[i % 3], event, 0));
		CHECK(!note(cuda, function, streams[i % 3], i));
		CHECK(!cuda->cuEventRecord(event, streams[i % 3]));
	}
	CHECK(!cuda->cuEventSynchronize(event));
	CHECK(notes_are(30));
	for (uint32_t i = 0; i < 3; i++)
		CHECK(!cuda->cuStreamDestroy(streams[i]));
	CHECK(!cuda->cuEventDestroy(event));
	return 0;
}

Test(gpu_streams, wait_for_what_an_event_recorded_last)
{
	in_all_orders(pass_around);
}

static int poll_all(const struct zi_cuda *cuda)
{
	struct zi_cuda_function *function = load_note(cuda);
	struct zi_cuda_stream *stream;
	struct zi_cuda_event *event;
	int code;

	CHECK(function);
	CHECK(!cuda->cuEventCreate(&event, 0));
	CHECK(!cuda->cuEventQuery(event));
	CHECK(!cuda->cuEventSynchronize(event));
	CHECK(!cuda->cuStreamCreateWithPriority(&stream, 1, 0));
	for (uint32_t i = 0; i < 10; i++)
		CHECK(!note(cuda, function, stream, i));
	CHECK(!cuda->cuEventRecord(event, stream));
	while ((code = cuda->cuEventQuery(event)) == ZI_CUDA_NOT_READY)
		;
	CHECK(!code);
	CHECK(notes_are(10));
	for (uint32_t i = 10; i < 20; i++)
		CHECK(!note(cuda, function, stream, i));
	while ((code = cuda->cuStreamQuery(stream)) == ZI_CUDA_NOT_READY)
		;
	CHECK(!code);
	CHECK(notes_are(20));
	for (uint32_t i = 20; i < 30; i++)
		CHECK(!note(cuda, function, NULL, i));
	while ((code = cuda->cuStreamQuery(NULL)) == ZI_CUDA_NOT_READY)
		;
	CHECK(!code);
	CHECK(notes_are(30));
	return 0;
}

Test(gpu_streams, come_to_an_end_where_somebody_only_asks)
{
	in_all_orders(poll_all);
}

/* Blocking streams and the default one by turns. */
static int mix_with_default(const struct zi_cuda *cuda)
{
	struct zi_cuda_function *function = load_note(cuda);
	struct zi_cuda_stream *streams[2];

	CHECK(function);
	for (uint32_t i = 0; i < 2; i++)
		CHECK(!cuda->cuStreamCreateWithPriority(&streams[i], 0, 0));
	for (uint32_t i = 0; i < 20; i += 2) {
		CHECK(!note(cuda, function, streams[i / 2 % 2], i));
		CHECK(!note(cuda, function, NULL, i + 1));
	}
	CHECK(!cuda->cuStreamSynchronize(NULL));
	CHECK(notes_are(20));
	/* The default stream's end is also that of the others. */
	CHECK(!note(cuda, function, streams[0], 20));
	CHECK(!cuda->cuStreamSynchronize(NULL));
	CHECK(notes_are(21));
	return 0;
}

Test(gpu_streams, that_block_keep_their_order_towards_the_default_stream)
{
	in_all_orders(mix_with_default);
}

static int destroy_with_work(const struct zi_cuda *cuda)
{
	struct zi_cuda_function *function = load_note(cuda);
	struct zi_cuda_stream *stream;
	struct zi_cuda_event *event;

	CHECK(function);
	CHECK(!cuda->cuEventCreate(&event, 0));
	CHECK(!cuda->cuStreamCreateWithPriority(&stream, 1, 0));
	for (uint32_t i = 0; i < 10; i++)
		CHECK(!note(cuda, function, stream, i));
	CHECK(!cuda->cuEventRecord(event, stream));
	CHECK(!cuda->cuStreamDestroy(stream));
	CHECK(note(cuda, function, stream, 10) == ZI_CUDA_INVALID_HANDLE);
	CHECK(cuda->cuStreamDestroy(stream) == ZI_CUDA_INVALID_HANDLE);
	CHECK(!cuda->cuEventSynchronize(event));
	CHECK(notes_are(10));
	CHECK(!cuda->cuEventDestroy(event));
	CHECK(!cuda->cuCtxSynchronize());
	return 0;
}

Test(gpu_streams, that_are_destroyed_run_what_they_have)
{
	in_all_orders(destroy_with_work);
}

static int synchronize_all(const struct zi_cuda *cuda)
{
	struct zi_cuda_function *function = load_note(cuda);
	struct zi_cuda_stream *streams[3];
	uint32_t sum = 0;

	CHECK(function);
	/* One note at a time: they may run at once otherwise. */
	for (uint32_t i = 0; i < 3; i++) {
		CHECK(!cuda->cuStreamCreateWithPriority(&streams[i], 1, 0));
		CHECK(!note(cuda, function, streams[i], i));
		CHECK(!cuda->cuCtxSynchronize());
	}
	for (uint32_t i = 0; i < 3; i++)
		sum += notes[i];
	CHECK(sum == 3);
	return note_count == 3 ? 0 : __LINE__;
}

Test(gpu_streams, of_a_context_end_before_it_is_synchronized)
{
	in_all_orders(synchronize_all);
}

static int measure(const struct zi_cuda *cuda)
{
	struct zi_cuda_event *start, *end, *silent;
	float ms = -1;

	CHECK(!cuda->cuEventCreate(&start, 0));
	CHECK(!cuda->cuEventCreate(&end, ZI_CUDA_EVENT_BLOCKING));
	CHECK(!cuda->cuEventCreate(&silent, ZI_CUDA_EVENT_NO_TIMING));
	CHECK(cuda->cuEventCreate(&silent, 16) == ZI_CUDA_INVALID_VALUE);
	CHECK(cuda->cuEventElapsedTime(&ms, start, end) == ZI_CUDA_INVALID_HANDLE);
	CHECK(!cuda->cuEventRecord(start, NULL));
	CHECK(!cuda->cuEventRecord(silent, NULL));
	CHECK(!cuda->cuEventRecord(end, NULL));
	CHECK(!cuda->cuEventSynchronize(end));
	CHECK(!cuda->cuEventElapsedTime(&ms, start, end));
	CHECK(ms >= 0);
	CHECK(cuda->cuEventElapsedTime(&ms, start, silent) == ZI_CUDA_INVALID_HANDLE);
	return 0;
}

Test(gpu_streams, have_the_time_between_two_events)
{
	in_all_orders(measure);
}

Test(gpu_streams, late_run_nothing_that_nobody_waits_for)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "order=late");
	struct zi_cuda_function *function = load_note(cuda);
	struct zi_cuda_stream *waited, *other;
	struct zi_cuda_event *start, *end;
	float ms;

	cr_assert_eq(cuda->cuStreamCreateWithPriority(&waited, 1, 0), 0);
	cr_assert_eq(cuda->cuStreamCreateWithPriority(&other, 1, 0), 0);
	cr_assert_eq(cuda->cuEventCreate(&start, 0), 0);
	cr_assert_eq(cuda->cuEventCreate(&end, 0), 0);
	cr_assert_eq(note(cuda, function, other, 5), 0);
	cr_assert_eq(cuda->cuEventRecord(start, other), 0);
	cr_assert_eq(cuda->cuEventRecord(end, other), 0);
	cr_assert_eq(note(cuda, function, waited, 0), 0);
	cr_assert_eq(cuda->cuStreamSynchronize(waited), 0);
	cr_assert_eq(note_count, 1);
	cr_assert_eq(notes[0], 0);
	cr_assert_eq(cuda->cuEventElapsedTime(&ms, start, end), ZI_CUDA_NOT_READY);
	cr_assert_eq(cuda->cuStreamQuery(other), ZI_CUDA_NOT_READY);
	cr_assert_eq(cuda->cuEventQuery(end), ZI_CUDA_NOT_READY);
}

Test(gpu_streams, are_known_by_their_handles)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	struct zi_cuda_stream *stranger = (void *)&driver, *made;
	struct zi_cuda_event *no_event = (void *)&driver, *event;
	struct zi_cuda_context *context;
	float ms;

	cr_assert_eq(cuda->cuStreamCreateWithPriority(&made, 2, 0), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuEventCreate(&event, 0), 0);
	cr_assert_eq(cuda->cuStreamQuery(stranger), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuStreamSynchronize(stranger), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuStreamDestroy(stranger), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuStreamDestroy(NULL), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuStreamGetCtx(stranger, &context), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuStreamWaitEvent(stranger, event, 0), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuStreamWaitEvent(NULL, no_event, 0), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuStreamWaitEvent(NULL, event, 1), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuEventRecord(event, stranger), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuEventRecord(no_event, NULL), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuEventQuery(no_event), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuEventSynchronize(no_event), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuEventElapsedTime(&ms, event, no_event), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuEventDestroy(no_event), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuEventDestroy(event), 0);
	cr_assert_eq(cuda->cuEventDestroy(event), ZI_CUDA_INVALID_HANDLE);
}

Test(gpu_streams, that_read_what_was_unmapped_break_their_context)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "order=late");
	uint64_t handle, address = map_chunks(cuda, 1, &handle);
	uint32_t word = 7;

	cr_assert_eq(cuda->cuMemcpyDtoHAsync(&word, address, 4, NULL), 0);
	cr_assert_eq(cuda->cuMemUnmap(address, 2u << 20), 0);
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), ZI_CUDA_ILLEGAL_ADDRESS);
	cr_assert_eq(word, 7);
}

Test(gpu_streams, copy_from_one_address_to_another)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	uint64_t handles[2], address = map_chunks(cuda, 2, handles);
	uint32_t words[4] = { 1, 2, 3, 4 };

	cr_assert_eq(cuda->cuMemcpyHtoDAsync(address, words, 16, NULL), 0);
	cr_assert_eq(cuda->cuMemcpyDtoDAsync(address + (2u << 20), address, 16, NULL), 0);
	cr_assert_eq(cuda->cuMemsetD8Async(address + (2u << 20) + 4, 0xff, 4, NULL), 0);
	cr_assert_eq(cuda->cuMemcpyDtoHAsync(words, address + (2u << 20), 16, NULL), 0);
	cr_assert_eq(cuda->cuMemcpyDtoHAsync(words, 0, 0, NULL), 0, "nothing");
	cr_assert_eq(cuda->cuMemcpyDtoDAsync(address, address + (4u << 20), 16, NULL),
	             ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemsetD8Async(0, 0, 1, NULL), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), 0);
	cr_assert_eq(words[0], 1);
	cr_assert_eq(words[1], UINT32_MAX);
	cr_assert_eq(words[3], 4);
}
