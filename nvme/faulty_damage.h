/* SPDX-License-Identifier: Apache-2.0 */
/* What the fault injector does to a block or the disk. Private to nvme/. Floor 2, owner thread. */
#pragma once

#include <stdint.h>

#include "nvme/backend.h"

/* A part that direct I/O can move: at least one unit of it, and not all where there are two. */
uint32_t nvme_faulty_short_bytes(const struct nvme_block *block, uint64_t random);
/* How much of a write a power cut leaves: its first sectors, not all; 0: nothing. */
uint32_t nvme_faulty_torn_bytes(const struct nvme_block *block, uint64_t random);
/* Anywhere else behind the superblock that the block fits. */
uint64_t nvme_faulty_other_offset(const struct nvme_block *block, uint64_t random);
/* Turns one bit of [@offset_bytes, +@bytes) of the file, which nobody wrote. @sector:
 * (ZI_STORE_ALIGN_BYTES,) aligned to itself. Blocks. Return: 0, or -errno. */
int nvme_faulty_flip_at_rest(int fd, void *sector, uint64_t offset_bytes, uint64_t bytes,
                             uint64_t random);
