/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of either kind. */
#include "examples/gpt/arena.h"

#include <stdlib.h>

#include "examples/gpt/device.h"

#define ALIGN_BYTES 64u

void *gpt_arena_new(struct gpt_device *device, uint64_t bytes)
{
	if (device)
		return gpt_device_alloc(device, bytes);
	return aligned_alloc(ALIGN_BYTES, (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES);
}

const char *gpt_arena_place(const struct gpt_device *device)
{
	return device ? " on the GPU" : "";
}

void gpt_arena_free(struct gpt_device *device, void *arena)
{
	if (device)
		gpt_device_free(device, arena);
	else
		free(arena);
}
