/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Free space of a store: one bit for each 4 KiB, set while in use. Floor 2, owner thread only.
 *
 * Next-fit: a search begins where the last one ended, so that the extents of a step, allocated one
 * after the other, lie one after the other; whoever has little room chooses where it begins
 * (nvme_space_aim()). Words that are all used or all free are stepped over 64
 * blocks at a time; a terabyte is 30 MiB of words. Nothing is stored: after a restart the bits are
 * rebuilt from what the catalog names, and whatever it does not name is free.
 */
#include <errno.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "nvme/nvme.h"

#define SPACE_WORD_BITS 64u
/* The superblock's place is never given out: its bit is set for ever. */
#define SPACE_FIRST_INDEX (NVME_SUPERBLOCK_BYTES / ZI_STORE_ALIGN_BYTES)

static_assert(NVME_SUPERBLOCK_BYTES % ZI_STORE_ALIGN_BYTES == 0, "the superblock is whole blocks");

struct nvme_space {
	uint64_t *words;
	uint64_t block_count; /* of the store, the superblock included */
	uint64_t free_count;
	uint64_t cursor_index; /* where the next search begins */
};

/* Bits [@begin, @end) of the word that holds @begin; @end may lie in a later word. */
static uint64_t space_mask(uint64_t begin_index, uint64_t end_index)
{
	uint64_t low = begin_index % SPACE_WORD_BITS;
	uint64_t count = end_index - begin_index;
	uint64_t mask = UINT64_MAX << low;

	assert(begin_index < end_index);
	if (count < SPACE_WORD_BITS - low)
		mask &= (1ull << (low + count)) - 1;
	return mask;
}

/* First bit of [@begin, @end) that is set (@is_used) or clear, or @end. */
static uint64_t space_find(const struct nvme_space *space, uint64_t begin_index, uint64_t end_index,
                           bool is_used)
{
	uint64_t flip = is_used ? 0 : UINT64_MAX;
	uint64_t index = begin_index;

	while (index < end_index) {
		uint64_t word = space->words[index / SPACE_WORD_BITS] ^ flip;

		word &= space_mask(index, end_index);
		if (word)
			return (index & ~(uint64_t)(SPACE_WORD_BITS - 1)) +
			       (uint64_t)__builtin_ctzll(word);
		index = (index / SPACE_WORD_BITS + 1) * SPACE_WORD_BITS;
	}
	return end_index;
}

/* Sets or clears [@begin, @end), every bit of which is in the other state. */
static void space_mark(struct nvme_space *space, uint64_t begin_index, uint64_t end_index,
                       bool is_used)
{
	uint64_t index = begin_index;

	while (index < end_index) {
		uint64_t mask = space_mask(index, end_index);
		uint64_t *word = &space->words[index / SPACE_WORD_BITS];

		/* Found set twice: a double release. Found clear twice cannot be. */
		assert((*word & mask) == (is_used ? 0 : mask));
		*word ^= mask;
		index = (index / SPACE_WORD_BITS + 1) * SPACE_WORD_BITS;
	}
	if (is_used)
		space->free_count -= end_index - begin_index;
	else
		space->free_count += end_index - begin_index;
	assert(space->free_count <= space->block_count - SPACE_FIRST_INDEX);
}

/* First run of @count free blocks inside [@begin, @end); @end when there is none. */
static uint64_t space_find_run(const struct nvme_space *space, uint64_t begin_index,
                               uint64_t end_index, uint64_t count)
{
	uint64_t index = begin_index;

	while (end_index - index >= count) {
		uint64_t used_index;

		index = space_find(space, index, end_index, false);
		if (end_index - index < count)
			break;
		used_index = space_find(space, index, index + count, true);
		if (used_index == index + count)
			return index;
		index = used_index;
	}
	return end_index;
}

/* Whether @extent is a whole, aligned, non-empty run behind the superblock and inside the store. */
static bool space_holds(const struct nvme_space *space, const struct zi_extent *extent)
{
	uint64_t end_bytes = space->block_count * ZI_STORE_ALIGN_BYTES;

	if (extent->offset_bytes % ZI_STORE_ALIGN_BYTES || extent->bytes % ZI_STORE_ALIGN_BYTES)
		return false;
	if (!extent->bytes || extent->offset_bytes < NVME_SUPERBLOCK_BYTES)
		return false;
	/* No sum: either may be anything. */
	return extent->offset_bytes < end_bytes &&
	       extent->bytes <= end_bytes - extent->offset_bytes;
}

/**
 * nvme_space_new() - an empty space
 * @store_bytes: size of the store, superblock included; a last part block is not used
 * @ret_space: the caller's
 *
 * Return: 0, -EINVAL when not one block fits behind the superblock, -ENOMEM.
 */
