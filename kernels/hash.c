/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums: the public functions. Integers only: no environment to enter. Floor 1. */
#include "kernels/hash.h"
#include "common/base/assert.h"
#include "kernels/table.h"

/**
 * kern_hash() - XXH3, 64 bits, seed 0
 * @data: (bytes,) of any alignment
 * @bytes: any
 *
 * Return: the hash, the same on every instruction set. Context: any thread.
 */
uint64_t kern_hash(const void *data, uint64_t bytes)
{
	assert(data || !bytes);
	return kern_table()->hash(data, bytes);
}

/**
 * kern_hash_tile() - the checksum of a tile, or of the last one of a subgroup
 * @tile: (@bytes,) of any alignment
 * @bytes: a multiple of @element_bytes
 * @element_bytes: of the tile's plane; parameters: 2 or 4; state: 4, 6, 8, 10 or 12
 *
 * A tile of state is [16-bit section, where the width is odd in fp32s | 32-bit sections], each with
 * a value for every element. Return: XXH3 of the sections' XXH3s in their order, little-endian; of
 * a single section its own. Context: any thread.
 */
uint64_t kern_hash_tile(const void *tile, uint64_t bytes, uint32_t element_bytes)
{
	const uint64_t element_count = bytes / element_bytes;
	const uint32_t narrow_bytes = element_bytes % sizeof(float);
	uint64_t words[KERN_HASH_SECTIONS_MAX];
	const char *section = tile;
	uint32_t count = 0;

	assert(bytes % element_bytes == 0);
	assert(element_bytes >= 2);
	assert(element_bytes <= KERN_HASH_SECTIONS_MAX * sizeof(float));
	assert(element_bytes % 2 == 0);
	if (narrow_bytes)
		words[count++] = kern_hash(section, element_count * narrow_bytes);
	section += element_count * narrow_bytes;
	for (uint32_t left = element_bytes - narrow_bytes; left; left -= (uint32_t)sizeof(float)) {
		words[count++] = kern_hash(section, element_count * sizeof(float));
		section += element_count * sizeof(float);
	}
	return count == 1 ? words[0] : kern_hash(words, count * sizeof(words[0]));
}
