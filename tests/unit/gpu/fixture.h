/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of GPUs share: a fake driver that is open, with a context where one is wanted. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/text.h"
#include "common/gpu/driver.h"
#include "tests/gpu/fake_gpu.h"

/* Each test is a process of its own, in which the fake reads @options once. */
static inline int open_gpu(struct zi_gpu_driver *driver, const char *options, struct zi_text *text)
{
	char path[FAKE_GPU_PATH_BYTES];

	cr_assert_eq(setenv(FAKE_GPU_ENV, options, 1), 0);
	return zi_gpu_driver_open(driver, fake_gpu_path(path, sizeof(path), "libcuda.so.1"), text);
}

/* Open, and the first GPU's primary context is current. */
static inline const struct zi_cuda *start_gpu(struct zi_gpu_driver *driver, const char *options)
{
	struct zi_cuda_context *context = NULL;
	struct zi_text text = { "" };

	cr_assert_eq(open_gpu(driver, options, &text), 0, "%s", text.chars);
	cr_assert_eq(driver->cuda.cuDevicePrimaryCtxRetain(&context, 0), 0);
	cr_assert_eq(driver->cuda.cuCtxSetCurrent(context), 0);
	return &driver->cuda;
}

/* How often a place was called in this process. */
static inline uint64_t call_count(const struct zi_gpu_driver *driver, const char *place)
{
	fake_call_count_fn count;

	find_fake_symbol(driver->handle, "fake_call_count", &count);
	return count(place);
}

/* Memory of the first GPU, at addresses of its own. @count: of chunks of 2 MiB, one allocation
 * each. */
static inline uint64_t map_chunks(const struct zi_cuda *cuda, uint32_t count, uint64_t *ret_handles)
{
	const struct zi_cuda_access access = zi_gpu_access(0, ZI_CUDA_ACCESS_READ_WRITE);
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	const uint64_t bytes = 2ull << 20;
	uint64_t address = 0;

	cr_assert_eq(cuda->cuMemAddressReserve(&address, count * bytes, 0, 0, 0), 0);
	for (uint32_t i = 0; i < count; i++) {
		cr_assert_eq(cuda->cuMemCreate(&ret_handles[i], bytes, &chunk, 0), 0);
		cr_assert_eq(cuda->cuMemMap(address + i * bytes, bytes, 0, ret_handles[i], 0), 0);
	}
	cr_assert_eq(cuda->cuMemSetAccess(address, count * bytes, &access, 1), 0);
	return address;
}

/* How @child ends. */
static inline int wait_child(pid_t child)
{
	int status = 0;

	cr_assert_gt(child, 0);
	cr_assert_eq(waitpid(child, &status, 0), child);
	return status;
}
