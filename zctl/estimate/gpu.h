/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory of a rank, before there is one: of its two rings, parameters and gradients, the least
 * that works, what holds all units, and what the rank would take. The figures are the rank's own
 * (libclient/gpu/budget.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/plan.h"
#include "libclient/gpu/budget.h"
#include "zctl/estimate/options.h"

/* Where no GPU is known: of device memory. */
#define ESTIMATE_GPU_GRANULARITY_BYTES (2ull << 20)
/* More than any GPU has. */
#define ESTIMATE_GPU_NO_ROOM UINT64_MAX

struct estimate_ring {
	uint64_t least_bytes, all_bytes, chosen_bytes;
};

struct estimate_gpu {
	bool is_wanted;             /* --device */
	char name[64];              /* of the GPU that was asked about; "": none is known */
	uint64_t granularity_bytes; /* of chunks */
	uint64_t room_bytes;        /* that the rank may get; ESTIMATE_GPU_NO_ROOM: not known */
	/* By estimate_gpu(). */
	bool fits; /* else @text says why not, and nothing is chosen */
	uint64_t chunk_bytes;
	struct estimate_ring params, grads; /* grads: zeroes: the job trains nothing */
	struct zi_text text;
};

/* @gpu: room and granularity are the caller's. @options: with --device. Return: 0, also where it
 * does not fit; -EINVAL with @text: no GPU memory holds such units; -ENOMEM. */
int estimate_gpu(const struct estimate_options *options, const struct estimate_model *model,
                 const struct zi_plan_options *plan, struct estimate_gpu *gpu,
                 struct zi_text *text);
/* The GPU of --device as a daemon's answer to `tiers` has it: with "gpu" the one with most room.
 * Return: whether there is one; else @gpu is as before. */
bool estimate_gpu_find(const json_t *tiers, const char *device, struct estimate_gpu *gpu);
