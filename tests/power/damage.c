/* SPDX-License-Identifier: Apache-2.0 */
/* Damage to a file (damage.h). One thread. */
#include "tests/power/damage.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"

/* What disks lose and misplace at once; also a page of the catalog and a block of ours. */
#define PAGE_BYTES   4096u
#define SECTOR_BYTES 512u

static uint64_t draw(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* @from at @from_bytes over the page of @image at @at_bytes. Return: whether it was another. */
static bool page_copy(struct image *image, uint64_t at_bytes, const struct image *from,
                      uint64_t from_bytes)
{
	uint64_t bytes = ZI_MIN(image->bytes - at_bytes, PAGE_BYTES);

	if (from_bytes + bytes > from->bytes ||
	    memcmp(image->data + at_bytes, from->data + from_bytes, bytes) == 0)
		return false;
	memcpy(image->data + at_bytes, from->data + from_bytes, bytes);
	return true;
}

/* The first page from a random one on that has been written since. */
static bool make_stale(struct image *image, const struct image *before, uint64_t first_page)
{
	uint64_t count = (image->bytes + PAGE_BYTES - 1) / PAGE_BYTES;

	if (!before)
		return false;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t at_bytes = (first_page + i) % count * PAGE_BYTES;

		if (page_copy(image, at_bytes, before, at_bytes))
			return true;
	}
	return false;
}

static bool overwrite(struct image *image, uint64_t sector, bool is_noise, uint64_t *state)
{
	uint64_t at_bytes = sector * SECTOR_BYTES;
	uint64_t end_bytes = ZI_MIN(at_bytes + SECTOR_BYTES, image->bytes);
	bool is_changed = false;

	for (; at_bytes < end_bytes; at_bytes++) {
		uint8_t byte = is_noise ? (uint8_t)draw(state) : 0;

		is_changed = is_changed || image->data[at_bytes] != byte;
		image->data[at_bytes] = byte;
	}
	return is_changed;
}

bool damage(struct disk *disk, struct disk *before, enum disk_part part, enum damage_kind kind,
            uint64_t seed)
{
	struct image *image = disk_file(disk, part);
	uint64_t state = seed;
	uint64_t page_count, page;

	if (!image || !image->bytes)
		return false;
	page_count = (image->bytes + PAGE_BYTES - 1) / PAGE_BYTES;
	page = draw(&state) % page_count;
	switch (kind) {
	case DAMAGE_FLIP:
		image->data[draw(&state) % image->bytes] ^= (uint8_t)(1u << draw(&state) % 8);
		return true;
	case DAMAGE_ZERO:
	case DAMAGE_NOISE:
		return overwrite(image, draw(&state) % (image->bytes / SECTOR_BYTES + 1),
		                 kind == DAMAGE_NOISE, &state);
	case DAMAGE_STALE:
		return make_stale(image, disk_file(before, part), page);
	case DAMAGE_MISPLACED:
		return page_copy(image, page * PAGE_BYTES, image,
		                 draw(&state) % page_count * PAGE_BYTES);
	case DAMAGE_CUT:
		image->bytes = draw(&state) % image->bytes;
		return true;
	default:
		assert(kind < _DAMAGE_KIND_COUNT);
		return false;
	}
}
