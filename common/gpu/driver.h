/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver of this machine, opened at run time, for libzinf and the worker zinf-gpu. What
 * its codes mean: error.h. GPUs as plain structs: device.h. Floor 1.
 *
 * A struct zi_gpu_driver is constant once it is open: any thread may use it. Opening calls cuInit()
 * and makes no context. A process that describes devices and creates chunks has no
 * context either, so that no kernel's error reaches it. After fork() the child cannot use the
 * driver of its parent.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/gpu/cuda.h"
#include "common/gpu/error.h"

struct zi_text;

/* What dlopen() looks for where no path is given. */
#define ZI_GPU_DRIVER_NAME "libcuda.so.1"
/* CUDA 11.4 (NVIDIA driver 470). Virtual memory management and its file descriptors came with 10.2,
 * registration of read-only memory with 11.1, UUIDs of MIG instances with 11.4. */
#define ZI_GPU_VERSION_MIN 11040
#define ZI_GPU_PATH_BYTES  256u

struct zi_gpu_driver {
	void *handle;                 /* of dlopen() */
	int version;                  /* 12040: CUDA 12.4 */
	char path[ZI_GPU_PATH_BYTES]; /* as it was asked for */
	struct zi_cuda cuda;
};

/**
 * zi_gpu_driver_open() - load the driver and initialize it
 * @driver: zeroed, or closed before
 * @path: of the library; NULL or "": ZI_GPU_DRIVER_NAME
 * @text: the reason, in one sentence with what to do. May be NULL
 *
 * Takes up to seconds where no process keeps the driver awake.
 * Return: 0; -ENODEV there is no driver or no GPU; -ELIBBAD the library is no CUDA driver; -ENOTSUP
 * it is too old or lacks a function; -ENAMETOOLONG; another errno of cuInit().
 */
int zi_gpu_driver_open(struct zi_gpu_driver *driver, const char *path, struct zi_text *text);
/* Accepts a driver that was never opened. The code stays in the process, as threads of the driver
 * may run in it; what the caller made (contexts, memory) stays until the process ends. */
void zi_gpu_driver_close(struct zi_gpu_driver *driver);

/* What a chunk is: memory of the device with this number in this process. A chunk can be exported
 * as a file descriptor. For cuMemCreate() and cuMemGetAllocationGranularity(). */
static inline struct zi_cuda_allocation zi_gpu_chunk(int device)
{
	return (struct zi_cuda_allocation){
		.type = ZI_CUDA_MEMORY_PINNED,
		.handle_types = ZI_CUDA_HANDLE_POSIX_FD,
		.location = { .type = ZI_CUDA_LOCATION_DEVICE, .id = device },
	};
}

/* Access of the device to a mapped range. @flags: ZI_CUDA_ACCESS_... For cuMemSetAccess(). */
static inline struct zi_cuda_access zi_gpu_access(int device, int flags)
{
	return (struct zi_cuda_access){
		.location = { .type = ZI_CUDA_LOCATION_DEVICE, .id = device },
		.flags = flags,
	};
}
