/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver says of a GPU; see device.h. Floor 1, any thread: no state. */
#include "common/gpu/device.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/text.h"
#include "common/gpu/driver.h"

/* Where the groups of 4, 2, 2, 2 and 6 bytes of a UUID begin; then its end. */
static const uint8_t uuid_groups[] = { 0, 4, 6, 8, 10, ZI_CUDA_UUID_BYTES };

static void format_uuid(const uint8_t *bytes, bool is_mig, char *text)
{
	char *end = text + ZI_GPU_UUID_BYTES;

	text += snprintf(text, (size_t)(end - text), is_mig ? "MIG" : "GPU");
	for (size_t group = 0; group + 1 < ZI_COUNT_OF(uuid_groups); group++) {
		*text++ = '-';
		for (uint32_t i = uuid_groups[group]; i < uuid_groups[group + 1]; i++)
			text += snprintf(text, (size_t)(end - text), "%02x", bytes[i]);
	}
	assert(text == end - 1);
}

/* See device.h. */
bool zi_gpu_is_uuid(const char *text)
{
	if (strncasecmp(text, "GPU", 3) != 0 && strncasecmp(text, "MIG", 3) != 0)
		return false;
	text += 3;
	for (size_t group = 0; group + 1 < ZI_COUNT_OF(uuid_groups); group++) {
		if (*text++ != '-')
			return false;
		for (uint32_t i = 2 * uuid_groups[group]; i < 2 * uuid_groups[group + 1]; i++)
			if (!isxdigit((unsigned char)*text++))
				return false;
	}
	return !*text;
}

/* Values of the attributes of one device. The first error stays. */
struct attributes {
	const struct zi_cuda *cuda;
	int device;
	int code;
};

/* 0 after an error. */
static int attribute(struct attributes *attributes, int name)
{
	int value = 0;

	if (!attributes->code)
		attributes->code =
			attributes->cuda->cuDeviceGetAttribute(&value, name, attributes->device);
	return attributes->code ? 0 : value;
}

static uint32_t count_attribute(struct attributes *attributes, int name)
{
	int value = attribute(attributes, name);

	return value > 0 ? (uint32_t)value : 0;
}

static int read_attributes(const struct zi_cuda *cuda, struct zi_gpu_device *device)
{
	struct attributes attributes = { .cuda = cuda, .device = device->device };

	device->capability = 10 * count_attribute(&attributes, ZI_CUDA_ATTRIBUTE_CAPABILITY_MAJOR) +
	                     count_attribute(&attributes, ZI_CUDA_ATTRIBUTE_CAPABILITY_MINOR);
	device->multiprocessor_count =
		count_attribute(&attributes, ZI_CUDA_ATTRIBUTE_MULTIPROCESSORS);
	device->copy_engine_count = count_attribute(&attributes, ZI_CUDA_ATTRIBUTE_COPY_ENGINES);
	device->compute_mode = attribute(&attributes, ZI_CUDA_ATTRIBUTE_COMPUTE_MODE);
	device->has_vmm = attribute(&attributes, ZI_CUDA_ATTRIBUTE_VMM);
	device->has_posix_fds = attribute(&attributes, ZI_CUDA_ATTRIBUTE_POSIX_FDS);
	device->has_read_only_register =
		attribute(&attributes, ZI_CUDA_ATTRIBUTE_READ_ONLY_REGISTER);
	device->has_host_pointers = attribute(&attributes, ZI_CUDA_ATTRIBUTE_HOST_POINTERS);
	device->is_integrated = attribute(&attributes, ZI_CUDA_ATTRIBUTE_INTEGRATED);
	if (attributes.code)
		return attributes.code;
	/* Drivers before CUDA 12.2 do not know this one. */
	if (cuda->cuDeviceGetAttribute(&device->host_numa, ZI_CUDA_ATTRIBUTE_HOST_NUMA,
	                               device->device))
		device->host_numa = -1;
	return ZI_CUDA_SUCCESS;
}

