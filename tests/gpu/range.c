/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserved and mapped addresses; see range.h. A reserved range is an inaccessible mapping of the
 * host. A mapped range is a mapping of the allocation's memfd; two of these are an alias. As
 * strict as the driver's manual: whole allocations from offset 0, nothing mapped twice, nothing
 * freed while mapped.
 */
#include "tests/gpu/range.h"

#include <sys/mman.h>

#include "tests/gpu/context.h"
#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"
#include "tests/gpu/memory.h"

#define RESERVATIONS_MAX 4096u
#define MAPPINGS_MAX     16384u

struct extent {
	uint64_t address, bytes; /* bytes 0: a free place */
};

struct mapping {
	struct extent at;
	struct fake_allocation *allocation;
	int access; /* ZI_CUDA_ACCESS_...; 0: none */
};

/* Under the mutex; places beyond the counts were never used. */
static struct extent reservations[RESERVATIONS_MAX];
static struct mapping mappings[MAPPINGS_MAX];
static uint32_t reservation_count, mapping_count;

static bool overlaps(const struct extent *one, uint64_t address, uint64_t bytes)
{
	return address < one->address + one->bytes && one->address < address + bytes;
}

static bool lies_in(const struct extent *inner, uint64_t address, uint64_t bytes)
{
	return inner->address >= address && inner->address + inner->bytes <= address + bytes;
}

static struct mapping *mapping_at(uint64_t address)
{
	for (uint32_t i = 0; i < mapping_count; i++)
		if (mappings[i].at.bytes && overlaps(&mappings[i].at, address, 1))
			return &mappings[i];
	return NULL;
}

