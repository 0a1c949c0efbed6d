/* SPDX-License-Identifier: Apache-2.0 */
/* The table of registered buffers and files. Floor 2, owner thread only. */
#include "nvme/fixed.h"

#include <string.h>

#include "common/base/assert.h"

static_assert(NVME_PIECES_MAX <= UINT16_MAX, "slots are kept as uint16_t");

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

struct nvme_piece *nvme_fixed_find(struct nvme_fixed *fixed, const void *base, uint64_t bytes)
{
	uintptr_t address = (uintptr_t)base;
	uint32_t index = fixed_lower(fixed, address);
	struct nvme_piece *piece = &fixed->pieces[index];

	if (index == fixed->pieces_count || address < piece->base)
		return NULL;
	return bytes <= piece->bytes - (address - piece->base) ? piece : NULL;
}

bool nvme_fixed_overlaps(const struct nvme_fixed *fixed, const void *base, uint64_t bytes)
{
	uint32_t index = fixed_lower(fixed, (uintptr_t)base);

	return index < fixed->pieces_count && fixed->pieces[index].base < (uintptr_t)base + bytes;
}

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

bool nvme_fixed_remove(struct nvme_fixed *fixed, const void *region_base,
                       struct nvme_piece *ret_piece)
{
	uint32_t index = fixed_lower(fixed, (uintptr_t)region_base);

	/* The pieces of a region follow each other from its base on; those that are left begin later. */
	if (index == fixed->pieces_count ||
	    fixed->pieces[index].region_base != (uintptr_t)region_base)
		return false;
	*ret_piece = fixed->pieces[index];
	fixed->pieces_count--;
	memmove(&fixed->pieces[index], &fixed->pieces[index + 1],
	        (fixed->pieces_count - index) * sizeof(*ret_piece));
	return true;
}

int32_t nvme_fixed_take_slot(struct nvme_fixed *fixed)
{
	assert(fixed->free_slots_count > 0);
	return fixed->free_slots[--fixed->free_slots_count];
}

void nvme_fixed_give_slot(struct nvme_fixed *fixed, int32_t slot)
{
	assert(slot >= 0);
	assert(fixed->slot_blocks_count[slot] == 0);
	assert(fixed->free_slots_count < NVME_PIECES_MAX);
	fixed->free_slots[fixed->free_slots_count++] = (uint16_t)slot;
}

int32_t nvme_fixed_file(const struct nvme_fixed *fixed, const struct nvme_store *store)
{
	for (int32_t i = 0; i < (int32_t)NVME_FILES_MAX; i++)
		if (fixed->files[i] == store)
			return fixed->is_file_refused[i] ? NVME_SLOT_NONE : i;
	return NVME_SLOT_NONE;
}
