/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: primary contexts are counted, current per thread, and broken for good by a sticky error,
 * while what needs no context goes on. Method: one context per fake GPU, a second thread, and two
 * processes that want an exclusive GPU.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/unit/gpu/fixture.h"

static struct zi_gpu_driver driver;

static void expect_state(int device, int wanted)
{
	uint32_t flags;
	int is_active = -1;

	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxGetState(device, &flags, &is_active), 0);
	cr_assert_eq(is_active, wanted);
}

Test(gpu_context, of_a_device_is_one_and_is_counted)
{
	struct zi_cuda_context *first, *again, *second;

	cr_assert_eq(open_gpu(&driver, "", NULL), 0);
	expect_state(0, 0);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxRetain(&first, 0), 0);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxRetain(&again, 0), 0);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxRetain(&second, 1), 0);
	cr_assert_eq(first, again);
	cr_assert_neq(first, second);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxRelease(0), 0);
	expect_state(0, 1);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxRelease(0), 0);
	expect_state(0, 0);
	expect_state(1, 1);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxRelease(0), ZI_CUDA_INVALID_CONTEXT);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxRetain(&again, 2), ZI_CUDA_INVALID_DEVICE);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxRelease(2), ZI_CUDA_INVALID_DEVICE);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxGetState(2, NULL, NULL), ZI_CUDA_INVALID_DEVICE);
}

static void *look_at_current(void *arg)
{
	struct zi_cuda_context **found = arg;

	(void)driver.cuda.cuCtxGetCurrent(found); /* What it found is looked at. */
	return NULL;
}

Test(gpu_context, is_current_in_one_thread_and_the_former_one_comes_back)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	struct zi_cuda_context *first, *second, *found = NULL, *other = (void *)1;
	pthread_t thread;

	cr_assert_eq(cuda->cuCtxGetCurrent(&first), 0);
	cr_assert_not_null(first);
	cr_assert_eq(cuda->cuDevicePrimaryCtxRetain(&second, 1), 0);
	cr_assert_eq(cuda->cuCtxPushCurrent(second), 0);
	cr_assert_eq(cuda->cuCtxGetCurrent(&found), 0);
	cr_assert_eq(found, second);
	cr_assert_eq(pthread_create(&thread, NULL, look_at_current, &other), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_null(other);
	cr_assert_eq(cuda->cuCtxPopCurrent(&found), 0);
	cr_assert_eq(found, second);
	cr_assert_eq(cuda->cuCtxGetCurrent(&found), 0);
	cr_assert_eq(found, first);
	cr_assert_eq(cuda->cuCtxSetCurrent(NULL), 0);
	cr_assert_eq(cuda->cuCtxPopCurrent(NULL), ZI_CUDA_INVALID_CONTEXT);
	cr_assert_eq(cuda->cuCtxPushCurrent(NULL), ZI_CUDA_INVALID_VALUE);
}

Test(gpu_context, has_priorities_of_streams)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	int least = 7, most = 7;

	cr_assert_eq(cuda->cuCtxGetStreamPriorityRange(&least, &most), 0);
	cr_assert_eq(least, 0);
	cr_assert_lt(most, least);
}

Test(gpu_context, that_is_none_refuses_what_needs_one)
{
	struct zi_cuda_stream *stream;
	size_t bytes;

	cr_assert_eq(open_gpu(&driver, "", NULL), 0);
	cr_assert_eq(driver.cuda.cuMemGetInfo(&bytes, &bytes), ZI_CUDA_INVALID_CONTEXT);
	cr_assert_eq(driver.cuda.cuStreamCreateWithPriority(&stream, 0, 0),
	             ZI_CUDA_INVALID_CONTEXT);
	cr_assert_eq(driver.cuda.cuCtxSynchronize(), ZI_CUDA_INVALID_CONTEXT);
}

Test(gpu_context, that_was_released_refuses_what_needs_one)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");

	cr_assert_eq(cuda->cuDevicePrimaryCtxRelease(0), 0);
	cr_assert_eq(cuda->cuCtxSynchronize(), ZI_CUDA_INVALID_CONTEXT);
}

