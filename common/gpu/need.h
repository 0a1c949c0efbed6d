/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many chunks of GPU memory a model needs, and the refusal of an arena that has fewer. Floor 1,
 * pure, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_text;

/* A chunk is a multiple of this, the granularity of device memory. */
#define ZI_GPU_CHUNK_ALIGN_BYTES (2ull << 20)
#define ZI_GPU_CHUNK_BYTES_MAX   (1ull << 40)
/* Chunks of an arena. A chunk is a descriptor in the rank, and a mapping for each unit on it. */
#define ZI_GPU_CHUNKS_MAX 1024u
/* With these limits the chunks of all units have less than 2^63 bytes. */
#define ZI_GPU_UNITS_MAX      (1u << 20)
#define ZI_GPU_UNIT_BYTES_MAX (1ull << 42)

struct zi_gpu_unit {
	const char *name; /* for messages */
	uint64_t bytes;   /* 1 to ZI_GPU_UNIT_BYTES_MAX */
	bool is_apart;    /* its chunks are its own: for a unit that is in use beside all others */
};

/* The units of a model, and how they lie on an arena of any length. */
struct zi_gpu_units {
	const char *purpose;            /* for messages: "parameters" or "gradients" */
	const struct zi_gpu_unit *list; /* (count,) in the order of the model */
	uint32_t count;                 /* 1 to ZI_GPU_UNITS_MAX */
	/* So many units that follow one another, units apart left out, have different chunks: a
	 * rank may use them at one time. From 1 on. */
	uint32_t neighbour_count;
	uint64_t chunk_bytes; /* a multiple of ZI_GPU_CHUNK_ALIGN_BYTES */
};

/* In chunks. */
struct zi_gpu_need {
	uint64_t apart_count; /* of the units apart */
	uint64_t least_count; /* with fewer the arena is refused */
	uint64_t all_count;   /* with these no two units share one */
	uint32_t unit;        /* the first of the neighbours that need most */
};

/* The whole chunks of a unit. Precondition: the sizes are valid, as zi_gpu_need() checks. */
uint64_t zi_gpu_unit_chunks(const struct zi_gpu_units *units, uint32_t unit);
/* Return: 0; -EINVAL with @text: no arena can have such chunks, such a unit, or no units at all. */
int zi_gpu_need(const struct zi_gpu_units *units, struct zi_text *text,
                struct zi_gpu_need *ret_need);
/* Whether an arena of @chunk_count chunks suffices. @need: of these units. Return: 0; -EINVAL: the
 * arena has no chunks, or more than ZI_GPU_CHUNKS_MAX; -ENOSPC: it has fewer than least_count. The
 * figures are in @text. */
int zi_gpu_need_check(const struct zi_gpu_units *units, const struct zi_gpu_need *need,
                      uint32_t chunk_count, struct zi_text *text);
