/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations; see memory.h. Memory counts in the process that made it, until it is released and no
 * longer mapped there. */
#include "tests/gpu/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/gpu/context.h"
#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"

/* Of the memfd: the device's number follows. */
#define MEMORY_NAME "zinf-FAKE-gpu-"

static struct fake_allocation allocations[FAKE_ALLOCATIONS_MAX];
static uint64_t newest_handle;

struct fake_allocation *fake_allocation_find(uint64_t handle)
{
	for (uint32_t i = 0; i < FAKE_ALLOCATIONS_MAX; i++)
		if (allocations[i].handle == handle && allocations[i].has_handle)
			return &allocations[i];
	return NULL;
}

void fake_allocation_settle(struct fake_allocation *allocation)
{
	if (allocation->has_handle || allocation->mapping_count)
		return;
	(void)close(allocation->fd); /* A memfd. */
	*allocation = (struct fake_allocation){ 0 };
}

static uint64_t free_bytes(int device)
{
	const struct fake_options *options = fake_options();
	uint64_t used_bytes = options->used_bytes;

	for (uint32_t i = 0; i < FAKE_ALLOCATIONS_MAX; i++)
		if (allocations[i].is_own && allocations[i].device == device)
			used_bytes += allocations[i].bytes;
	return used_bytes < options->bytes ? options->bytes - used_bytes : 0;
}

/* Takes @fd on success. Return: a code. */
static int add(const struct fake_allocation *allocation, uint64_t *ret_handle)
{
	for (uint32_t i = 0; i < FAKE_ALLOCATIONS_MAX; i++)
		if (!allocations[i].handle) {
			allocations[i] = *allocation;
			allocations[i].handle = *ret_handle = ++newest_handle;
			allocations[i].has_handle = true;
			return ZI_CUDA_SUCCESS;
		}
	return ZI_CUDA_OUT_OF_MEMORY;
}

int cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	struct zi_cuda_context *context;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	*ret_free = free_bytes(context->device);
	*ret_total = fake_options()->bytes;
	(void)pthread_mutex_unlock(&fake_mutex);
	return ZI_CUDA_SUCCESS;
}

/* Return: a code that says what is wrong with @wanted. */
static int check(const struct zi_cuda_allocation *wanted)
{
	const struct fake_options *options = fake_options();

	if (wanted->type != ZI_CUDA_MEMORY_PINNED ||
	    wanted->location.type != ZI_CUDA_LOCATION_DEVICE || wanted->windows_only)
		return ZI_CUDA_INVALID_VALUE;
	if (!fake_device_exists(wanted->location.id))
		return ZI_CUDA_INVALID_DEVICE;
	if (!options->has_vmm)
		return ZI_CUDA_NOT_SUPPORTED;
	if (wanted->handle_types & ~ZI_CUDA_HANDLE_POSIX_FD)
		return ZI_CUDA_NOT_SUPPORTED;
	return wanted->handle_types && !options->has_fds ? ZI_CUDA_NOT_SUPPORTED : ZI_CUDA_SUCCESS;
}

int cuMemGetAllocationGranularity(size_t *ret_bytes, const struct zi_cuda_allocation *allocation,
                                  int option)
{
	int code;

	FAKE_ENTER();
	if (option != ZI_CUDA_GRANULARITY_MINIMUM && option != ZI_CUDA_GRANULARITY_RECOMMENDED)
		return ZI_CUDA_INVALID_VALUE;
	code = check(allocation);
	if (!code)
		*ret_bytes = FAKE_GRANULARITY_BYTES;
	return code;
}

/* Return: -1. */
static int make_memory(uint64_t bytes, int device)
{
	char name[32];
	int fd;

	(void)snprintf(name, sizeof(name), MEMORY_NAME "%d", device); /* Fits. */
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
		(void)close(fd); /* A memfd. */
		return -1;
	}
	return fd;
}

int cuMemCreate(uint64_t *ret_handle, size_t bytes, const struct zi_cuda_allocation *allocation,
                uint64_t flags)
{
	struct fake_allocation made = { .bytes = bytes, .fd = -1, .is_own = true };
	int code;

	FAKE_ENTER();
	code = check(allocation);
	if (!code && (flags || !bytes || bytes % FAKE_GRANULARITY_BYTES))
		code = ZI_CUDA_INVALID_VALUE;
	if (code)
		return code;
	made.device = allocation->location.id;
	(void)pthread_mutex_lock(&fake_mutex);
	if (bytes <= free_bytes(made.device))
		made.fd = make_memory(bytes, made.device);
	code = made.fd < 0 ? ZI_CUDA_OUT_OF_MEMORY : add(&made, ret_handle);
	(void)pthread_mutex_unlock(&fake_mutex);
	if (code && made.fd >= 0)
		(void)close(made.fd); /* A memfd. */
	return code;
}

int cuMemRelease(uint64_t handle)
{
	struct fake_allocation *allocation;

	FAKE_ENTER();
	(void)pthread_mutex_lock(&fake_mutex);
	allocation = fake_allocation_find(handle);
	if (allocation) {
		allocation->has_handle = false;
		fake_allocation_settle(allocation);
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return allocation ? ZI_CUDA_SUCCESS : ZI_CUDA_INVALID_VALUE;
}

int cuMemExportToShareableHandle(void *ret_shared, uint64_t handle, int handle_type, uint64_t flags)
{
	const struct fake_allocation *allocation;
	int fd = -1;

	FAKE_ENTER();
	if (handle_type != ZI_CUDA_HANDLE_POSIX_FD || flags)
		return ZI_CUDA_NOT_SUPPORTED;
	(void)pthread_mutex_lock(&fake_mutex);
	allocation = fake_allocation_find(handle);
	if (allocation)
		fd = fcntl(allocation->fd, F_DUPFD_CLOEXEC, 0);
	(void)pthread_mutex_unlock(&fake_mutex);
	if (!allocation)
		return ZI_CUDA_INVALID_VALUE;
	if (fd < 0)
		return 304; /* OPERATING_SYSTEM */
	memcpy(ret_shared, &fd, sizeof(fd));
	return ZI_CUDA_SUCCESS;
}

/* The device of a memfd of the fake's. Return: -1: it is none. */
static int device_of(int fd)
{
	char path[32], name[64];
	int device = -1;
	ssize_t bytes;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* Fits. */
	bytes = readlink(path, name, sizeof(name) - 1);
	if (bytes < 0)
		return -1;
	name[bytes] = '\0';
	return sscanf(name, "/memfd:" MEMORY_NAME "%d", &device) == 1 ? device : -1;
}

int cuMemImportFromShareableHandle(uint64_t *ret_handle, void *shared, int handle_type)
{
	struct fake_allocation found = { .fd = -1 };
	const int fd = (int)(intptr_t)shared;
	struct stat status;
	int code = ZI_CUDA_INVALID_VALUE;

	FAKE_ENTER();
	if (handle_type != ZI_CUDA_HANDLE_POSIX_FD)
		return ZI_CUDA_NOT_SUPPORTED;
	found.device = device_of(fd);
	if (!fake_device_exists(found.device) || fstat(fd, &status))
		return ZI_CUDA_INVALID_VALUE;
	found.bytes = (uint64_t)status.st_size;
	found.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (found.fd < 0)
		return 304; /* OPERATING_SYSTEM */
	(void)pthread_mutex_lock(&fake_mutex);
	code = add(&found, ret_handle);
	(void)pthread_mutex_unlock(&fake_mutex);
	if (code)
		(void)close(found.fd); /* A memfd. */
	return code;
}
