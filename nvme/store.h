/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that opening a store is made of (store.c, store_make.c, store_part.c). Private to
 * nvme/. Floor 2. Each takes a half-open store (name, path, fd) and answers with a sentence.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "nvme/nvme.h"
#include "nvme/superblock.h"

/* ---- store_part.c ---- */

/* @error of an open(), with what to do about it. Returns @error. */
int nvme_store_open_error(struct zi_text *text, int error, const char *path);
/* One daemon per store, for as long as the descriptor lives. -EBUSY. */
int nvme_store_lock(int fd, const char *path, struct zi_text *text);
int nvme_store_enable_direct(struct nvme_store *store, const struct nvme_store_options *options,
                             struct zi_text *text);
/* Brings the file from @from_bytes to the wanted size, every block written. */
int nvme_store_prepare(const struct nvme_store *store, const struct nvme_store_options *options,
                       uint64_t from_bytes, struct zi_text *text);
/* Sealed anew, and flushed. */
int nvme_store_write_superblock(const struct nvme_store *store,
                                const struct nvme_superblock *superblock, struct zi_text *text);
/* The fields of an open store. Cannot fail. */
void nvme_store_adopt_superblock(struct nvme_store *store,
                                 const struct nvme_superblock *superblock);

/* fdatasync(), whatever the engine injects. -EIO, -ENOSPC. Any thread; blocks. (store.c) */
int nvme_store_flush_file(struct nvme_store *store);

/* ---- store_make.c ---- */

/* Nothing at the path. */
int nvme_store_create(struct nvme_store *store, const struct nvme_store_options *options,
                      struct zi_text *text);
/* An empty file at the path, or one whose preparation was interrupted. */
int nvme_store_fill_empty(struct nvme_store *store, const struct nvme_store_options *options,
                          struct zi_text *text);
/* A device at the path, without a superblock of ours. */
int nvme_store_adopt_device(struct nvme_store *store, const struct nvme_store_options *options,
                            uint64_t capacity_bytes, struct zi_text *text);
