/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening the CUDA driver: the library, its version, its functions, then cuInit(). Floor 1.
 *
 * A function of the driver has a version of its own ("_v2"), by which its parameters may differ.
 * Each row below names the version of CUDA whose parameters cuda.h declares, so that a newer driver
 * answers with the same ones. cuGetProcAddress() takes that number; a library without it is asked
 * for the symbol of that version. Versions: PFN_... of cudaTypedefs.h.
 */
#include "common/gpu/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/text.h"

/* Streams are the legacy ones, as in libraries that were compiled without per-thread streams. */
#define PROC_ADDRESS_LEGACY_STREAM 1u

struct function_row {
	size_t offset; /* in struct zi_cuda */
	const char *name;
	int version;
	const char *symbol; /* of this version */
};

#define FUNCTION(name, version)                                       \
	{                                                             \
		offsetof(struct zi_cuda, name), #name, version, #name \
	}
#define FUNCTION_V2(name, version)                                          \
	{                                                                   \
		offsetof(struct zi_cuda, name), #name, version, #name "_v2" \
	}

/* In the order of struct zi_cuda. */
static const struct function_row function_rows[] = {
	FUNCTION(cuInit, 2000),
	FUNCTION(cuDriverGetVersion, 2020),
	FUNCTION(cuGetErrorName, 6000),
	FUNCTION(cuGetErrorString, 6000),
	FUNCTION(cuDeviceGetCount, 2000),
	FUNCTION(cuDeviceGet, 2000),
	FUNCTION(cuDeviceGetName, 2000),
	FUNCTION_V2(cuDeviceGetUuid, 11040),
	{ offsetof(struct zi_cuda, cuDeviceGetUuidGpu), "cuDeviceGetUuid", 9020,
	  "cuDeviceGetUuid" },
	FUNCTION(cuDeviceGetAttribute, 2000),
	FUNCTION_V2(cuDeviceTotalMem, 3020),
	FUNCTION(cuDeviceGetPCIBusId, 4010),
	FUNCTION(cuDevicePrimaryCtxRetain, 7000),
	FUNCTION_V2(cuDevicePrimaryCtxRelease, 11000),
	FUNCTION(cuDevicePrimaryCtxGetState, 7000),
	FUNCTION(cuCtxSetCurrent, 4000),
	FUNCTION(cuCtxGetCurrent, 4000),
	FUNCTION_V2(cuCtxPushCurrent, 4000),
	FUNCTION_V2(cuCtxPopCurrent, 4000),
	FUNCTION(cuCtxSynchronize, 2000),
	FUNCTION(cuCtxGetStreamPriorityRange, 5050),
	FUNCTION_V2(cuMemGetInfo, 3020),
	FUNCTION(cuMemGetAllocationGranularity, 10020),
	FUNCTION(cuMemCreate, 10020),
	FUNCTION(cuMemRelease, 10020),
	FUNCTION(cuMemExportToShareableHandle, 10020),
	FUNCTION(cuMemImportFromShareableHandle, 10020),
	FUNCTION(cuMemAddressReserve, 10020),
	FUNCTION(cuMemAddressFree, 10020),
	FUNCTION(cuMemMap, 10020),
	FUNCTION(cuMemSetAccess, 10020),
	FUNCTION(cuMemUnmap, 10020),
	FUNCTION_V2(cuMemHostRegister, 6050),
	FUNCTION(cuMemHostUnregister, 4000),
	FUNCTION(cuMemHostAlloc, 2020),
	FUNCTION(cuMemFreeHost, 2000),
	FUNCTION(cuStreamCreateWithPriority, 5050),
	FUNCTION(cuStreamQuery, 2000),
	FUNCTION(cuStreamSynchronize, 2000),
	FUNCTION(cuStreamWaitEvent, 3020),
	FUNCTION_V2(cuStreamDestroy, 4000),
	FUNCTION(cuStreamGetCtx, 9020),
	FUNCTION(cuEventCreate, 2000),
	FUNCTION(cuEventRecord, 2000),
	FUNCTION(cuEventQuery, 2000),
	FUNCTION(cuEventSynchronize, 2000),
	FUNCTION_V2(cuEventDestroy, 4000),
	FUNCTION(cuEventElapsedTime, 2000),
	FUNCTION_V2(cuMemcpyHtoDAsync, 3020),
	FUNCTION_V2(cuMemcpyDtoHAsync, 3020),
	FUNCTION_V2(cuMemcpyDtoDAsync, 3020),
	FUNCTION(cuMemsetD8Async, 3020),
	FUNCTION(cuModuleLoadData, 2000),
	FUNCTION(cuModuleUnload, 2000),
	FUNCTION(cuModuleGetFunction, 2000),
	FUNCTION(cuLaunchKernel, 4000),
};
static_assert(ZI_COUNT_OF(function_rows) == ZI_CUDA_FUNCTIONS, "a row for each function");

/* What finds functions: one of three, from the newest to the oldest. The form with five parameters
 * came with CUDA 12.0, the one with four with 11.3. */
struct finder {
	void *handle;
	int (*find_v2)(const char *name, void **ret_function, int version, uint64_t flags,
	               int *ret_status);
	int (*find_v1)(const char *name, void **ret_function, int version, uint64_t flags);
};

/* @ret_function: the address of a function pointer. NULL goes there where the library lacks
 * @symbol. */
