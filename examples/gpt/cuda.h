/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of the CUDA driver that this program calls, opened at run time: it is built and
 * runs where no CUDA is installed. Declarations are the program's own; names and meaning are those
 * of NVIDIA's manual. Each function returns a code, 0 for success.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "examples/gpt/problem.h"

/* X(field, symbol of the version whose parameters stand here, parameters). Handles are pointers, a
 * device is a number, an address of GPU memory has 64 bits. */
#define GPT_CUDA_FUNCTIONS(X)                                                                   \
	X(cuInit, cuInit, (uint32_t flags))                                                     \
	X(cuGetErrorName, cuGetErrorName, (int code, const char **ret_name))                    \
	X(cuGetErrorString, cuGetErrorString, (int code, const char **ret_text))                \
	X(cuDeviceGetCount, cuDeviceGetCount, (int *ret_count))                                 \
	X(cuDeviceGet, cuDeviceGet, (int *ret_device, int index))                               \
	X(cuDeviceGetUuid, cuDeviceGetUuid_v2, (uint8_t * ret_bytes, int device))               \
	X(cuDeviceGetUuidGpu, cuDeviceGetUuid, (uint8_t * ret_bytes, int device))               \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **ret_context, int device)) \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int device))                \
	X(cuCtxSetCurrent, cuCtxSetCurrent, (void *context))                                    \
	X(cuMemAlloc, cuMemAlloc_v2, (uint64_t * ret_address, size_t bytes))                    \
	X(cuMemFree, cuMemFree_v2, (uint64_t address))                                          \
	X(cuMemHostAlloc, cuMemHostAlloc, (void **ret_memory, size_t bytes, uint32_t flags))    \
	X(cuMemFreeHost, cuMemFreeHost, (void *memory))                                         \
	X(cuStreamCreateWithPriority, cuStreamCreateWithPriority,                               \
	  (void **ret_stream, uint32_t flags, int priority))                                    \
	X(cuStreamSynchronize, cuStreamSynchronize, (void *stream))                             \
	X(cuStreamDestroy, cuStreamDestroy_v2, (void *stream))                                  \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                              \
	  (uint64_t target, const void *source, size_t bytes, void *stream))                    \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                              \
	  (void *target, uint64_t source, size_t bytes, void *stream))                          \
	X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                              \
	  (uint64_t target, uint64_t source, size_t bytes, void *stream))                       \
	X(cuMemsetD8Async, cuMemsetD8Async,                                                     \
	  (uint64_t target, uint8_t value, size_t bytes, void *stream))                         \
	X(cuModuleLoadData, cuModuleLoadData, (void **ret_module, const void *image))           \
	X(cuModuleUnload, cuModuleUnload, (void *module))                                       \
	X(cuModuleGetFunction, cuModuleGetFunction,                                             \
	  (void **ret_function, void *module, const char *name))                                \
	X(cuLaunchKernel, cuLaunchKernel,                                                       \
	  (void *function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x, \
	   uint32_t block_y, uint32_t block_z, uint32_t shared_bytes, void *stream,             \
	   void **parameters, void **extra))

#define GPT_CUDA_FIELD(field, symbol, parameters) int(*field) parameters;
struct gpt_cuda {
	void *library; /* of dlopen() */
	GPT_CUDA_FUNCTIONS(GPT_CUDA_FIELD)
};
#undef GPT_CUDA_FIELD

/* What dlopen() looks for where no path is given. */
#define GPT_CUDA_LIBRARY "libcuda.so.1"

/* Opens the driver and initializes it. @path: NULL: GPT_CUDA_LIBRARY. @cuda: zeroed; close it, also
 * after a failure. Return: 0; -ENODEV there is none, or no GPU; -ELIBBAD it lacks a function. */
int gpt_cuda_open(struct gpt_cuda *cuda, const char *path, struct gpt_problem *problem);
/* The code of the driver stays in the process, as its threads may run in it. */
void gpt_cuda_close(struct gpt_cuda *cuda);
/* @code: not 0. @what: what failed. Return: -ENOMEM where the GPU has no room, else -EIO. */
int gpt_cuda_problem(const struct gpt_cuda *cuda, int code, const char *what,
                     struct gpt_problem *problem);