int nvme_space_new(uint64_t store_bytes, struct nvme_space **ret_space)
{
	_cleanup_(nvme_space_freep) struct nvme_space *space = NULL;
	uint64_t block_count = store_bytes / ZI_STORE_ALIGN_BYTES;

	if (block_count <= SPACE_FIRST_INDEX)
		return err_origin(-EINVAL);
	space = calloc(1, sizeof(*space));
	if (!space)
		return err_origin(-ENOMEM);
	space->words = calloc((block_count + SPACE_WORD_BITS - 1) / SPACE_WORD_BITS,
	                      sizeof(*space->words));
	if (!space->words)
		return err_origin(-ENOMEM);
	space->block_count = block_count;
	space->free_count = block_count;
	space_mark(space, 0, SPACE_FIRST_INDEX, true);
	space->cursor_index = SPACE_FIRST_INDEX;
	*ret_space = zi_steal(space);
	return 0;
}

/* Extents may still be in use: they are the catalog's knowledge, not ours. NULL is fine. */
struct nvme_space *nvme_space_free(struct nvme_space *space)
{
	if (!space)
		return NULL;
	free(space->words);
	free(space);
	return NULL;
}

/**
 * nvme_space_allocate() - one contiguous run
 * @bytes: a multiple of ZI_STORE_ALIGN_BYTES; 0 gives the empty extent
 * @ret_extent: offset in the store, and @bytes
 *
 * Return: 0, or NVME_E_FULL when no run is long enough (there may be as many bytes in pieces).
 */
int nvme_space_allocate(struct nvme_space *space, uint64_t bytes, struct zi_extent *ret_extent)
{
	uint64_t count = bytes / ZI_STORE_ALIGN_BYTES;
	uint64_t end_index = space->block_count;
	uint64_t index;

	assert(bytes % ZI_STORE_ALIGN_BYTES == 0);
	if (!count) {
		*ret_extent = (struct zi_extent){ 0 };
		return 0;
	}
	if (count > space->free_count)
		return NVME_E_FULL;
	index = space_find_run(space, space->cursor_index, end_index, count);
	if (index == end_index) {
		/* Once more from the start; a run may reach over the cursor. */
		uint64_t reach = ZI_MIN(count - 1, end_index - space->cursor_index);

		end_index = space->cursor_index + reach;
		index = space_find_run(space, SPACE_FIRST_INDEX, end_index, count);
		if (index == end_index)
			return NVME_E_FULL;
	}
	space_mark(space, index, index + count, true);
	space->cursor_index = index + count;
	assert(space->cursor_index <= space->block_count);
	*ret_extent =
		(struct zi_extent){ .offset_bytes = index * ZI_STORE_ALIGN_BYTES, .bytes = bytes };
	return 0;
}

/**
 * nvme_space_aim() - where the next extents go
 * @bytes: of all of them together; a multiple of ZI_STORE_ALIGN_BYTES
 * @is_end: at the end of it, else at its beginning
 *
 * Of the free runs that hold them all the shortest, so that longer ones stay whole. No such run:
 * nothing. Looks at all bits, so only where room is short.
 */
void nvme_space_aim(struct nvme_space *space, uint64_t bytes, bool is_end)
{
	uint64_t count = bytes / ZI_STORE_ALIGN_BYTES;
	uint64_t shortest_count = UINT64_MAX;
	uint64_t index = SPACE_FIRST_INDEX;

	assert(bytes % ZI_STORE_ALIGN_BYTES == 0);
	while (index < space->block_count && shortest_count > count) {
		uint64_t begin_index = space_find(space, index, space->block_count, false);
		uint64_t run_count;

		index = space_find(space, begin_index, space->block_count, true);
		run_count = index - begin_index;
		if (run_count < count || run_count >= shortest_count)
			continue;
		shortest_count = run_count;
		space->cursor_index = is_end ? index - count : begin_index;
	}
}

/* @extent: allocated or claimed as a whole (several neighbours may be released as one). */
void nvme_space_release(struct nvme_space *space, const struct zi_extent *extent)
{
	uint64_t index = extent->offset_bytes / ZI_STORE_ALIGN_BYTES;

	if (!extent->bytes)
		return;
	assert(space_holds(space, extent));
	space_mark(space, index, index + extent->bytes / ZI_STORE_ALIGN_BYTES, false);
}

/**
 * nvme_space_claim() - marks what the catalog names as in use
 * @extent: read from a catalog, hence not trusted. Empty ones are ignored
 *
 * Return: 0, or -EUCLEAN when it is misaligned, outside, or overlaps what was claimed before; the
 * space is then unchanged.
 */
int nvme_space_claim(struct nvme_space *space, const struct zi_extent *extent)
{
	uint64_t index = extent->offset_bytes / ZI_STORE_ALIGN_BYTES;
	uint64_t end_index;

	if (!extent->bytes)
		return 0;
	if (!space_holds(space, extent))
		return err_origin(-EUCLEAN);
	end_index = index + extent->bytes / ZI_STORE_ALIGN_BYTES;
	if (space_find(space, index, end_index, true) != end_index)
		return err_origin(-EUCLEAN);
	space_mark(space, index, end_index, true);
	return 0;
}

/* In however many pieces. */
uint64_t nvme_space_free_bytes(const struct nvme_space *space)
{
	return space->free_count * ZI_STORE_ALIGN_BYTES;
}

/* Free or not, the superblock apart. */
uint64_t nvme_space_total_bytes(const struct nvme_space *space)
{
	return (space->block_count - SPACE_FIRST_INDEX) * ZI_STORE_ALIGN_BYTES;
}
