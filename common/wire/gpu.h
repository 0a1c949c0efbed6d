/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages about the GPU memory of a rank (docs/PROTOCOL.md), under ZI_FEATURE_GPU. Floor 1.
 *
 *   rank                    daemon
 *   GPU_OPEN    ──▶         without chunks: a question, at any time after ATTACHED. With chunks:
 *                           they are charged to uid and job, and made; before MATERIALIZE
 *           ◀── GPU_OPENED  what the GPU has room for; the chunks are made
 *   GPU_CHUNKS  ──▶         the next chunks, in their order. Before or after MATERIALIZE
 *           ◀── GPU_CHUNKS + fds
 *
 * An arena is the chunks of one rank on one GPU: first those of parameters, then those of
 * gradients. It is made once in a session. It stays, and stays charged, until the process of the
 * rank has gone; the rank's address space may show it until then.
 */
#pragma once

#include "common/wire/control.h"

/* GPU_OPEN: the budgets of an arena. */
struct zi_gpu_open {
	struct zi_message_header header;
	char uuid[48];                                /* "GPU-…" or "MIG-…", with a NUL */
	uint64_t chunk_bytes;                         /* 0: a question, and no chunks */
	uint32_t param_chunk_count, grad_chunk_count; /* together at most 1024 */
	uint32_t flags;                               /* 0 */
	uint32_t reserved0;
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_gpu_open) == 120, "gpu open");

struct zi_gpu_opened {
	struct zi_message_header header;
	uint64_t granularity_bytes; /* chunk_bytes is a multiple of it */
	uint64_t capacity_bytes;    /* of the tier: the GPU's memory without the reserve */
	uint64_t free_bytes;        /* what this rank could still be given: of tier, uid and job */
	uint64_t chunk_bytes;       /* as asked */
	uint32_t param_chunk_count, grad_chunk_count;
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_gpu_opened) == 88, "gpu opened");

/* With one descriptor for each chunk, in this order. */
struct zi_gpu_chunks {
	struct zi_message_header header;
	uint32_t first; /* chunk of the arena: as many as were received before */
	uint32_t count; /* request: 0. Reply: 1 to ZI_MESSAGE_FDS_MAX */
	uint64_t reserved[2];
};
static_assert(sizeof(struct zi_gpu_chunks) == 40, "gpu chunks");
