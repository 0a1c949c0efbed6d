/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parts of this rank's arena are given out. Floor 2; belongs to the thread that uses the
 * struct zinf. Nothing of it lies in the arena, which every rank of the job can write.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

#define ZI_ARENA_ALIGN_BYTES 4096u

struct zi_arena_block {
	uint64_t offset_bytes; /* from the beginning of the arena */
	uint64_t bytes;        /* whole pages */
};

struct zi_arena {
	uint64_t begin_bytes, end_bytes; /* what may be given out */
	struct zi_arena_block *blocks;   /* (block_count,) of block_capacity, by offset */
	uint32_t block_count, block_capacity;
};

/* Nothing is given out. Both on pages. */
void zi_arena_init(struct zi_arena *arena, uint64_t begin_bytes, uint64_t end_bytes);
/* What is still given out is forgotten. */
void zi_arena_deinit(struct zi_arena *arena);
/* The lowest place of @bytes, rounded up to whole pages. -EINVAL 0 bytes; -ENOSPC, -ENOMEM; each
 * with its @text. */
int zi_arena_alloc(struct zi_arena *arena, uint64_t bytes, uint64_t *ret_offset_bytes,
                   struct zi_text *text);
/* -EINVAL: nothing begins there. */
int zi_arena_free(struct zi_arena *arena, uint64_t offset_bytes);
