/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3 (64 bits, seed 0) of a tile as it lies on the store. Inlined build of xxHash, compiled per
 * instruction set: all give the same value. Floor 1.
 */
#pragma once

#include <stdint.h>

uint64_t kern_hash(const void *data, uint64_t bytes);
