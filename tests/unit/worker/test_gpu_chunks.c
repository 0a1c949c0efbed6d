/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: chunks are made, exported and released without a CUDA context and without a mapping, are
 * known by ids of their own, and requests that make no sense are refused with the figures. Method:
 * the part of zinf-gpu that calls the driver, on the fake one, which counts the calls.
 */
#include <dlfcn.h>
#include <fcntl.h>

#include "common/gpu/driver.h"
#include "daemon/worker/gpu/chunks.h"
#include "tests/unit/worker/gpu_real.h"

static struct zi_gpu_driver driver;
static struct chunks chunks;

static void open_chunks(const char *words)
{
	struct zi_gpu_device device;
	struct zi_text text;

	gpu_real_set(words);
	cr_assert_eq(zi_gpu_driver_open(&driver, gpu_real_driver, &text), 0, "%s", text.chars);
	cr_assert_eq(zi_gpu_device_describe(&driver, 0, &device, &text), 0, "%s", text.chars);
	chunks_init(&chunks, &driver, &device);
}

/* Return: the id. */
static uint64_t make(uint64_t bytes)
{
	struct zi_text text;
	uint64_t id;
	int fd;

	cr_assert_eq(chunks_create(&chunks, bytes, &text, &id, &fd), 0, "%s", text.chars);
	cr_expect_neq(fcntl(fd, F_GETFD), -1);
	zi_close(fd);
	return id;
}

static uint64_t calls(const char *place)
{
	fake_call_count_fn count;
	void *symbol = dlsym(driver.handle, "fake_call_count");

	cr_assert(symbol);
	memcpy(&count, &symbol, sizeof(count));
	return count(place);
}

Test(gpu_chunks, no_context_is_made_and_nothing_is_mapped)
{
	static const char *const places[] = { "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",
		                              "cuCtxPushCurrent", "cuMemMap",
		                              "cuMemAddressReserve" };
	struct zi_cuda_context *context = (struct zi_cuda_context *)&chunks;
	uint32_t flags;
	int is_active = 1;

	open_chunks("");
	for (uint32_t i = 0; i < 20; i++)
		cr_expect_eq(make(GPU_TEST_CHUNK), i + 1);
	chunks_release_after(&chunks, 0);
	cr_expect_eq(calls("cuMemCreate"), 20);
	cr_expect_eq(calls("cuMemRelease"), 20);
	for (uint32_t i = 0; i < ZI_COUNT_OF(places); i++)
		cr_expect_eq(calls(places[i]), 0, "%s", places[i]);
	cr_assert_eq(driver.cuda.cuCtxGetCurrent(&context), 0);
	cr_expect_null(context);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxGetState(0, &flags, &is_active), 0);
	cr_expect_eq(is_active, 0);
	zi_gpu_driver_close(&driver);
}

Test(gpu_chunks, chunks_are_released_by_their_ids_in_any_order)
{
	static const uint64_t order[] = { 3, 1, 5, 4, 2 };
	struct zi_text text;

	open_chunks("");
	for (uint32_t i = 0; i < 5; i++)
		(void)make((i + 1) * GPU_TEST_CHUNK);
	cr_expect_eq(chunks.held_bytes, 15 * GPU_TEST_CHUNK);
	for (uint32_t i = 0; i < 5; i++) {
		uint64_t before = chunks.held_bytes;

		cr_expect_eq(chunks_release(&chunks, order[i], &text), 0, "%s", text.chars);
		cr_expect_eq(before - chunks.held_bytes, order[i] * GPU_TEST_CHUNK);
		cr_expect_eq(chunks_release(&chunks, order[i], &text), -ENOENT);
		cr_expect_eq(chunks.count, 4 - i);
	}
	cr_expect_eq(chunks.held_bytes, 0);
	cr_expect_eq(chunks_release(&chunks, 0, &text), -ENOENT);
	cr_expect_eq(chunks_release(&chunks, UINT64_MAX, &text), -ENOENT);
	cr_expect_eq(make(GPU_TEST_CHUNK), 6);
	chunks_release_after(&chunks, 0);
	zi_gpu_driver_close(&driver);
}

Test(gpu_chunks, an_undone_request_keeps_the_chunks_of_before)
{
	open_chunks("");
	(void)make(GPU_TEST_CHUNK);
	(void)make(GPU_TEST_CHUNK);
	(void)make(GPU_TEST_CHUNK);
	chunks_release_after(&chunks, 2);
	cr_expect_eq(chunks.count, 2);
	chunks_release_after(&chunks, 2);
	cr_expect_eq(chunks.count, 2);
	chunks_release_after(&chunks, 0);
	cr_expect_eq(chunks.count, 0);
	zi_gpu_driver_close(&driver);
}

static void expect_check(uint32_t count, uint64_t bytes, int error, const char *says)
{
	struct zi_text text = { "" };

	cr_expect_eq(chunks_check(&chunks, count, bytes, &text), error, "%u of %llu", count,
	             (unsigned long long)bytes);
	gpu_test_expect_text(text, says);
}

Test(gpu_chunks, requests_that_make_no_sense_are_refused_with_figures)
{
	open_chunks("bytes=64G");
	expect_check(1, GPU_TEST_CHUNK, 0, "");
	expect_check(0, GPU_TEST_CHUNK, -EINVAL, "0 chunks");
	expect_check(1, 0, -EINVAL, "0 B");
	expect_check(1, GPU_TEST_CHUNK - 1, -EINVAL, "a multiple of 2097152 B");
	expect_check(1, GPU_TEST_CHUNK / 2, -EINVAL, "a multiple of 2097152 B");
	expect_check(1, UINT64_MAX - 1, -EINVAL, "a multiple of 2097152 B");
	expect_check(GPU_CHUNKS_MAX, GPU_TEST_CHUNK, 0, "");
	expect_check(GPU_CHUNKS_MAX + 1, GPU_TEST_CHUNK, -ENOSPC, "8192 are the most");
	expect_check(UINT32_MAX, GPU_TEST_CHUNK, -ENOSPC, "8192 are the most");
	expect_check(1, 64ull << 30, 0, "");
	expect_check(1, 66ull << 30, -ENOMEM, "has 64 GiB");
	expect_check(2, 64ull << 30, -ENOMEM, "has 64 GiB");
	expect_check(8192, 1ull << 62, -ENOMEM, "has 64 GiB");
	(void)make(GPU_TEST_CHUNK);
	expect_check(GPU_CHUNKS_MAX, GPU_TEST_CHUNK, -ENOSPC, "and it has 1");
	chunks_release_after(&chunks, 0);
	zi_gpu_driver_close(&driver);
}
