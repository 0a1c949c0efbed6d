/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: each function of the table works through the fake, and each one can be made to fail.
 * Method: one list of calls, of all functions once; then, in a child for each, the list again with
 * one of them failing.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/gpu/fixture.h"

#define CHUNK     (2ull << 20)
#define CALLS_MAX 64u

static struct zi_gpu_driver driver;

static struct {
	const char *name;
	int code;
} calls[CALLS_MAX];
static uint32_t call_total;

static void add_call(const char *name, int code)
{
	cr_assert_lt(call_total, CALLS_MAX);
	calls[call_total].name = name;
	calls[call_total++].code = code;
}

#define CALL(function, ...) add_call(#function, driver.cuda.function(__VA_ARGS__))

static void call_devices(void)
{
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	const char *words;
	char text[64];
	uint8_t uuid[ZI_CUDA_UUID_BYTES];
	size_t bytes;
	int number;

	CALL(cuInit, 0);
	CALL(cuDriverGetVersion, &number);
	CALL(cuGetErrorName, 1, &words);
	CALL(cuGetErrorString, 1, &words);
	CALL(cuDeviceGetCount, &number);
	CALL(cuDeviceGet, &number, 0);
	CALL(cuDeviceGetName, text, sizeof(text), 0);
	CALL(cuDeviceGetUuid, uuid, 0);
	CALL(cuDeviceGetUuidGpu, uuid, 0);
	CALL(cuDeviceGetAttribute, &number, ZI_CUDA_ATTRIBUTE_VMM, 0);
	CALL(cuDeviceTotalMem, &bytes, 0);
	CALL(cuDeviceGetPCIBusId, text, sizeof(text), 0);
	CALL(cuMemGetAllocationGranularity, &bytes, &chunk, 0);
}

static void call_contexts(void)
{
	struct zi_cuda_context *context = NULL, *found;
	uint32_t flags;
	size_t bytes;
	int number, other;

	CALL(cuDevicePrimaryCtxRetain, &context, 0);
	CALL(cuDevicePrimaryCtxGetState, 0, &flags, &number);
	CALL(cuCtxPushCurrent, context);
	CALL(cuCtxPopCurrent, &found);
	CALL(cuCtxSetCurrent, context);
	CALL(cuCtxGetCurrent, &found);
	CALL(cuCtxGetStreamPriorityRange, &number, &other);
	CALL(cuMemGetInfo, &bytes, &bytes);
}

/* Return: an address where a chunk is mapped, unless a call failed. */
static uint64_t call_chunks(uint64_t *ret_handles)
{
	const struct zi_cuda_access access = zi_gpu_access(0, ZI_CUDA_ACCESS_READ_WRITE);
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	uint64_t address = 0;
	int fd = -1;

	CALL(cuMemCreate, &ret_handles[0], CHUNK, &chunk, 0);
	CALL(cuMemExportToShareableHandle, &fd, ret_handles[0], ZI_CUDA_HANDLE_POSIX_FD, 0);
	CALL(cuMemImportFromShareableHandle, &ret_handles[1], (void *)(intptr_t)fd, 1);
	if (fd >= 0)
		(void)close(fd);
	CALL(cuMemAddressReserve, &address, CHUNK, 0, 0, 0);
	CALL(cuMemMap, address, CHUNK, 0, ret_handles[1], 0);
	CALL(cuMemSetAccess, address, CHUNK, &access, 1);
	return address;
}