static void find_symbol(void *library, const char *symbol, void *ret_function)
{
	void *address = dlsym(library, symbol);

	static_assert(sizeof(address) == sizeof(void (*)(void)),
	              "POSIX: dlsym() returns functions");
	memcpy(ret_function, &address, sizeof(address));
}

/* Return: NULL: the driver lacks the function. */
static void *find_function(const struct finder *finder, const struct function_row *row)
{
	void *function = NULL;

	if (finder->find_v2) {
		if (finder->find_v2(row->name, &function, row->version, PROC_ADDRESS_LEGACY_STREAM,
		                    NULL))
			return NULL;
	} else if (finder->find_v1) {
		if (finder->find_v1(row->name, &function, row->version, PROC_ADDRESS_LEGACY_STREAM))
			return NULL;
	} else {
		find_symbol(finder->handle, row->symbol, &function);
	}
	return function;
}

/* Fills the table. Return: 0; -ENOTSUP a function is missing. */
static int fill(struct zi_gpu_driver *driver, struct zi_text *text)
{
	struct finder finder = { .handle = driver->handle };
	const char *missing = NULL;
	uint32_t missing_count = 0;

	find_symbol(driver->handle, "cuGetProcAddress_v2", &finder.find_v2);
	find_symbol(driver->handle, "cuGetProcAddress", &finder.find_v1);
	for (size_t i = 0; i < ZI_COUNT_OF(function_rows); i++) {
		const struct function_row *row = &function_rows[i];
		void *function = find_function(&finder, row);

		assert(row->offset == i * sizeof(void *));
		assert(row->version <= ZI_GPU_VERSION_MIN);
		if (!function && !missing_count++)
			missing = row->symbol;
		memcpy((char *)&driver->cuda + row->offset, &function, sizeof(function));
	}
	if (!missing_count)
		return 0;
	return err_origin(zi_text_error(
		text, -ENOTSUP,
		"the driver '%.96s' (CUDA %d.%d) lacks %u of %u functions, %s the first: install "
		"a whole NVIDIA driver",
		driver->path, driver->version / 1000, driver->version % 1000 / 10, missing_count,
		ZI_CUDA_FUNCTIONS, missing));
}

/* Return: 0; -ELIBBAD no CUDA driver; -ENOTSUP older than ZI_GPU_VERSION_MIN; an errno of the
 * driver. */
static int ask_version(struct zi_gpu_driver *driver, struct zi_text *text)
{
	int (*get_version)(int *ret_version);
	int code;

	find_symbol(driver->handle, "cuDriverGetVersion", &get_version);
	if (!get_version)
		return err_origin(zi_text_error(
			text, -ELIBBAD,
			"'%.96s' is no CUDA driver, as it lacks cuDriverGetVersion: name the "
			"NVIDIA driver's " ZI_GPU_DRIVER_NAME,
			driver->path));
	code = get_version(&driver->version);
	if (code)
		return err_origin(zi_gpu_error(NULL, code, text, "cuDriverGetVersion of '%.96s'",
		                               driver->path));
	if (driver->version >= ZI_GPU_VERSION_MIN)
		return 0;
	return err_origin(zi_text_error(
		text, -ENOTSUP,
		"the driver '%.96s' is of CUDA %d.%d, and zinf needs CUDA %d.%d (NVIDIA driver "
		"470) or newer: update it",
		driver->path, driver->version / 1000, driver->version % 1000 / 10,
		ZI_GPU_VERSION_MIN / 1000, ZI_GPU_VERSION_MIN % 1000 / 10));
}

/* Version, functions, cuInit(). */
static int start(struct zi_gpu_driver *driver, struct zi_text *text)
{
	int code, r;

	r = ask_version(driver, text);
	if (r)
		return err_trace(r);
	r = fill(driver, text);
	if (r)
		return err_trace(r);
	code = driver->cuda.cuInit(0);
	if (code)
		return err_origin(
			zi_gpu_error(&driver->cuda, code, text, "cuInit of '%.96s'", driver->path));
	return 0;
}

/* See driver.h. */
int zi_gpu_driver_open(struct zi_gpu_driver *driver, const char *path, struct zi_text *text)
{
	struct zi_gpu_driver opened = { 0 };
	int r;

	assert(!driver->handle);
	if (!path || !path[0])
		path = ZI_GPU_DRIVER_NAME;
	r = zi_copy_name(opened.path, sizeof(opened.path), path);
	if (r)
		return err_trace(zi_text_error(
			text, r, "the path of the driver has %zu bytes, and %u is the most",
			strlen(path), ZI_GPU_PATH_BYTES - 1));
	/* RTLD_NODELETE: threads of the driver may outlive zi_gpu_driver_close(). */
	opened.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!opened.handle)
		return err_origin(zi_text_error(
			text, -ENODEV,
			"no NVIDIA driver (install it, or name its " ZI_GPU_DRIVER_NAME
			" in the configuration): %s",
			dlerror()));
	r = start(&opened, text);
	if (r) {
		zi_gpu_driver_close(&opened);
		return err_trace(r);
	}
	*driver = opened;
	return 0;
}

/* See driver.h. */
void zi_gpu_driver_close(struct zi_gpu_driver *driver)
{
	if (!driver || !driver->handle)
		return;
	(void)dlclose(driver->handle); /* Fails only for a pointer that dlopen() did not return. */
	*driver = (struct zi_gpu_driver){ 0 };
}
