/* SPDX-License-Identifier: Apache-2.0 */
/* All functions that the fake library exports, by the names of their versions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/gpu/cuda.h"

struct fake_kernel;

#pragma GCC visibility push(default)

/* fake_gpu.h */
int fake_kernel_add(const struct fake_kernel *kernel);
uint64_t fake_call_count(const char *place);

/* table.c */
int cuGetProcAddress(const char *name, void **ret_function, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **ret_function, int version, uint64_t flags,
                        int *ret_status);

/* inject.c, device.c */
int cuInit(uint32_t flags);
int cuDriverGetVersion(int *ret_version);
int cuGetErrorName(int code, const char **ret_name);
int cuGetErrorString(int code, const char **ret_text);
int cuDeviceGetCount(int *ret_count);
int cuDeviceGet(int *ret_device, int index);
int cuDeviceGetName(char *name, int capacity, int device);
int cuDeviceGetUuid(uint8_t *ret_bytes, int device);
int cuDeviceGetUuid_v2(uint8_t *ret_bytes, int device);
int cuDeviceGetAttribute(int *ret_value, int attribute, int device);
int cuDeviceTotalMem_v2(size_t *ret_bytes, int device);
int cuDeviceGetPCIBusId(char *text, int capacity, int device);

/* context.c */
int cuDevicePrimaryCtxRetain(struct zi_cuda_context **ret_context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxGetState(int device, uint32_t *ret_flags, int *ret_is_active);
int cuCtxSetCurrent(struct zi_cuda_context *context);
int cuCtxGetCurrent(struct zi_cuda_context **ret_context);
int cuCtxPushCurrent_v2(struct zi_cuda_context *context);
int cuCtxPopCurrent_v2(struct zi_cuda_context **ret_context);
int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_most);

/* memory.c */
int cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total);
int cuMemGetAllocationGranularity(size_t *ret_bytes, const struct zi_cuda_allocation *allocation,
                                  int option);
int cuMemCreate(uint64_t *ret_handle, size_t bytes, const struct zi_cuda_allocation *allocation,
                uint64_t flags);
int cuMemRelease(uint64_t handle);
int cuMemExportToShareableHandle(void *ret_shared, uint64_t handle, int handle_type,
                                 uint64_t flags);
int cuMemImportFromShareableHandle(uint64_t *ret_handle, void *shared, int handle_type);

/* alloc.c */
int cuMemAlloc_v2(uint64_t *ret_address, size_t bytes);
int cuMemFree_v2(uint64_t address);

/* range.c */
int cuMemAddressReserve(uint64_t *ret_address, size_t bytes, size_t alignment, uint64_t wanted,
                        uint64_t flags);
int cuMemAddressFree(uint64_t address, size_t bytes);
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags);
int cuMemSetAccess(uint64_t address, size_t bytes, const struct zi_cuda_access *accesses,
                   size_t count);
int cuMemUnmap(uint64_t address, size_t bytes);

/* host.c */
int cuMemHostRegister_v2(void *memory, size_t bytes, uint32_t flags);
int cuMemHostUnregister(void *memory);
int cuMemHostAlloc(void **ret_memory, size_t bytes, uint32_t flags);
int cuMemFreeHost(void *memory);

/* stream_calls.c */
int cuStreamCreateWithPriority(struct zi_cuda_stream **ret_stream, uint32_t flags, int priority);
int cuStreamQuery(struct zi_cuda_stream *stream);
int cuStreamSynchronize(struct zi_cuda_stream *stream);
int cuStreamWaitEvent(struct zi_cuda_stream *stream, struct zi_cuda_event *event, uint32_t flags);
int cuStreamDestroy_v2(struct zi_cuda_stream *stream);
int cuStreamGetCtx(struct zi_cuda_stream *stream, struct zi_cuda_context **ret_context);
int cuCtxSynchronize(void);

/* event.c */
int cuEventCreate(struct zi_cuda_event **ret_event, uint32_t flags);
int cuEventRecord(struct zi_cuda_event *event, struct zi_cuda_stream *stream);
int cuEventQuery(struct zi_cuda_event *event);
int cuEventSynchronize(struct zi_cuda_event *event);
int cuEventDestroy_v2(struct zi_cuda_event *event);
int cuEventElapsedTime(float *ret_ms, struct zi_cuda_event *start, struct zi_cuda_event *end);

/* copy.c */
int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t bytes,
                         struct zi_cuda_stream *stream);
int cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t bytes,
                         struct zi_cuda_stream *stream);
int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t bytes,
                         struct zi_cuda_stream *stream);
int cuMemsetD8Async(uint64_t target, uint8_t value, size_t bytes, struct zi_cuda_stream *stream);

/* kernel.c */
int cuModuleLoadData(struct zi_cuda_module **ret_module, const void *image);
int cuModuleUnload(struct zi_cuda_module *module);
int cuModuleGetFunction(struct zi_cuda_function **ret_function, struct zi_cuda_module *module,
                        const char *name);
int cuLaunchKernel(struct zi_cuda_function *function, uint32_t grid_x, uint32_t grid_y,
                   uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z,
                   uint32_t shared_bytes, struct zi_cuda_stream *stream, void **parameters,
                   void **extra);

#pragma GCC visibility pop
