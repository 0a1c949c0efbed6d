/* SPDX-License-Identifier: Apache-2.0 */
/* Registered host memory; see host.h. Nothing is pinned; what the driver refuses is refused. */
#include "tests/gpu/host.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"

#define HOSTS_MAX 1024u

struct host_range {
	uintptr_t address;
	uint64_t bytes; /* 0: a free place */
	uint32_t flags;
	bool is_allocated; /* by cuMemHostAlloc() */
};

/* Under the mutex. */
static struct host_range hosts[HOSTS_MAX];

bool fake_host_is_read_only(const void *memory, uint64_t bytes)
{
	const uintptr_t address = (uintptr_t)memory;
	bool is_read_only = false;

	(void)pthread_mutex_lock(&fake_mutex);
	for (uint32_t i = 0; i < HOSTS_MAX; i++)
		if (hosts[i].flags & ZI_CUDA_REGISTER_READ_ONLY &&
		    address < hosts[i].address + hosts[i].bytes &&
		    hosts[i].address < address + bytes)
			is_read_only = true;
	(void)pthread_mutex_unlock(&fake_mutex);
	return is_read_only;
}

/* Are all of these bytes mapped, and writable unless @is_read_only? Pinning needs that. */
static bool is_mapped(uintptr_t address, uint64_t bytes, bool is_read_only)
{
	const uintptr_t last = address + bytes;
	char line[512];
	FILE *file = fopen("/proc/self/maps", "re");

	if (!file)
		return false;
	/* In the order of addresses. */
	while (address < last && fgets(line, sizeof(line), file)) {
		unsigned long start, end;
		char access[5] = "";

		if (sscanf(line, "%lx-%lx %4s", &start, &end, access) != 3 || end <= address)
			continue;
		if (start > address || access[0] != 'r' || (!is_read_only && access[1] != 'w'))
			break;
		address = end;
	}
	(void)fclose(file); /* It was read. */
	return address >= last;
}

/* Under the mutex. */
static int add(const struct host_range *range)
{
	struct host_range *place = NULL;

	for (uint32_t i = 0; i < HOSTS_MAX; i++) {
		if (!hosts[i].bytes)
			place = place ? place : &hosts[i];
		else if (range->address < hosts[i].address + hosts[i].bytes &&
		         hosts[i].address < range->address + range->bytes)
			return ZI_CUDA_HOST_REGISTERED;
	}
	if (!place)
		return ZI_CUDA_OUT_OF_MEMORY;
	*place = *range;
	return ZI_CUDA_SUCCESS;
}

int cuMemHostRegister_v2(void *memory, size_t bytes, uint32_t flags)
{
	const struct host_range range = { (uintptr_t)memory, bytes, flags, false };
	const bool is_read_only = flags & ZI_CUDA_REGISTER_READ_ONLY;
	struct zi_cuda_context *context;
	int code;

	FAKE_ENTER_CONTEXT(context);
	if (!bytes || flags & ~(ZI_CUDA_REGISTER_PORTABLE | ZI_CUDA_REGISTER_READ_ONLY))
		return ZI_CUDA_INVALID_VALUE;
	if (is_read_only && !fake_options()->has_read_only)
		return ZI_CUDA_NOT_SUPPORTED;
	if (bytes > fake_options()->register_max_bytes ||
	    !is_mapped(range.address, bytes, is_read_only))
		return ZI_CUDA_INVALID_VALUE;
	(void)pthread_mutex_lock(&fake_mutex);
	code = add(&range);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

/* Forgets the range that begins at @memory. Return: it; bytes 0: there is none. */
static struct host_range take(const void *memory, bool is_allocated)
{
	struct host_range found = { 0 };

	(void)pthread_mutex_lock(&fake_mutex);
	for (uint32_t i = 0; i < HOSTS_MAX; i++)
		if (hosts[i].bytes && hosts[i].address == (uintptr_t)memory &&
		    hosts[i].is_allocated == is_allocated) {
			found = hosts[i];
			hosts[i] = (struct host_range){ 0 };
		}
	(void)pthread_mutex_unlock(&fake_mutex);
	return found;
}

int cuMemHostUnregister(void *memory)
{
	struct zi_cuda_context *context;

	FAKE_ENTER_CONTEXT(context);
	return take(memory, false).bytes ? ZI_CUDA_SUCCESS : ZI_CUDA_HOST_NOT_REGISTERED;
}

int cuMemHostAlloc(void **ret_memory, size_t bytes, uint32_t flags)
{
	struct host_range range = { .bytes = bytes, .is_allocated = true };
	struct zi_cuda_context *context;
	void *memory;
	int code;

	FAKE_ENTER_CONTEXT(context);
	if (!bytes || flags & ~ZI_CUDA_REGISTER_PORTABLE)
		return ZI_CUDA_INVALID_VALUE;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return ZI_CUDA_OUT_OF_MEMORY;
	range.address = (uintptr_t)memory;
	(void)pthread_mutex_lock(&fake_mutex);
	code = add(&range);
	(void)pthread_mutex_unlock(&fake_mutex);
	if (code)
		(void)munmap(memory, bytes); /* Mapped above. */
	else
		*ret_memory = memory;
	return code;
}

int cuMemFreeHost(void *memory)
{
	struct zi_cuda_context *context;
	struct host_range range;

	FAKE_ENTER_CONTEXT(context);
	range = take(memory, true);
	if (!range.bytes)
		return ZI_CUDA_INVALID_VALUE;
	(void)munmap(memory, range.bytes); /* Mapped above. */
	return ZI_CUDA_SUCCESS;
}
