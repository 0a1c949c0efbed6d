/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3 (64 bits, seed 0). Inlined build of xxHash, compiled per instruction set: all give the same
 * value. The checksum of a tile as it lies on the store is made of its sections' ones, so that a
 * step can hash them side by side while it computes on them (optim_hashed.h). Floor 1.
 */
#pragma once

#include <stdint.h>

#define KERN_HASH_SECTIONS_MAX 3u /* remainder, exp_avg, exp_avg_sq */

uint64_t kern_hash(const void *data, uint64_t bytes);
uint64_t kern_hash_tile(const void *tile, uint64_t bytes, uint32_t element_bytes);
