/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: a stream of copies in one direction between CPU memory and the GPU. What lies in
 * registered memory is queued as it is. All else goes through two buffers of pinned memory: the
 * host copies one while the GPU copies the other, and waits. Floor 2; the rank's thread, with the
 * context current.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_cuda_event;
struct zi_cuda_stream;
struct zinf;

#define ZI_GPU_LANE_BUFFERS 2u
/* Copies of a few MiB reach the speed of the link. */
#define ZI_GPU_LANE_BYTES (8ull << 20)

struct zi_gpu_lane {
	struct zi_cuda_stream *stream;
	char *buffers[ZI_GPU_LANE_BUFFERS]; /* (ZI_GPU_LANE_BYTES,) made when they are needed */
	struct zi_cuda_event *events[ZI_GPU_LANE_BUFFERS]; /* of a buffer's newest copy */
	uint32_t next;                                     /* buffer */
};

/* Return: 0; an errno of the driver. */
int zi_gpu_lane_init(struct zi_gpu_lane *lane, struct zinf *zinf);
/* CPU memory to the GPU. @source: within zinf->gpu->pins. It is read until the stream comes to what
 * is queued next. Return: 0; -ETIMEDOUT, an errno of the driver: a part may be queued. */
int zi_gpu_lane_up(struct zi_gpu_lane *lane, struct zinf *zinf, uint64_t target, const char *source,
                   uint64_t bytes);
/* The GPU to CPU memory, alike. */
int zi_gpu_lane_down(struct zi_gpu_lane *lane, struct zinf *zinf, char *target, uint64_t source,
                     uint64_t bytes);
/* Waits until nothing is queued. Return: 0; an errno of the driver. Accepts zeroes. */
int zi_gpu_lane_drain(struct zi_gpu_lane *lane, struct zinf *zinf);
/* Nothing is queued. Accepts zeroes. */
void zi_gpu_lane_deinit(struct zi_gpu_lane *lane, struct zinf *zinf);
