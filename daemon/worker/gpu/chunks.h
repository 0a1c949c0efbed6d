/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunks that a zinf-gpu holds: made, exported and released by the driver, never mapped, and
 * without a CUDA context. Floor 3, of zinf-gpu; its only thread. A chunk is known by an id, which
 * no other chunk of this process ever has.
 */
#pragma once

#include <stdint.h>

#include "common/gpu/device.h"
#include "daemon/worker/gpu.h"

struct zi_gpu_driver;

struct chunk {
	uint64_t id;
	uint64_t handle; /* the driver's */
	uint64_t bytes;
};

struct chunks {
	const struct zi_gpu_driver *driver;
	struct zi_gpu_device device;
	uint64_t last_id; /* 0: none yet */
	uint64_t held_bytes;
	uint32_t count;
	struct chunk held[GPU_CHUNKS_MAX]; /* (count,) in the order of their ids */
};

/* @driver: open, and outlives @chunks. */
void chunks_init(struct chunks *chunks, const struct zi_gpu_driver *driver,
                 const struct zi_gpu_device *device);

/**
 * chunks_check() - whether a request for chunks makes sense on this GPU
 *
 * Return: 0; -EINVAL a count of 0 or a size that is no multiple of the granularity, -ENOSPC too
 * many chunks, -ENOMEM more than the GPU has; with @text.
 */
int chunks_check(const struct chunks *chunks, uint32_t count, uint64_t chunk_bytes,
                 struct zi_text *text);
/**
 * chunks_create() - make one chunk and export it
 * @bytes: as chunks_check() accepted it
 * @ret_fd: the caller's
 *
 * Return: 0; -ENOMEM the GPU has no room, another errno of the driver; with @text.
 */
int chunks_create(struct chunks *chunks, uint64_t bytes, struct zi_text *text, uint64_t *ret_id,
                  int *ret_fd);
/* Return: 0; -ENOENT there is no such chunk; an errno of the driver, and the chunk is forgotten all
 * the same. With @text. */
int chunks_release(struct chunks *chunks, uint64_t id, struct zi_text *text);
/* All chunks made after the one with @id; a refusal of the driver has no consequence. */
void chunks_release_after(struct chunks *chunks, uint64_t id);
