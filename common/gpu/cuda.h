/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA driver API that zinf calls: types, constants and a table of functions, for
 * driver.c, which fills the table, and for callers of the table. zinf has declarations of its own,
 * because it is built where no CUDA is installed. Floor 1.
 *
 * Functions have the names of NVIDIA's manual, without a version at the end. Every function returns
 * a code: ZI_CUDA_SUCCESS or an error of the driver (zi_gpu_error() makes a sentence of it). The
 * driver's functions may be called by any thread. A context is current in one thread.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* Objects of the driver. A device is a number, an address of GPU memory and a handle of an
 * allocation are words of 64 bits. */
struct zi_cuda_context;
struct zi_cuda_stream; /* NULL: the legacy default stream of the current context */
struct zi_cuda_event;
struct zi_cuda_module;
struct zi_cuda_function;

/* Codes that zinf tells apart. zi_gpu_errno() knows more. */
enum {
	ZI_CUDA_SUCCESS = 0,
	ZI_CUDA_INVALID_VALUE = 1,
	ZI_CUDA_OUT_OF_MEMORY = 2,
	ZI_CUDA_NOT_INITIALIZED = 3, /* also in a child of fork() whose parent called cuInit() */
	ZI_CUDA_DEINITIALIZED = 4,   /* the process ends */
	ZI_CUDA_STUB_LIBRARY = 34,
	ZI_CUDA_DEVICE_UNAVAILABLE = 46,
	ZI_CUDA_NO_DEVICE = 100,
	ZI_CUDA_INVALID_DEVICE = 101,
	ZI_CUDA_INVALID_IMAGE = 200,
	ZI_CUDA_INVALID_CONTEXT = 201,
	ZI_CUDA_INVALID_HANDLE = 400,
	ZI_CUDA_NOT_FOUND = 500,
	ZI_CUDA_NOT_READY = 600, /* a condition: the work has not ended */
	ZI_CUDA_ILLEGAL_ADDRESS = 700,
	ZI_CUDA_LAUNCH_TIMEOUT = 702,
	ZI_CUDA_HOST_REGISTERED = 712, /* the range is registered already */
	ZI_CUDA_HOST_NOT_REGISTERED = 713,
	ZI_CUDA_LAUNCH_FAILED = 719,
	ZI_CUDA_NOT_PERMITTED = 800,
	ZI_CUDA_NOT_SUPPORTED = 801,
	ZI_CUDA_UNKNOWN = 999,
};

/* Attributes of a device, for cuDeviceGetAttribute(). */
enum {
	ZI_CUDA_ATTRIBUTE_MULTIPROCESSORS = 16,
	ZI_CUDA_ATTRIBUTE_INTEGRATED = 18,
	ZI_CUDA_ATTRIBUTE_COMPUTE_MODE = 20,
	ZI_CUDA_ATTRIBUTE_COPY_ENGINES = 40,
	ZI_CUDA_ATTRIBUTE_CAPABILITY_MAJOR = 75,
	ZI_CUDA_ATTRIBUTE_CAPABILITY_MINOR = 76,
	ZI_CUDA_ATTRIBUTE_HOST_POINTERS = 91, /* registered memory has the CPU's address */
	ZI_CUDA_ATTRIBUTE_VMM = 102,          /* cuMemCreate() and cuMemMap() work */
	ZI_CUDA_ATTRIBUTE_POSIX_FDS = 103,
	ZI_CUDA_ATTRIBUTE_READ_ONLY_REGISTER = 113,
	ZI_CUDA_ATTRIBUTE_HOST_NUMA = 134, /* since CUDA 12.2 */
};

/* Values of ZI_CUDA_ATTRIBUTE_COMPUTE_MODE. */
enum {
	ZI_CUDA_MODE_DEFAULT = 0,
	ZI_CUDA_MODE_PROHIBITED = 2, /* no process may have a context */
	ZI_CUDA_MODE_EXCLUSIVE = 3,  /* one process may */
};