static void call_streams(uint64_t address)
{
	static char host[8192] __attribute__((aligned(4096)));
	struct zi_cuda_function *mix = NULL;
	struct zi_cuda_module *module = NULL;
	struct zi_cuda_event *event = NULL;
	struct zi_cuda_stream *stream = NULL;
	struct zi_cuda_context *context;
	void *memory = NULL;
	uint64_t count = 0; /* The addresses are wrong where an earlier call failed. */
	uint32_t rounds = 1;
	void *parameters[] = { &address, &address, &count, &rounds };
	float ms;

	CALL(cuMemHostRegister, host, 4096, 0);
	CALL(cuMemHostAlloc, &memory, 4096, 0);
	CALL(cuStreamCreateWithPriority, &stream, ZI_CUDA_STREAM_NON_BLOCKING, 0);
	CALL(cuStreamGetCtx, stream, &context);
	CALL(cuEventCreate, &event, 0);
	CALL(cuMemcpyHtoDAsync, address, host, 4096, stream);
	CALL(cuMemcpyDtoHAsync, host, address, 4096, stream);
	CALL(cuMemcpyDtoDAsync, address, address + 4096, 4096, stream);
	CALL(cuMemsetD8Async, address, 1, 4096, stream);
	CALL(cuModuleLoadData, &module, ".version 7.0\n");
	CALL(cuModuleGetFunction, &mix, module, "fake_mix");
	CALL(cuLaunchKernel, mix, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
	CALL(cuEventRecord, event, stream);
	CALL(cuStreamWaitEvent, NULL, event, 0);
	CALL(cuEventSynchronize, event);
	CALL(cuEventQuery, event);
	CALL(cuEventElapsedTime, &ms, event, event);
	CALL(cuStreamSynchronize, stream);
	CALL(cuStreamQuery, stream);
	CALL(cuCtxSynchronize);
	CALL(cuEventDestroy, event);
	CALL(cuStreamDestroy, stream);
	CALL(cuModuleUnload, module);
	CALL(cuMemFreeHost, memory);
	CALL(cuMemHostUnregister, host);
}

static void call_all(void)
{
	uint64_t handles[2] = { 0 };
	uint64_t address;

	call_devices();
	call_contexts();
	address = call_chunks(handles);
	call_streams(address);
	CALL(cuMemUnmap, address, CHUNK);
	CALL(cuMemAddressFree, address, CHUNK);
	CALL(cuMemRelease, handles[0]);
	CALL(cuDevicePrimaryCtxRelease, 0);
}

Test(gpu_functions, all_work)
{
	cr_assert_eq(open_gpu(&driver, "", NULL), 0);
	call_all();
	cr_assert_eq(call_total, ZI_CUDA_FUNCTIONS);
	for (uint32_t i = 0; i < call_total; i++)
		cr_assert_eq(calls[i].code, 0, "%s: %d", calls[i].name, calls[i].code);
	for (uint32_t i = 0; i < call_total; i++)
		for (uint32_t k = 0; k < i; k++)
			cr_assert_str_neq(calls[i].name, calls[k].name, "each one once");
}

/* The @index-th call fails, and whatever follows does not crash. Return: the exit code of the
 * child. */
static int fail_call(uint32_t index)
{
	const char *name = calls[index].name;
	char options[96];

	if (!strcmp(name, "cuDeviceGetUuidGpu"))
		(void)snprintf(options, sizeof(options), "fail=cuDeviceGetUuid:2:999");
	else if (!strcmp(name, "cuInit") || !strcmp(name, "cuDriverGetVersion"))
		(void)snprintf(options, sizeof(options), "fail=%s:2:999", name);
	else
		(void)snprintf(options, sizeof(options), "fail=%s:1:999", name);
	if (open_gpu(&driver, options, NULL))
		return 2;
	call_total = 0;
	call_all();
	for (uint32_t i = 0; i < index; i++)
		if (calls[i].code)
			return 3;
	return calls[index].code == 999 ? 0 : 4;
}

Test(gpu_functions, fail_one_by_one)
{
	/* The names, from a process of their own: the fake reads its options once. */
	int pipe_fds[2], status;
	uint32_t total = 0;
	pid_t child;

	cr_assert_eq(pipe(pipe_fds), 0);
	child = fork();
	if (!child) {
		if (open_gpu(&driver, "", NULL))
			_exit(1);
		call_all();
		_exit(write(pipe_fds[1], calls, sizeof(calls)) != sizeof(calls));
	}
	status = wait_child(child);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0);
	cr_assert_eq(read(pipe_fds[0], calls, sizeof(calls)), sizeof(calls));
	while (calls[total].name)
		total++;
	cr_assert_eq(total, ZI_CUDA_FUNCTIONS);
	for (uint32_t i = 0; i < total; i++) {
		child = fork();
		if (!child)
			_exit(fail_call(i));
		status = wait_child(child);
		cr_assert(WIFEXITED(status), "%s", calls[i].name);
		cr_assert_eq(WEXITSTATUS(status), 0, "%s: %d", calls[i].name, WEXITSTATUS(status));
	}
	(void)close(pipe_fds[0]);
	(void)close(pipe_fds[1]);
}
