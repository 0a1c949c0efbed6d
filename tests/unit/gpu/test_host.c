/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: host memory is registered and allocated as a driver does it, and is refused as a driver
 * refuses it. Method: mappings with and without the right to write, pieces at the limit, ranges
 * that overlap.
 */
#include <criterion/criterion.h>
#include <sys/mman.h>

#include "tests/unit/gpu/fixture.h"

#define BYTES 65536u

static struct zi_gpu_driver driver;

static char *map_host(int protection)
{
	char *memory = mmap(NULL, BYTES, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(memory, MAP_FAILED);
	return memory;
}

Test(gpu_host, is_registered_once_and_unregistered_once)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	char *memory = map_host(PROT_READ | PROT_WRITE);

	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES / 2, ZI_CUDA_REGISTER_PORTABLE), 0);
	cr_assert_eq(cuda->cuMemHostRegister(memory + BYTES / 4, BYTES / 2, 0),
	             ZI_CUDA_HOST_REGISTERED);
	cr_assert_eq(cuda->cuMemHostRegister(memory + BYTES / 2, BYTES / 2, 0), 0, "beside it");
	cr_assert_eq(cuda->cuMemHostUnregister(memory + 1), ZI_CUDA_HOST_NOT_REGISTERED);
	cr_assert_eq(cuda->cuMemHostUnregister(memory), 0);
	cr_assert_eq(cuda->cuMemHostUnregister(memory), ZI_CUDA_HOST_NOT_REGISTERED);
	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES / 2, 0), 0, "again");
	cr_assert_eq(cuda->cuMemHostUnregister(memory), 0);
	cr_assert_eq(cuda->cuMemHostUnregister(memory + BYTES / 2), 0);
	(void)munmap(memory, BYTES);
}

Test(gpu_host, that_cannot_be_written_is_registered_for_reading_only)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	char *memory = map_host(PROT_READ);
	uint64_t handle, address = map_chunks(cuda, 1, &handle);

	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES, 0), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES, ZI_CUDA_REGISTER_READ_ONLY), 0);
	cr_assert_eq(cuda->cuMemcpyHtoDAsync(address, memory, BYTES, NULL), 0);
	cr_assert_eq(cuda->cuMemcpyDtoHAsync(memory, address, BYTES, NULL), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), 0);
	cr_assert_eq(cuda->cuMemHostUnregister(memory), 0);
	(void)munmap(memory, BYTES);
}

Test(gpu_host, of_a_device_without_it_is_not_registered_for_reading_only)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "no=read_only");
	char *memory = map_host(PROT_READ | PROT_WRITE);

	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES, ZI_CUDA_REGISTER_READ_ONLY),
	             ZI_CUDA_NOT_SUPPORTED);
	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES, 0), 0);
	cr_assert_eq(cuda->cuMemHostUnregister(memory), 0);
	(void)munmap(memory, BYTES);
}

Test(gpu_host, is_registered_in_pieces_up_to_the_limit)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "register=32K");
	char *memory = map_host(PROT_READ | PROT_WRITE);

	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES / 2 + 1, 0), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES / 2, 0), 0);
	cr_assert_eq(cuda->cuMemHostUnregister(memory), 0);
	(void)munmap(memory, BYTES);
}

Test(gpu_host, that_is_not_mapped_is_not_registered)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	char *memory = map_host(PROT_READ | PROT_WRITE);

	cr_assert_eq(cuda->cuMemHostRegister(memory, 0, 0), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES, 64), ZI_CUDA_INVALID_VALUE, "flags");
	cr_assert_eq(munmap(memory + BYTES / 2, BYTES / 2), 0);
	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES, 0), ZI_CUDA_INVALID_VALUE);
	(void)munmap(memory, BYTES / 2);
}

Test(gpu_host, that_the_driver_allocates_is_freed_by_it)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	uint64_t handle, address = map_chunks(cuda, 1, &handle);
	uint32_t *memory = NULL;

	cr_assert_eq(cuda->cuMemHostAlloc((void **)&memory, 0, 0), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemHostAlloc((void **)&memory, BYTES, ZI_CUDA_REGISTER_PORTABLE), 0);
	cr_assert_eq(cuda->cuMemHostRegister(memory, BYTES, 0), ZI_CUDA_HOST_REGISTERED);
	cr_assert_eq(cuda->cuMemHostUnregister(memory), ZI_CUDA_HOST_NOT_REGISTERED);
	cr_assert_eq(cuda->cuMemsetD8Async(address, 0x11, BYTES, NULL), 0);
	cr_assert_eq(cuda->cuMemcpyDtoHAsync(memory, address, BYTES, NULL), 0);
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), 0);
	cr_assert_eq(memory[BYTES / 4 - 1], 0x11111111);
	cr_assert_eq(cuda->cuMemFreeHost(memory), 0);
	cr_assert_eq(cuda->cuMemFreeHost(memory), ZI_CUDA_INVALID_VALUE);
}

Test(gpu_host, needs_a_context)
{
	char *memory = map_host(PROT_READ | PROT_WRITE);

	cr_assert_eq(open_gpu(&driver, "", NULL), 0);
	cr_assert_eq(driver.cuda.cuMemHostRegister(memory, BYTES, 0), ZI_CUDA_INVALID_CONTEXT);
	(void)munmap(memory, BYTES);
}
