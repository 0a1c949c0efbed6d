/* SPDX-License-Identifier: Apache-2.0 */
/* How programs find the fake's functions: cuGetProcAddress(). The rows prove that each function has
 * the type that zinf's table has. */
#include <string.h>

#include "common/base/cleanup.h"
#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"

/* @function is that member of struct zi_cuda, or this does not compile. */
#define ROW(field, name, function, version)                                                       \
	{                                                                                         \
		name,                                                                             \
			__builtin_choose_expr(__builtin_types_compatible_p(                       \
						      __typeof__(&function),                      \
						      __typeof__(((struct zi_cuda *)0)->field)),  \
		                              (void *)function, (struct fake_type_differs){ 0 }), \
			version                                                                   \
	}

struct fake_type_differs {
	int nothing;
};

/* @version: the first one of CUDA with these parameters. Of one name the older row comes first. */
static const struct {
	const char *name;
	void *function;
	int version;
} rows[] = {
	ROW(cuInit, "cuInit", cuInit, 2000),
	ROW(cuDriverGetVersion, "cuDriverGetVersion", cuDriverGetVersion, 2020),
	ROW(cuGetErrorName, "cuGetErrorName", cuGetErrorName, 6000),
	ROW(cuGetErrorString, "cuGetErrorString", cuGetErrorString, 6000),
	ROW(cuDeviceGetCount, "cuDeviceGetCount", cuDeviceGetCount, 2000),
	ROW(cuDeviceGet, "cuDeviceGet", cuDeviceGet, 2000),
	ROW(cuDeviceGetName, "cuDeviceGetName", cuDeviceGetName, 2000),
	ROW(cuDeviceGetUuidGpu, "cuDeviceGetUuid", cuDeviceGetUuid, 9020),
	ROW(cuDeviceGetUuid, "cuDeviceGetUuid", cuDeviceGetUuid_v2, 11040),
	ROW(cuDeviceGetAttribute, "cuDeviceGetAttribute", cuDeviceGetAttribute, 2000),
	ROW(cuDeviceTotalMem, "cuDeviceTotalMem", cuDeviceTotalMem_v2, 3020),
	ROW(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", cuDeviceGetPCIBusId, 4010),
	ROW(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain, 7000),
	ROW(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2,
	    11000),
	ROW(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState,
	    7000),
	ROW(cuCtxSetCurrent, "cuCtxSetCurrent", cuCtxSetCurrent, 4000),
	ROW(cuCtxGetCurrent, "cuCtxGetCurrent", cuCtxGetCurrent, 4000),
	ROW(cuCtxPushCurrent, "cuCtxPushCurrent", cuCtxPushCurrent_v2, 4000),
	ROW(cuCtxPopCurrent, "cuCtxPopCurrent", cuCtxPopCurrent_v2, 4000),
	ROW(cuCtxSynchronize, "cuCtxSynchronize", cuCtxSynchronize, 2000),
	ROW(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange,
	    5050),
	ROW(cuMemGetInfo, "cuMemGetInfo", cuMemGetInfo_v2, 3020),
	ROW(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity",
	    cuMemGetAllocationGranularity, 10020),
	ROW(cuMemCreate, "cuMemCreate", cuMemCreate, 10020),
	ROW(cuMemRelease, "cuMemRelease", cuMemRelease, 10020),
	ROW(cuMemExportToShareableHandle, "cuMemExportToShareableHandle",
	    cuMemExportToShareableHandle, 10020),
	ROW(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",
	    cuMemImportFromShareableHandle, 10020),
	ROW(cuMemAddressReserve, "cuMemAddressReserve", cuMemAddressReserve, 10020),
	ROW(cuMemAddressFree, "cuMemAddressFree", cuMemAddressFree, 10020),
	ROW(cuMemMap, "cuMemMap", cuMemMap, 10020),
	ROW(cuMemSetAccess, "cuMemSetAccess", cuMemSetAccess, 10020),
	ROW(cuMemUnmap, "cuMemUnmap", cuMemUnmap, 10020),
	ROW(cuMemHostRegister, "cuMemHostRegister", cuMemHostRegister_v2, 6050),
	ROW(cuMemHostUnregister, "cuMemHostUnregister", cuMemHostUnregister, 4000),
	ROW(cuMemHostAlloc, "cuMemHostAlloc", cuMemHostAlloc, 2020),
	ROW(cuMemFreeHost, "cuMemFreeHost", cuMemFreeHost, 2000),
	ROW(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", cuStreamCreateWithPriority,
	    5050),
	ROW(cuStreamQuery, "cuStreamQuery", cuStreamQuery, 2000),
	ROW(cuStreamSynchronize, "cuStreamSynchronize", cuStreamSynchronize, 2000),
	ROW(cuStreamWaitEvent, "cuStreamWaitEvent", cuStreamWaitEvent, 3020),
	ROW(cuStreamDestroy, "cuStreamDestroy", cuStreamDestroy_v2, 4000),
	ROW(cuStreamGetCtx, "cuStreamGetCtx", cuStreamGetCtx, 9020),
	ROW(cuEventCreate, "cuEventCreate", cuEventCreate, 2000),
	ROW(cuEventRecord, "cuEventRecord", cuEventRecord, 2000),
	ROW(cuEventQuery, "cuEventQuery", cuEventQuery, 2000),
	ROW(cuEventSynchronize, "cuEventSynchronize", cuEventSynchronize, 2000),
	ROW(cuEventDestroy, "cuEventDestroy", cuEventDestroy_v2, 4000),
	ROW(cuEventElapsedTime, "cuEventElapsedTime", cuEventElapsedTime, 2000),
	ROW(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2, 3020),
	ROW(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2, 3020),
	ROW(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2, 3020),
	ROW(cuMemsetD8Async, "cuMemsetD8Async", cuMemsetD8Async, 3020),
	ROW(cuModuleLoadData, "cuModuleLoadData", cuModuleLoadData, 2000),
	ROW(cuModuleUnload, "cuModuleUnload", cuModuleUnload, 2000),
	ROW(cuModuleGetFunction, "cuModuleGetFunction", cuModuleGetFunction, 2000),
	ROW(cuLaunchKernel, "cuLaunchKernel", cuLaunchKernel, 4000),
};
static_assert(ZI_COUNT_OF(rows) == ZI_CUDA_FUNCTIONS, "every function that zinf calls");

/* The newest version of @name that @version of CUDA has. Return: a code. */
static int find(const char *name, int version, void **ret_function)
{
	const struct fake_options *options = fake_options();
	void *found = NULL;

	*ret_function = NULL;
	if (version > options->version)
		return ZI_CUDA_INVALID_VALUE;
	for (uint32_t i = 0; i < ZI_COUNT_OF(rows); i++)
		if (!strcmp(rows[i].name, name) && rows[i].version <= version &&
		    strcmp(name, options->missing) != 0)
			found = rows[i].function;
	if (!found)
		return ZI_CUDA_NOT_FOUND;
	*ret_function = found;
	return ZI_CUDA_SUCCESS;
}

int cuGetProcAddress(const char *name, void **ret_function, int version, uint64_t flags)
{
	int code = fake_enter_always(__func__);

	if (code)
		return code;
	return flags > 2 ? ZI_CUDA_INVALID_VALUE : find(name, version, ret_function);
}

int cuGetProcAddress_v2(const char *name, void **ret_function, int version, uint64_t flags,
                        int *ret_status)
{
	int code = cuGetProcAddress(name, ret_function, version, flags);

	if (ret_status)
		*ret_status = code == ZI_CUDA_NOT_FOUND; /* SYMBOL_NOT_FOUND */
	return code;
}
