/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake driver says of itself and of its GPUs. */
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "tests/gpu/context.h"
#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"

static const struct {
	int code;
	const char *name, *text;
} words[] = {
	{ ZI_CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
	{ ZI_CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "FAKE: invalid argument" },
	{ ZI_CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "FAKE: out of memory" },
	{ ZI_CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "FAKE: initialization error" },
	{ ZI_CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "FAKE: no device" },
	{ ZI_CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "FAKE: invalid device ordinal" },
	{ ZI_CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "FAKE: invalid context" },
	{ ZI_CUDA_NOT_READY, "CUDA_ERROR_NOT_READY", "FAKE: not ready" },
	{ ZI_CUDA_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "FAKE: illegal access" },
	{ ZI_CUDA_UNKNOWN, "CUDA_ERROR_UNKNOWN", "FAKE: unknown error" },
};

int cuGetErrorName(int code, const char **ret_name)
{
	int entered = fake_enter_always(__func__);

	if (entered)
		return entered;
	for (uint32_t i = 0; i < ZI_COUNT_OF(words); i++)
		if (words[i].code == code) {
			*ret_name = words[i].name;
			return ZI_CUDA_SUCCESS;
		}
	*ret_name = NULL;
	return ZI_CUDA_INVALID_VALUE;
}

int cuGetErrorString(int code, const char **ret_text)
{
	int entered = fake_enter_always(__func__);

	if (entered)
		return entered;
	for (uint32_t i = 0; i < ZI_COUNT_OF(words); i++)
		if (words[i].code == code) {
			*ret_text = words[i].text;
			return ZI_CUDA_SUCCESS;
		}
	*ret_text = NULL;
	return ZI_CUDA_INVALID_VALUE;
}

int cuDriverGetVersion(int *ret_version)
{
	int code = fake_enter_always(__func__);

	if (!code)
		*ret_version = fake_options()->version;
	return code;
}

int cuDeviceGetCount(int *ret_count)
{
	FAKE_ENTER();
	*ret_count = (int)fake_options()->gpus;
	return ZI_CUDA_SUCCESS;
}

int cuDeviceGet(int *ret_device, int index)
{
	FAKE_ENTER();
	if (!fake_device_exists(index))
		return ZI_CUDA_INVALID_DEVICE;
	if (index == fake_options()->broken)
		return fake_options()->broken_code;
	*ret_device = index;
	return ZI_CUDA_SUCCESS;
}

int cuDeviceGetName(char *name, int capacity, int device)
{
	FAKE_ENTER();
	if (!fake_device_exists(device))
		return ZI_CUDA_INVALID_DEVICE;
	(void)snprintf(name, (size_t)capacity, "zinf FAKE GPU %d (host memory)", device);
	return ZI_CUDA_SUCCESS;
}

/* GPU-fa4e0000-0000-0000-0000-0000000000NN. Of an instance the last but one byte is 1. */
static void write_uuid(uint8_t *bytes, int device, bool is_instance)
{
	memset(bytes, 0, ZI_CUDA_UUID_BYTES);
	bytes[0] = 0xfa;
	bytes[1] = 0x4e;
	bytes[14] = is_instance;
	bytes[15] = (uint8_t)device;
}

int cuDeviceGetUuid(uint8_t *ret_bytes, int device)
{
	FAKE_ENTER();
	if (!fake_device_exists(device))
		return ZI_CUDA_INVALID_DEVICE;
	write_uuid(ret_bytes, device, false);
	return ZI_CUDA_SUCCESS;
}

int cuDeviceGetUuid_v2(uint8_t *ret_bytes, int device)
{
	FAKE_ENTER();
	if (!fake_device_exists(device))
		return ZI_CUDA_INVALID_DEVICE;
	write_uuid(ret_bytes, device, fake_options()->is_mig);
	return ZI_CUDA_SUCCESS;
}

int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
	const struct fake_options *options = fake_options();
	const struct {
		int attribute, value;
	} values[] = {
		{ ZI_CUDA_ATTRIBUTE_MULTIPROCESSORS, 4 },
		{ ZI_CUDA_ATTRIBUTE_INTEGRATED, 0 },
		{ ZI_CUDA_ATTRIBUTE_COMPUTE_MODE, options->mode },
		{ ZI_CUDA_ATTRIBUTE_COPY_ENGINES, 3 },
		{ ZI_CUDA_ATTRIBUTE_CAPABILITY_MAJOR, 9 },
		{ ZI_CUDA_ATTRIBUTE_CAPABILITY_MINOR, 0 },
		{ ZI_CUDA_ATTRIBUTE_HOST_POINTERS, 1 },
		{ ZI_CUDA_ATTRIBUTE_VMM, options->has_vmm },
		{ ZI_CUDA_ATTRIBUTE_POSIX_FDS, options->has_fds },
		{ ZI_CUDA_ATTRIBUTE_READ_ONLY_REGISTER, options->has_read_only },
		{ ZI_CUDA_ATTRIBUTE_HOST_NUMA, 0 },
	};

	FAKE_ENTER();
	if (!fake_device_exists(device))
		return ZI_CUDA_INVALID_DEVICE;
	if (attribute == ZI_CUDA_ATTRIBUTE_HOST_NUMA && options->version < 12020)
		return ZI_CUDA_INVALID_VALUE;
	for (uint32_t i = 0; i < ZI_COUNT_OF(values); i++)
		if (values[i].attribute == attribute) {
			*ret_value = values[i].value;
			return ZI_CUDA_SUCCESS;
		}
	return ZI_CUDA_INVALID_VALUE;
}

int cuDeviceTotalMem_v2(size_t *ret_bytes, int device)
{
	FAKE_ENTER();
	if (!fake_device_exists(device))
		return ZI_CUDA_INVALID_DEVICE;
	if (device == fake_options()->stuck)
		fake_hang();
	*ret_bytes = fake_options()->bytes;
	return ZI_CUDA_SUCCESS;
}

/* In capitals, as NVIDIA's. */
int cuDeviceGetPCIBusId(char *text, int capacity, int device)
{
	FAKE_ENTER();
	if (!fake_device_exists(device))
		return ZI_CUDA_INVALID_DEVICE;
	if (capacity < 13)
		return ZI_CUDA_INVALID_VALUE;
	(void)snprintf(text, (size_t)capacity, "FA4E:%02X:00.0", 0xa0 + device); /* Fits. */
	return ZI_CUDA_SUCCESS;
}
