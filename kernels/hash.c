/* SPDX-License-Identifier: Apache-2.0 */
/* Checksum of a tile: the public function. Integers only: no environment to enter. Floor 1. */
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