enum {
	ZI_CUDA_MEMORY_PINNED = 1,   /* the type of an allocation */
	ZI_CUDA_HANDLE_POSIX_FD = 1, /* how it can be exported */
	ZI_CUDA_LOCATION_DEVICE = 1,
	ZI_CUDA_ACCESS_READ = 1,
	ZI_CUDA_ACCESS_READ_WRITE = 3,
	ZI_CUDA_GRANULARITY_MINIMUM = 0,
	ZI_CUDA_GRANULARITY_RECOMMENDED = 1,
	ZI_CUDA_REGISTER_PORTABLE = 1, /* for all contexts of the process */
	ZI_CUDA_REGISTER_READ_ONLY = 8,
	ZI_CUDA_STREAM_NON_BLOCKING = 1, /* without an order towards the default stream */
	ZI_CUDA_EVENT_BLOCKING = 1,      /* a wait sleeps */
	ZI_CUDA_EVENT_NO_TIMING = 2,
};

#define ZI_CUDA_UUID_BYTES 16u

struct zi_cuda_location {
	int32_t type; /* ZI_CUDA_LOCATION_DEVICE */
	int32_t id;   /* number of the device in this process */
};

/* The driver's CUmemAllocationProp. */
struct zi_cuda_allocation {
	int32_t type;         /* ZI_CUDA_MEMORY_PINNED */
	int32_t handle_types; /* ZI_CUDA_HANDLE_POSIX_FD */
	struct zi_cuda_location location;
	void *windows_only; /* NULL */
	uint8_t compression;
	uint8_t is_rdma_capable;
	uint16_t usage;
	uint8_t reserved[4];
};
static_assert(sizeof(struct zi_cuda_allocation) == 32, "as the driver reads it");
static_assert(offsetof(struct zi_cuda_allocation, location) == 8, "as the driver reads it");
static_assert(offsetof(struct zi_cuda_allocation, compression) == 24, "as the driver reads it");

/* The driver's CUmemAccessDesc. */
struct zi_cuda_access {
	struct zi_cuda_location location;
	int32_t flags; /* ZI_CUDA_ACCESS_... */
};
static_assert(sizeof(struct zi_cuda_access) == 12, "as the driver reads it");

/*
 * All functions that zinf calls. `device` is what cuDeviceGet() returns. Outputs are written only
 * on success. Where "no context" stands, the function needs cuInit() only.
 */
struct zi_cuda {
	/* No context. */
	int (*cuInit)(uint32_t flags); /* flags: 0 */
	int (*cuDriverGetVersion)(int *ret_version);
	int (*cuGetErrorName)(int code, const char **ret_name);
	int (*cuGetErrorString)(int code, const char **ret_text);
	int (*cuDeviceGetCount)(int *ret_count);
	int (*cuDeviceGet)(int *ret_device, int index);
	int (*cuDeviceGetName)(char *name, int capacity, int device);
	int (*cuDeviceGetUuid)(uint8_t *ret_bytes, int device);    /* a MIG instance's own */
	int (*cuDeviceGetUuidGpu)(uint8_t *ret_bytes, int device); /* of the GPU it lies on */
	int (*cuDeviceGetAttribute)(int *ret_value, int attribute, int device);
	int (*cuDeviceTotalMem)(size_t *ret_bytes, int device);
	int (*cuDeviceGetPCIBusId)(char *text, int capacity, int device);

	/* Contexts. The primary context is the one that the CUDA runtime and PyTorch use. */
	int (*cuDevicePrimaryCtxRetain)(struct zi_cuda_context **ret_context, int device);
	int (*cuDevicePrimaryCtxRelease)(int device);
	int (*cuDevicePrimaryCtxGetState)(int device, uint32_t *ret_flags, int *ret_is_active);
	int (*cuCtxSetCurrent)(struct zi_cuda_context *context); /* NULL: none */
	int (*cuCtxGetCurrent)(struct zi_cuda_context **ret_context);
	int (*cuCtxPushCurrent)(struct zi_cuda_context *context);
	int (*cuCtxPopCurrent)(struct zi_cuda_context **ret_context); /* may be NULL */
	int (*cuCtxSynchronize)(void);
	/* Smaller numbers are more urgent: @ret_most <= @ret_least. */
	int (*cuCtxGetStreamPriorityRange)(int *ret_least, int *ret_most);
	int (*cuMemGetInfo)(size_t *ret_free, size_t *ret_total);

