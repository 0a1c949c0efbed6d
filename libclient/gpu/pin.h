/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU memory that the GPU's copy engines read and write: mapped once more, and registered with the
 * driver by a thread, piece by piece, what is used first at first. Floor 2.
 *
 * The mappings are of the whole segments, beside the rank's own ones: a unit's own address may show
 * other pages (a pool, a bucket, a staging copy), the pages of the segment stay. So a pool of
 * parameters on NVMe is registered as well, and a unit is copied from its place in the pool.
 *
 * One call of 512 GiB or more fails, and a piece that is registered can be used while the next one
 * is not. Copies across the border of two pieces fail, hence zi_gpu_pins_reach().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/thread.h"

struct zi_cuda;
struct zi_cuda_context;
struct zi_line;

/* 4 KiB pages take 0.1 s for each GiB: so long the end of a rank waits for the thread. */
#define ZI_GPU_PIECE_BYTES (1ull << 30)
#define ZI_GPU_PINS_MAX    2u

struct zi_gpu_pin {
	char *base;
	uint64_t bytes;
	bool is_read_only;           /* for the GPU, which then needs a driver that can */
	bool is_own;                 /* the mapping is this object's */
	struct zi_line *piece_count; /* registered, from the first on. writer: the thread */
};

struct zi_gpu_pins {
	const struct zi_cuda *cuda;
	struct zi_cuda_context *context;
	struct zi_gpu_pin list[ZI_GPU_PINS_MAX];
	uint32_t count;
	uint64_t piece_bytes;
	struct zi_line *lines; /* (1 + ZI_GPU_PINS_MAX,); the first one: 1: the thread ends */
	struct zi_thread thread;
};

/* Adds memory, before the thread starts. @fd: of a sealed segment, which is mapped here, read-only
 * with @is_read_only; it stays the caller's. -1: @base is its mapping, the caller's. @ret_index: of
 * the memory. Return: 0; -ENOMEM; -EPROTO the segment is none. */
int zi_gpu_pins_add(struct zi_gpu_pins *pins, int fd, void *base, uint64_t bytes, bool is_read_only,
                    uint32_t *ret_index);
/* Starts the thread. A driver that refuses a piece ends the registration of that memory. @pins
 * stays at its address until zi_gpu_pins_stop(). Return: 0; -ENOMEM, -EAGAIN. */
int zi_gpu_pins_start(struct zi_gpu_pins *pins, const struct zi_cuda *cuda,
                      struct zi_cuda_context *context);
/* Bytes from @address on, at most @bytes, that are alike: all in one registered piece, or none of
 * them registered. @address: within memory that was added. */
uint64_t zi_gpu_pins_reach(const struct zi_gpu_pins *pins, const void *address, uint64_t bytes,
                           bool *ret_is_pinned);
/* Registered now. */
uint64_t zi_gpu_pins_bytes(const struct zi_gpu_pins *pins);
/* Joins the thread, unregisters, unmaps. No copy is under way, and the context is current. Accepts
 * zeroes. */
void zi_gpu_pins_stop(struct zi_gpu_pins *pins);
