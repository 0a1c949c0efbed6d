/* SPDX-License-Identifier: Apache-2.0 */
/* Plain memory of a fake GPU, made of the calls for chunks: an allocation is a chunk with an
 * address of its own. Those calls count at their own places as well. */
#include <pthread.h>
#include <stdbool.h>

#include "common/gpu/driver.h"
#include "tests/gpu/context.h"
#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"

#define PLAIN_MAX 1024u

struct plain {
	uint64_t address, bytes; /* address 0: a free place */
};

/* Under the mutex. */
static struct plain plains[PLAIN_MAX];

/* Return: a code. */
static int map(const struct zi_cuda_context *context, uint64_t bytes, uint64_t address)
{
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(context->device);
	const struct zi_cuda_access access =
		zi_gpu_access(context->device, ZI_CUDA_ACCESS_READ_WRITE);
	uint64_t handle = 0;
	int code = cuMemCreate(&handle, bytes, &chunk, 0);

	if (code)
		return code;
	code = cuMemMap(address, bytes, 0, handle, 0);
	if (!code)
		code = cuMemSetAccess(address, bytes, &access, 1);
	(void)cuMemRelease(handle); /* A mapping keeps the memory. */
	return code;
}

/* Return: whether there is a place for it. */
static bool keep(uint64_t address, uint64_t bytes)
{
	struct plain *place = NULL;

	(void)pthread_mutex_lock(&fake_mutex);
	for (uint32_t i = 0; i < PLAIN_MAX && !place; i++)
		place = plains[i].address ? NULL : &plains[i];
	if (place)
		*place = (struct plain){ address, bytes };
	(void)pthread_mutex_unlock(&fake_mutex);
	return place != NULL;
}

int cuMemAlloc_v2(uint64_t *ret_address, size_t bytes)
{
	struct zi_cuda_context *context;
	uint64_t address = 0;
	int code;

	FAKE_ENTER_CONTEXT(context);
	if (!bytes)
		return ZI_CUDA_INVALID_VALUE;
	bytes = (bytes + FAKE_GRANULARITY_BYTES - 1) / FAKE_GRANULARITY_BYTES *
	        FAKE_GRANULARITY_BYTES;
	code = cuMemAddressReserve(&address, bytes, 0, 0, 0);
	if (code)
		return code;
	code = map(context, bytes, address);
	if (code || !keep(address, bytes)) {
		(void)cuMemUnmap(address, bytes); /* Fails where nothing was mapped. */
		(void)cuMemAddressFree(address, bytes);
		return code ? code : ZI_CUDA_OUT_OF_MEMORY;
	}
	*ret_address = address;
	return ZI_CUDA_SUCCESS;
}

/* As the driver: waits for all work of the context. */
int cuMemFree_v2(uint64_t address)
{
	struct zi_cuda_context *context;
	uint64_t bytes = 0;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	for (uint32_t i = 0; i < PLAIN_MAX && address; i++)
		if (plains[i].address == address) {
			bytes = plains[i].bytes;
			plains[i] = (struct plain){ 0 };
		}
	(void)pthread_mutex_unlock(&fake_mutex);
	if (!bytes)
		return ZI_CUDA_INVALID_VALUE;
	(void)cuCtxSynchronize(); /* What failed before is told elsewhere. */
	(void)cuMemUnmap(address, bytes);
	return cuMemAddressFree(address, bytes);
}