Test(gpu_context, that_is_broken_stays_so_and_chunks_go_on)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "sticky=kernel:1:700");
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	struct zi_cuda_module *module;
	struct zi_cuda_function *mix;
	struct zi_cuda_context *context;
	uint64_t handle, count = 0, address = 0;
	uint32_t rounds = 0;
	void *parameters[] = { &address, &address, &count, &rounds };
	size_t bytes;
	int fd;

	cr_assert_eq(cuda->cuModuleLoadData(&module, ".version 7.0\n"), 0);
	cr_assert_eq(cuda->cuModuleGetFunction(&mix, module, "fake_mix"), 0);
	cr_assert_eq(cuda->cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), 0);
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), ZI_CUDA_ILLEGAL_ADDRESS);
	cr_assert_eq(cuda->cuStreamQuery(NULL), ZI_CUDA_ILLEGAL_ADDRESS);
	cr_assert_eq(cuda->cuMemGetInfo(&bytes, &bytes), ZI_CUDA_ILLEGAL_ADDRESS);
	cr_assert_eq(cuda->cuDevicePrimaryCtxRetain(&context, 0), ZI_CUDA_ILLEGAL_ADDRESS);
	cr_assert_eq(cuda->cuMemCreate(&handle, 2u << 20, &chunk, 0), 0);
	cr_assert_eq(cuda->cuMemExportToShareableHandle(&fd, handle, 1, 0), 0);
	(void)close(fd);
	cr_assert_eq(cuda->cuMemRelease(handle), 0);
	cr_assert_eq(cuda->cuDevicePrimaryCtxRetain(&context, 1), 0, "the other GPU works");
}

Test(gpu_context, on_a_device_that_prohibits_them_is_refused)
{
	struct zi_cuda_context *context;

	cr_assert_eq(open_gpu(&driver, "mode=prohibited", NULL), 0);
	cr_assert_eq(driver.cuda.cuDevicePrimaryCtxRetain(&context, 0), ZI_CUDA_DEVICE_UNAVAILABLE);
}

/* A process that wants the context of GPU 0. Return: the code. */
static int want_context(void)
{
	struct zi_cuda_context *context;
	int status;
	pid_t child = fork();

	if (!child) {
		if (open_gpu(&driver, "mode=exclusive", NULL))
			_exit(255);
		_exit(driver.cuda.cuDevicePrimaryCtxRetain(&context, 0));
	}
	status = wait_child(child);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

Test(gpu_context, on_an_exclusive_device_is_one_processes)
{
	struct zi_cuda_context *context;
	int wishes[2], answers[2], status;
	char byte = 0;
	pid_t holder;

	cr_assert_eq(pipe(wishes), 0);
	cr_assert_eq(pipe(answers), 0);
	holder = fork();
	if (!holder) {
		if (open_gpu(&driver, "mode=exclusive", NULL) ||
		    driver.cuda.cuDevicePrimaryCtxRetain(&context, 0) ||
		    driver.cuda.cuDevicePrimaryCtxRetain(&context, 0) ||
		    write(answers[1], &byte, 1) != 1 || read(wishes[0], &byte, 1) != 1 ||
		    driver.cuda.cuDevicePrimaryCtxRelease(0) ||
		    driver.cuda.cuDevicePrimaryCtxRelease(0) || write(answers[1], &byte, 1) != 1 ||
		    read(wishes[0], &byte, 1) != 1)
			_exit(1);
		_exit(0);
	}
	cr_assert_eq(read(answers[0], &byte, 1), 1);
	cr_assert_eq(want_context(), ZI_CUDA_DEVICE_UNAVAILABLE);
	cr_assert_eq(write(wishes[1], &byte, 1), 1);
	cr_assert_eq(read(answers[0], &byte, 1), 1);
	cr_assert_eq(want_context(), 0, "it was released");
	cr_assert_eq(want_context(), 0, "its holder has ended");
	cr_assert_eq(write(wishes[1], &byte, 1), 1);
	status = wait_child(holder);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0);
}
