/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine has registered with the kernel, and where: buffers in pieces, files. Private to
 * nvme/. Floor 2, owner thread only. Pure bookkeeping; the engine talks to the backend.
 */
#pragma once

#include <stdint.h>

#include "common/base/types.h"
#include "nvme/backend.h"

/* io_uring registers at most this much in one piece. */
#define NVME_PIECE_BYTES_MAX (1ull << 30)
/* A tier of a terabyte whole, or as many staging buffers. The kernel's own limit is 16384. */
#define NVME_PIECES_MAX 1024u
#define NVME_FILES_MAX  NVME_ENGINE_STORES_MAX

struct nvme_piece {
	uintptr_t base;
	uint64_t bytes;
	uintptr_t region_base; /* as given to nvme_engine_register_buffer() */
	int32_t slot;          /* NVME_SLOT_NONE: refused, or the backend registers nothing */
	bool is_refused;
};

struct nvme_fixed {
	struct nvme_piece pieces[NVME_PIECES_MAX]; /* by address, disjoint */
	uint32_t pieces_count;
	uint16_t free_slots[NVME_PIECES_MAX]; /* a stack */
	uint32_t free_slots_count;
	uint32_t slot_blocks_count[NVME_PIECES_MAX]; /* in flight on it */
	struct nvme_store *files[NVME_FILES_MAX];
	bool is_file_refused[NVME_FILES_MAX];
};

void nvme_fixed_init(struct nvme_fixed *fixed);
/* The piece that holds all of the run, or NULL. */
struct nvme_piece *nvme_fixed_find(struct nvme_fixed *fixed, const void *base, uint64_t bytes);
bool nvme_fixed_overlaps(const struct nvme_fixed *fixed, const void *base, uint64_t bytes);
/* @piece is copied. Preconditions: no overlap, pieces_count < NVME_PIECES_MAX. */
void nvme_fixed_insert(struct nvme_fixed *fixed, const struct nvme_piece *piece);
/* Takes out the first piece of the region that begins at @base. False: there is none (left). */
bool nvme_fixed_remove(struct nvme_fixed *fixed, const void *region_base,
                       struct nvme_piece *ret_piece);
/* There are as many slots as pieces: never fails. */
int32_t nvme_fixed_take_slot(struct nvme_fixed *fixed);
void nvme_fixed_give_slot(struct nvme_fixed *fixed, int32_t slot);
/* Slot of the store, or NVME_SLOT_NONE: it is not registered. */
int32_t nvme_fixed_file(const struct nvme_fixed *fixed, const struct nvme_store *store);
