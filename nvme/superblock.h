/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first NVME_SUPERBLOCK_BYTES of a store, as they lie on disk (little endian). Private to
 * nvme/. Floor 2, any thread: pure functions over memory.
 *
 *   0        8         12       16        24     32      48                504    512    4096
 *   | magic  | version | state  | bytes   | made | uuid  | reserved, zero  | XXH3 | zero |
 *
 * All of it lies in the first 512 bytes, the smallest sector of a disk: when the power fails while
 * it is written, the sector is the old one or the new one.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/assert.h"
#include "common/base/text.h"
#include "nvme/nvme.h"

#define NVME_SUPERBLOCK_MAGIC "ZINFNVME"

enum nvme_superblock_state {
	/* An empty file of the administrator's is being written in advance: begin anew. */
	NVME_SUPERBLOCK_PREPARING = 1,
	NVME_SUPERBLOCK_READY = 2,
	/* Whole, and no catalog knows it for certain: nothing lies in it. */
	NVME_SUPERBLOCK_NEW = 3,
};

struct nvme_superblock {
	uint8_t magic[8];
	uint32_t version;
	uint32_t state;
	uint64_t bytes;   /* usable end of the store */
	uint64_t made_s;  /* when, seconds since 1970: for people */
	uint8_t uuid[16]; /* RFC 4122, version 4: what the catalog knows the store by */
	uint8_t reserved[456];
	uint64_t checksum; /* XXH3 of all bytes before it */
	uint8_t filling[3584];
};

static_assert(sizeof(struct nvme_superblock) == NVME_SUPERBLOCK_BYTES, "one block");
static_assert(offsetof(struct nvme_superblock, uuid) == 32, "layout on disk");
static_assert(offsetof(struct nvme_superblock, checksum) == 512 - 8, "layout on disk");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the layout on disk is little endian");

/* A new identity, state NEW, sealed. Return: 0, or -EIO (no random bytes). */
int nvme_superblock_make(uint64_t bytes, struct nvme_superblock *ret_superblock);
/* Computes the checksum anew; after every change of a field. */
void nvme_superblock_seal(struct nvme_superblock *superblock);
/* Whether it is one of ours at all, of whatever version and in whatever condition. */
bool nvme_superblock_is_ours(const struct nvme_superblock *superblock);
/* Return: 0; -EPROTONOSUPPORT (another version), -EUCLEAN (checksum, or a field that makes no
 * sense), with a sentence about @path. Precondition: it is ours. */
int nvme_superblock_check(const struct nvme_superblock *superblock, const char *path,
                          struct zi_text *text);
