/* SPDX-License-Identifier: Apache-2.0 */
/* The chunks that a zinf-gpu holds; see chunks.h. Floor 3, of zinf-gpu. */
#include "daemon/worker/gpu/chunks.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/gpu/driver.h"

/* Documented in the header, as are the others. */
void chunks_init(struct chunks *chunks, const struct zi_gpu_driver *driver,
                 const struct zi_gpu_device *device)
{
	*chunks = (struct chunks){ .driver = driver, .device = *device };
}

int chunks_check(const struct chunks *chunks, uint32_t count, uint64_t chunk_bytes,
                 struct zi_text *text)
{
	const struct zi_gpu_device *device = &chunks->device;

	if (!count || !chunk_bytes || !device->granularity_bytes ||
	    chunk_bytes % device->granularity_bytes)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"%u chunks of %llu B on %s: a chunk is a multiple of %llu B there", count,
			(unsigned long long)chunk_bytes, device->uuid,
			(unsigned long long)device->granularity_bytes));
	if (count > GPU_CHUNKS_MAX - chunks->count)
		return err_origin(zi_text_error(
			text, -ENOSPC,
			"%u chunks on %s, and it has %u: %u are the most. Larger chunks need fewer",
			count, device->uuid, chunks->count, GPU_CHUNKS_MAX));
	if (chunk_bytes > device->bytes || count > device->bytes / chunk_bytes)
		return err_origin(zi_text_error(text, -ENOMEM, "%u chunks of %s: %s has %s", count,
		                                zi_format_bytes(chunk_bytes).chars, device->uuid,
		                                zi_format_bytes(device->bytes).chars));
	return 0;
}

int chunks_create(struct chunks *chunks, uint64_t bytes, struct zi_text *text, uint64_t *ret_id,
                  int *ret_fd)
{
	const struct zi_cuda_allocation allocation = zi_gpu_chunk(chunks->device.device);
	const struct zi_cuda *cuda = &chunks->driver->cuda;
	uint64_t handle;
	int fd = -1;
	int code;

	assert(chunks->count < GPU_CHUNKS_MAX);
	code = cuda->cuMemCreate(&handle, bytes, &allocation, 0);
	if (code)
		return err_origin(zi_gpu_error(cuda, code, text,
		                               "cuMemCreate of %s on %s (zinf has %s)",
		                               zi_format_bytes(bytes).chars, chunks->device.uuid,
		                               zi_format_bytes(chunks->held_bytes).chars));
	code = cuda->cuMemExportToShareableHandle(&fd, handle, ZI_CUDA_HANDLE_POSIX_FD, 0);
	if (code) {
		(void)cuda->cuMemRelease(handle); /* The first error says more. */
		return err_origin(zi_gpu_error(cuda, code, text,
		                               "cuMemExportToShareableHandle of %s on %s",
		                               zi_format_bytes(bytes).chars, chunks->device.uuid));
	}
	chunks->held[chunks->count++] =
		(struct chunk){ .id = ++chunks->last_id, .handle = handle, .bytes = bytes };
	chunks->held_bytes += bytes;
	*ret_id = chunks->last_id;
	*ret_fd = fd;
	return 0;
}

/* The place of the first chunk with an id of at least @id: count where there is none. */
static uint32_t find(const struct chunks *chunks, uint64_t id)
{
	uint32_t low = 0, high = chunks->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (chunks->held[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int chunks_release(struct chunks *chunks, uint64_t id, struct zi_text *text)
{
	const struct zi_cuda *cuda = &chunks->driver->cuda;
	uint32_t place = find(chunks, id);
	struct chunk chunk;
	int code;

	if (place == chunks->count || chunks->held[place].id != id)
		return err_origin(
			zi_text_error(text, -ENOENT, "no chunk of %s has the id %llu: it holds %u",
		                      chunks->device.uuid, (unsigned long long)id, chunks->count));
	chunk = chunks->held[place];
	chunks->count--;
	memmove(&chunks->held[place], &chunks->held[place + 1],
	        (chunks->count - place) * sizeof(chunk));
	assert(chunks->held_bytes >= chunk.bytes);
	chunks->held_bytes -= chunk.bytes;
	code = cuda->cuMemRelease(chunk.handle);
	if (code)
		return err_origin(zi_gpu_error(cuda, code, text, "cuMemRelease of %s on %s",
		                               zi_format_bytes(chunk.bytes).chars,
		                               chunks->device.uuid));
	return 0;
}

void chunks_release_after(struct chunks *chunks, uint64_t id)
{
	while (chunks->count && chunks->held[chunks->count - 1].id > id)
		(void)chunks_release(chunks, chunks->held[chunks->count - 1].id, NULL);
}