/* UUIDs and the place on the bus. An instance has a UUID of its own beside its GPU's. */
static int read_names(const struct zi_cuda *cuda, struct zi_gpu_device *device)
{
	uint8_t own[ZI_CUDA_UUID_BYTES] = { 0 }, whole[ZI_CUDA_UUID_BYTES] = { 0 };
	int code = cuda->cuDeviceGetUuid(own, device->device);

	if (!code)
		code = cuda->cuDeviceGetUuidGpu(whole, device->device);
	if (!code)
		code = cuda->cuDeviceGetName(device->name, sizeof(device->name), device->device);
	if (!code)
		code = cuda->cuDeviceGetPCIBusId(device->pci, sizeof(device->pci), device->device);
	if (code)
		return code;
	/* Not every driver ends a name that does not fit. */
	device->name[sizeof(device->name) - 1] = '\0';
	device->pci[sizeof(device->pci) - 1] = '\0';
	for (char *c = device->pci; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	/* The name ("NVIDIA A100 MIG 1g.5gb") tells it too, should both UUIDs be the instance's. */
	device->is_mig = memcmp(own, whole, sizeof(own)) != 0 || strstr(device->name, " MIG ");
	format_uuid(own, device->is_mig, device->uuid);
	return ZI_CUDA_SUCCESS;
}

static int read_memory(const struct zi_cuda *cuda, struct zi_gpu_device *device)
{
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(device->device);
	size_t bytes = 0, granularity_bytes = 0;
	int code = cuda->cuDeviceTotalMem(&bytes, device->device);

	/* Without VMM the driver may refuse to say. */
	if (!code && device->has_vmm && device->has_posix_fds)
		code = cuda->cuMemGetAllocationGranularity(&granularity_bytes, &chunk,
		                                           ZI_CUDA_GRANULARITY_RECOMMENDED);
	if (code)
		return code;
	device->bytes = bytes;
	device->granularity_bytes = granularity_bytes;
	return ZI_CUDA_SUCCESS;
}

/* See device.h. */
int zi_gpu_device_count(const struct zi_gpu_driver *driver, uint32_t *ret_count,
                        struct zi_text *text)
{
	int count = 0;
	int code = driver->cuda.cuDeviceGetCount(&count);

	if (code)
		return err_origin(zi_gpu_error(&driver->cuda, code, text, "counting GPUs"));
	*ret_count = count < 0 ? 0 : ZI_MIN((uint32_t)count, ZI_GPU_DEVICES_MAX);
	return 0;
}

/* See device.h. */
int zi_gpu_device_describe(const struct zi_gpu_driver *driver, uint32_t index,
                           struct zi_gpu_device *ret_device, struct zi_text *text)
{
	const struct zi_cuda *cuda = &driver->cuda;
	struct zi_gpu_device device = { .index = (int32_t)index };
	int code;

	assert(index < ZI_GPU_DEVICES_MAX);
	code = cuda->cuDeviceGet(&device.device, device.index);
	if (!code)
		code = read_names(cuda, &device);
	if (!code)
		code = read_attributes(cuda, &device);
	if (!code)
		code = read_memory(cuda, &device);
	if (code)
		return err_origin(zi_gpu_error(cuda, code, text, "describing GPU %u", index));
	*ret_device = device;
	return 0;
}

/* See device.h. Only the wanted one is described: another may be broken, or hang when it is asked
 * for more than its names. */
int zi_gpu_device_find(const struct zi_gpu_driver *driver, const char *uuid,
                       struct zi_gpu_device *ret_device, struct zi_text *text)
{
	const struct zi_cuda *cuda = &driver->cuda;
	char first[ZI_GPU_UUID_BYTES] = "";
	uint32_t count, broken = 0;
	int broken_code = 0;
	int r = zi_gpu_device_count(driver, &count, text);

	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < count; i++) {
		struct zi_gpu_device device = { .index = (int32_t)i };
		int code = cuda->cuDeviceGet(&device.device, device.index);

		if (!code)
			code = read_names(cuda, &device);
		if (code && !broken_code) {
			broken_code = code;
			broken = i;
		}
		if (code)
			continue;
		if (strcasecmp(device.uuid, uuid) == 0)
			return err_trace(zi_gpu_device_describe(driver, i, ret_device, text));
		if (!first[0])
			memcpy(first, device.uuid, sizeof(first));
	}
	if (broken_code)
		return err_origin(zi_gpu_error(
			cuda, broken_code, text,
			"no GPU '%.48s' among those that answer: asking GPU %u", uuid, broken));
	return err_origin(
		zi_text_error(text, -ENODEV,
	                      "no GPU '%.48s' among the %u that this process sees%s%s: check "
	                      "CUDA_VISIBLE_DEVICES and nvidia-smi -L",
	                      uuid, count, count ? ", the first is " : "", first));
}

/* See device.h. */
int zi_gpu_device_check(const struct zi_gpu_device *device, struct zi_text *text)
{
	char granularity[96];
	const char *lack = NULL;

	(void)snprintf(granularity, sizeof(granularity),
	               "has an allocation granularity of %s, no multiple of 2 MiB",
	               zi_format_bytes(device->granularity_bytes).chars); /* Fits. */
	if (!device->has_vmm)
		lack = "has no virtual memory management (attribute 102 is 0)";
	else if (!device->has_posix_fds)
		lack = "cannot export memory as file descriptors (attribute 103 is 0)";
	else if (!device->granularity_bytes || device->granularity_bytes % ZI_GPU_GRAIN_BYTES)
		lack = granularity;
	else if (device->compute_mode == ZI_CUDA_MODE_PROHIBITED)
		lack = "is in compute mode PROHIBITED (nvidia-smi -c DEFAULT changes that)";
	if (!lack)
		return 0;
	return err_origin(zi_text_error(text, -ENOTSUP, "%s ('%s') %s: zinf cannot use it",
	                                device->uuid, device->name, lack));
}
