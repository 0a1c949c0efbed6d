/* SPDX-License-Identifier: Apache-2.0 */
/* The table of registered buffers and files. Floor 2, owner thread only. */
#include "nvme/fixed.h"

#include <string.h>

#include "common/base/assert.h"

static_assert(NVME_PIECES_MAX <= UINT16_MAX, "slots are kept as uint16_t");

/* Nothing is registered, all slots are free. Any memory will do. */
void nvme_fixed_init(struct nvme_fixed *fixed)
{
	memset(fixed, 0, sizeof(*fixed));
	/* The lowest slot on top. */
	for (uint32_t i = 0; i < NVME_PIECES_MAX; i++)
		fixed->free_slots[i] = (uint16_t)(NVME_PIECES_MAX - 1 - i);
	fixed->free_slots_count = NVME_PIECES_MAX;
}

/* Index of the first piece that ends behind @address. */
static uint32_t fixed_lower(const struct nvme_fixed *fixed, uintptr_t address)
{
	uint32_t low = 0;
	uint32_t high = fixed->pieces_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct nvme_piece *piece = &fixed->pieces[middle];

		if (address - piece->base < piece->bytes || address < piece->base)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* @bytes: at least 1. Return: the piece, valid until the next insert or remove, or NULL. */
struct nvme_piece *nvme_fixed_find(struct nvme_fixed *fixed, const void *base, uint64_t bytes)
{
	uintptr_t address = (uintptr_t)base;
	uint32_t index = fixed_lower(fixed, address);
	struct nvme_piece *piece = &fixed->pieces[index];

	if (index == fixed->pieces_count || address < piece->base)
		return NULL;
	return bytes <= piece->bytes - (address - piece->base) ? piece : NULL;
}

/* Whether [@base, @base + @bytes), which does not wrap, touches what is registered. */
bool nvme_fixed_overlaps(const struct nvme_fixed *fixed, const void *base, uint64_t bytes)
{
	uint32_t index = fixed_lower(fixed, (uintptr_t)base);

	return index < fixed->pieces_count && fixed->pieces[index].base < (uintptr_t)base + bytes;
}

/* Keeps the pieces sorted: linear, but registering is rare. */
void nvme_fixed_insert(struct nvme_fixed *fixed, const struct nvme_piece *piece)
{
	uint32_t index = fixed_lower(fixed, piece->base);

	assert(fixed->pieces_count < NVME_PIECES_MAX);
	assert(!nvme_fixed_overlaps(fixed, (void *)piece->base, piece->bytes));
	memmove(&fixed->pieces[index + 1], &fixed->pieces[index],
	        (fixed->pieces_count - index) * sizeof(*piece));
	fixed->pieces[index] = *piece;
	fixed->pieces_count++;
}

/* @ret_piece: its slot is the caller's to give back. */
bool nvme_fixed_remove(struct nvme_fixed *fixed, const void *region_base,
                       struct nvme_piece *ret_piece)
{
	uint32_t index = fixed_lower(fixed, (uintptr_t)region_base);

	/* Pieces of a region follow each other from its base on; what is left begins later. */
	if (index == fixed->pieces_count ||
	    fixed->pieces[index].region_base != (uintptr_t)region_base)
		return false;
	*ret_piece = fixed->pieces[index];
	fixed->pieces_count--;
	memmove(&fixed->pieces[index], &fixed->pieces[index + 1],
	        (fixed->pieces_count - index) * sizeof(*ret_piece));
	return true;
}

/* The slot that was given back last, so that the table stays dense. */
int32_t nvme_fixed_take_slot(struct nvme_fixed *fixed)
{
	assert(fixed->free_slots_count > 0);
	return fixed->free_slots[--fixed->free_slots_count];
}

/* Asserts that no block in flight uses it. */
void nvme_fixed_give_slot(struct nvme_fixed *fixed, int32_t slot)
{
	assert(slot >= 0);
	assert(fixed->slot_blocks_count[slot] == 0);
	assert(fixed->free_slots_count < NVME_PIECES_MAX);
	fixed->free_slots[fixed->free_slots_count++] = (uint16_t)slot;
}

/* Also of a store whose descriptor the kernel refused. */
int32_t nvme_fixed_file(const struct nvme_fixed *fixed, const struct nvme_store *store)
{
	for (int32_t i = 0; i < (int32_t)NVME_FILES_MAX; i++)
		if (fixed->files[i] == store)
			return i;
	return NVME_SLOT_NONE;
}
