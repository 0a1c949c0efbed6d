/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parts of this rank's arena are given out; see arena.h. Floor 2.
 *
 * Blocks in an array in the order of their offsets; a place is the first gap that is large enough.
 * Buffers of collectives are few, large, and made before training begins: the search is linear.
 */
#include "libclient/coll/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

#define ARENA_BLOCKS_FIRST 16u

void zi_arena_init(struct zi_arena *arena, uint64_t begin_bytes, uint64_t end_bytes)
{
	assert(begin_bytes <= end_bytes);
	assert(begin_bytes % ZI_ARENA_ALIGN_BYTES == 0);
	*arena = (struct zi_arena){ .begin_bytes = begin_bytes, .end_bytes = end_bytes };
}

void zi_arena_deinit(struct zi_arena *arena)
{
	free(arena->blocks);
	*arena = (struct zi_arena){ 0 };
}

/* The gap before block @index, or after the last one. */
static struct zi_arena_block gap_before(const struct zi_arena *arena, uint32_t index)
{
	const struct zi_arena_block *before = index ? &arena->blocks[index - 1] : NULL;
	uint64_t begin = before ? before->offset_bytes + before->bytes : arena->begin_bytes;
	uint64_t end =
		index < arena->block_count ? arena->blocks[index].offset_bytes : arena->end_bytes;

	assert(begin <= end);
	return (struct zi_arena_block){ begin, end - begin };
}

static int make_capacity(struct zi_arena *arena)
{
	uint32_t capacity = arena->block_capacity ? arena->block_capacity * 2 : ARENA_BLOCKS_FIRST;
	struct zi_arena_block *blocks;

	if (arena->block_count < arena->block_capacity)
		return 0;
	blocks = reallocarray(arena->blocks, capacity, sizeof(*blocks));
	if (!blocks)
		return err_origin(-ENOMEM);
	arena->blocks = blocks;
	arena->block_capacity = capacity;
	return 0;
}

static int say_full(const struct zi_arena *arena, uint64_t bytes, struct zi_text *text)
{
	uint64_t free_bytes = 0, hole_bytes = 0;

	for (uint32_t i = 0; i <= arena->block_count; i++) {
		uint64_t gap_bytes = gap_before(arena, i).bytes;

		free_bytes += gap_bytes;
		hole_bytes = ZI_MAX(hole_bytes, gap_bytes);
	}
	return err_origin(zi_text_error(
		text, -ENOSPC,
		"%s are asked for, but of this rank's arena of %s only %s are free, in holes of at "
		"most %s: zinf_coll_free() something, or zinf_coll_open() with more",
		zi_format_bytes(bytes).chars,
		zi_format_bytes(arena->end_bytes - arena->begin_bytes).chars,
		zi_format_bytes(free_bytes).chars, zi_format_bytes(hole_bytes).chars));
}

int zi_arena_alloc(struct zi_arena *arena, uint64_t bytes, uint64_t *ret_offset_bytes,
                   struct zi_text *text)
{
	uint64_t block_bytes;
	uint32_t index = 0;
	int r;

	if (!bytes)
		return err_origin(zi_text_error(text, -EINVAL, "memory of 0 bytes"));
	if (!zi_checked_align(bytes, ZI_ARENA_ALIGN_BYTES, &block_bytes))
		return err_trace(say_full(arena, bytes, text));
	while (index <= arena->block_count && gap_before(arena, index).bytes < block_bytes)
		index++;
	if (index > arena->block_count)
		return err_trace(say_full(arena, block_bytes, text));
	r = make_capacity(arena);
	if (r)
		return err_trace(zi_text_error(text, r, "no memory for a list of %u blocks",
		                               arena->block_count + 1));
	*ret_offset_bytes = gap_before(arena, index).offset_bytes;
	memmove(&arena->blocks[index + 1], &arena->blocks[index],
	        (arena->block_count - index) * sizeof(*arena->blocks));
	arena->blocks[index] = (struct zi_arena_block){ *ret_offset_bytes, block_bytes };
	arena->block_count++;
	return 0;
}

int zi_arena_free(struct zi_arena *arena, uint64_t offset_bytes)
{
	uint32_t index = 0;

	while (index < arena->block_count && arena->blocks[index].offset_bytes != offset_bytes)
		index++;
	if (index == arena->block_count)
		return err_origin(-EINVAL);
	arena->block_count--;
	memmove(&arena->blocks[index], &arena->blocks[index + 1],
	        (arena->block_count - index) * sizeof(*arena->blocks));
	return 0;
}