bool fake_range_is_usable(uint64_t address, uint64_t bytes, bool is_write)
{
	const int needed = is_write ? ZI_CUDA_ACCESS_READ_WRITE : ZI_CUDA_ACCESS_READ;
	const uint64_t end = address + bytes;
	bool is_usable = end >= address;

	(void)pthread_mutex_lock(&fake_mutex);
	while (is_usable && address < end) {
		const struct mapping *mapping = mapping_at(address);

		is_usable = mapping && (mapping->access & needed) == needed;
		if (is_usable)
			address = mapping->at.address + mapping->at.bytes;
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return is_usable;
}

/* Address space without access. Return: 0: there is none. */
static uint64_t take_addresses(uint64_t bytes, uint64_t alignment)
{
	uint64_t whole_bytes = bytes + alignment, address;
	char *base = mmap(NULL, whole_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	                  -1, 0);

	if (base == MAP_FAILED)
		return 0;
	address = ((uintptr_t)base + alignment - 1) / alignment * alignment;
	/* What lies beside the range goes back; both may be empty. */
	if (address > (uintptr_t)base)
		(void)munmap(base, address - (uintptr_t)base);
	if (address + bytes < (uintptr_t)base + whole_bytes)
		(void)munmap((char *)address + bytes,
		             (uintptr_t)base + whole_bytes - address - bytes);
	return address;
}

int cuMemAddressReserve(uint64_t *ret_address, size_t bytes, size_t alignment, uint64_t wanted,
                        uint64_t flags)
{
	int code = ZI_CUDA_OUT_OF_MEMORY;
	uint32_t place = 0;

	FAKE_ENTER();
	(void)wanted; /* A wish, as for the driver. */
	if (alignment < FAKE_GRANULARITY_BYTES)
		alignment = FAKE_GRANULARITY_BYTES;
	if (!bytes || bytes % FAKE_GRANULARITY_BYTES || alignment & (alignment - 1) || flags)
		return ZI_CUDA_INVALID_VALUE;
	(void)pthread_mutex_lock(&fake_mutex);
	while (place < reservation_count && reservations[place].bytes)
		place++;
	if (place < RESERVATIONS_MAX) {
		uint64_t address = take_addresses(bytes, alignment);

		if (address) {
			reservations[place] = (struct extent){ address, bytes };
			if (place == reservation_count)
				reservation_count++;
			*ret_address = address;
			code = ZI_CUDA_SUCCESS;
		}
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

static bool is_anything_mapped(uint64_t address, uint64_t bytes)
{
	for (uint32_t i = 0; i < mapping_count; i++)
		if (mappings[i].at.bytes && overlaps(&mappings[i].at, address, bytes))
			return true;
	return false;
}

int cuMemAddressFree(uint64_t address, size_t bytes)
{
	int code = ZI_CUDA_INVALID_VALUE;

	FAKE_ENTER();
	(void)pthread_mutex_lock(&fake_mutex);
	for (uint32_t i = 0; i < reservation_count; i++) {
		if (reservations[i].address != address || reservations[i].bytes != bytes ||
		    is_anything_mapped(address, bytes))
			continue;
		(void)munmap((void *)address, bytes); /* A mapping of this file's. */
		reservations[i] = (struct extent){ 0 };
		code = ZI_CUDA_SUCCESS;
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

static bool is_reserved(uint64_t address, uint64_t bytes)
{
	const struct extent range = { address, bytes };

	for (uint32_t i = 0; i < reservation_count; i++)
		if (lies_in(&range, reservations[i].address, reservations[i].bytes))
			return true;
	return false;
}

/* Under the mutex. */
static int map(uint64_t address, uint64_t bytes, uint64_t handle)
{
	struct fake_allocation *allocation = fake_allocation_find(handle);
	uint32_t place = 0;

	if (!allocation || allocation->bytes != bytes || !is_reserved(address, bytes) ||
	    is_anything_mapped(address, bytes))
		return ZI_CUDA_INVALID_VALUE;
	while (place < mapping_count && mappings[place].at.bytes)
		place++;
	if (place == MAPPINGS_MAX || mmap((void *)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
	                                  allocation->fd, 0) == MAP_FAILED)
		return ZI_CUDA_OUT_OF_MEMORY;
	mappings[place] = (struct mapping){ { address, bytes }, allocation, 0 };
	if (place == mapping_count)
		mapping_count++;
	allocation->mapping_count++;
	return ZI_CUDA_SUCCESS;
}

int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
	int code;

	FAKE_ENTER();
	if (offset || flags || address % FAKE_GRANULARITY_BYTES || !bytes)
		return ZI_CUDA_INVALID_VALUE;
	(void)pthread_mutex_lock(&fake_mutex);
	code = map(address, bytes, handle);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

/* Under the mutex. Are these bytes a row of whole mappings? */
static bool are_whole_mappings(uint64_t address, uint64_t bytes)
{
	const uint64_t end = address + bytes;

	while (address < end) {
		const struct mapping *mapping = mapping_at(address);

		if (!mapping || !lies_in(&mapping->at, address, end - address))
			return false;
		address += mapping->at.bytes;
	}
	return bytes > 0;
}

int cuMemSetAccess(uint64_t address, size_t bytes, const struct zi_cuda_access *accesses,
                   size_t count)
{
	int code = ZI_CUDA_INVALID_VALUE, flags;

	FAKE_ENTER();
	if (count != 1 || accesses->location.type != ZI_CUDA_LOCATION_DEVICE)
		return ZI_CUDA_INVALID_VALUE;
	if (!fake_device_exists(accesses->location.id))
		return ZI_CUDA_INVALID_DEVICE;
	flags = accesses->flags;
	if (flags && flags != ZI_CUDA_ACCESS_READ && flags != ZI_CUDA_ACCESS_READ_WRITE)
		return ZI_CUDA_INVALID_VALUE;
	(void)pthread_mutex_lock(&fake_mutex);
	if (are_whole_mappings(address, bytes)) {
		int protection = (flags & ZI_CUDA_ACCESS_READ ? PROT_READ : 0) |
		                 (flags == ZI_CUDA_ACCESS_READ_WRITE ? PROT_WRITE : 0);

		code = mprotect((void *)address, bytes, protection) ? ZI_CUDA_UNKNOWN
		                                                    : ZI_CUDA_SUCCESS;
		for (uint32_t i = 0; i < mapping_count && !code; i++)
			if (mappings[i].at.bytes && lies_in(&mappings[i].at, address, bytes))
				mappings[i].access = flags;
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

/* Under the mutex. */
static void unmap(struct mapping *mapping)
{
	/* The addresses stay reserved. */
	(void)mmap((void *)mapping->at.address, mapping->at.bytes, PROT_NONE,
	           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	mapping->allocation->mapping_count--;
	fake_allocation_settle(mapping->allocation);
	*mapping = (struct mapping){ 0 };
}

int cuMemUnmap(uint64_t address, size_t bytes)
{
	int code = ZI_CUDA_INVALID_VALUE;

	FAKE_ENTER();
	(void)pthread_mutex_lock(&fake_mutex);
	if (are_whole_mappings(address, bytes)) {
		for (uint32_t i = 0; i < mapping_count; i++)
			if (mappings[i].at.bytes && lies_in(&mappings[i].at, address, bytes))
				unmap(&mappings[i]);
		code = ZI_CUDA_SUCCESS;
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}