	/* Virtual memory management: no context. Bytes and addresses are multiples of the
	 * granularity. */
	int (*cuMemGetAllocationGranularity)(size_t *ret_bytes,
	                                     const struct zi_cuda_allocation *allocation,
	                                     int option);
	int (*cuMemCreate)(uint64_t *ret_handle, size_t bytes,
	                   const struct zi_cuda_allocation *allocation, uint64_t flags);
	int (*cuMemRelease)(uint64_t handle); /* memory stays while it is mapped, or exported */
	/* @ret_shared: an int, the new descriptor. */
	int (*cuMemExportToShareableHandle)(void *ret_shared, uint64_t handle, int handle_type,
	                                    uint64_t flags);
	/* @shared: the descriptor as a pointer; it stays the caller's. */
	int (*cuMemImportFromShareableHandle)(uint64_t *ret_handle, void *shared, int handle_type);
	int (*cuMemAddressReserve)(uint64_t *ret_address, size_t bytes, size_t alignment,
	                           uint64_t wanted, uint64_t flags);
	int (*cuMemAddressFree)(uint64_t address, size_t bytes);
	int (*cuMemMap)(uint64_t address, size_t bytes, size_t offset, /* offset: 0 */
	                uint64_t handle, uint64_t flags);
	int (*cuMemSetAccess)(uint64_t address, size_t bytes, const struct zi_cuda_access *accesses,
	                      size_t count);
	int (*cuMemUnmap)(uint64_t address, size_t bytes);

	/* Memory of the host. */
	int (*cuMemHostRegister)(void *memory, size_t bytes, uint32_t flags);
	int (*cuMemHostUnregister)(void *memory);
	int (*cuMemHostAlloc)(void **ret_memory, size_t bytes, uint32_t flags);
	int (*cuMemFreeHost)(void *memory);

	/* Streams. cuStreamQuery() returns ZI_CUDA_NOT_READY while work is queued. */
	int (*cuStreamCreateWithPriority)(struct zi_cuda_stream **ret_stream, uint32_t flags,
	                                  int priority);
	int (*cuStreamQuery)(struct zi_cuda_stream *stream);
	int (*cuStreamSynchronize)(struct zi_cuda_stream *stream);
	int (*cuStreamWaitEvent)(struct zi_cuda_stream *stream, struct zi_cuda_event *event,
	                         uint32_t flags);
	int (*cuStreamDestroy)(struct zi_cuda_stream *stream); /* queued work still runs */
	int (*cuStreamGetCtx)(struct zi_cuda_stream *stream, struct zi_cuda_context **ret_context);

	/* Events. One that was never recorded is complete. */
	int (*cuEventCreate)(struct zi_cuda_event **ret_event, uint32_t flags);
	int (*cuEventRecord)(struct zi_cuda_event *event, struct zi_cuda_stream *stream);
	int (*cuEventQuery)(struct zi_cuda_event *event);
	int (*cuEventSynchronize)(struct zi_cuda_event *event);
	int (*cuEventDestroy)(struct zi_cuda_event *event);
	int (*cuEventElapsedTime)(float *ret_ms, struct zi_cuda_event *start,
	                          struct zi_cuda_event *end);

	/* Copies: target before source, queued on a stream. */
	int (*cuMemcpyHtoDAsync)(uint64_t target, const void *source, size_t bytes,
	                         struct zi_cuda_stream *stream);
	int (*cuMemcpyDtoHAsync)(void *target, uint64_t source, size_t bytes,
	                         struct zi_cuda_stream *stream);
	int (*cuMemcpyDtoDAsync)(uint64_t target, uint64_t source, size_t bytes,
	                         struct zi_cuda_stream *stream);
	int (*cuMemsetD8Async)(uint64_t target, uint8_t value, size_t bytes,
	                       struct zi_cuda_stream *stream);

	/* Kernels. An image is a fatbin, a cubin or PTX. */
	int (*cuModuleLoadData)(struct zi_cuda_module **ret_module, const void *image);
	int (*cuModuleUnload)(struct zi_cuda_module *module);
	int (*cuModuleGetFunction)(struct zi_cuda_function **ret_function,
	                           struct zi_cuda_module *module, const char *name);
	/* @parameters: the address of each parameter; read before the call returns. */
	int (*cuLaunchKernel)(struct zi_cuda_function *function, uint32_t grid_x, uint32_t grid_y,
	                      uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z,
	                      uint32_t shared_bytes, struct zi_cuda_stream *stream,
	                      void **parameters, void **extra); /* extra: NULL */
};

#define ZI_CUDA_FUNCTIONS 56u
static_assert(sizeof(struct zi_cuda) == ZI_CUDA_FUNCTIONS * sizeof(void *), "functions only");
