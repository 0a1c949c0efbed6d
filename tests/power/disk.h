/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a disk may hold after the power failed, out of a record (record.h). The rules:
 *
 *   - What a flush covers is there: calls that had ended before it began, once it has ended.
 *   - Of every other call that had begun, each sector may be there or not, in any order and
 *     whatever became of the rest. A sector has one of the contents it had since the flush, whole:
 *     it is never torn (as disks promise, and SQLite's "powersafe overwrite" asks for).
 *   - The size of a file is one of those it had since the flush; what was never written in it is
 *     zero. Writes after a cut (ftruncate) are there only where the cut is.
 *   - Names (files made, renamed, removed) become durable in their order, as with every file system
 *     that has a journal, and surely only by a flush of the directory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/power/image.h"
#include "tests/power/record.h"

/* What of the unflushed is there together, by kinds of files. */
enum disk_part { DISK_STORE, DISK_CATALOG, DISK_LOG, DISK_NAMES, _DISK_PART_COUNT };
/* And of the last write that is there, in each file. */
enum disk_tear { DISK_WHOLE, DISK_FIRST_SECTOR, DISK_BUT_FIRST, DISK_BUT_LAST, _DISK_TEAR_COUNT };
#define DISK_CORNERS (1u << _DISK_PART_COUNT)
#define DISK_RANDOM  DISK_CORNERS /* instead of a corner: drawn sector by sector */

/* A disk that lies, or a program that forgets: what the test must find out. */
enum disk_lie {
	DISK_HONEST,
	DISK_DROPS_STORE_FLUSH,  /* data is not flushed before the transaction */
	DISK_FLUSHES_STORE_LATE, /* but after it */
	DISK_DROPS_LOG_FLUSH,    /* the transaction is not flushed */
	DISK_DROPS_NAMES_FLUSH,  /* no flush of the directory */
	_DISK_LIE_COUNT,
};

struct disk_choice {
	uint32_t corner;     /* a bit for each part: all of it is there, else nothing; or RANDOM */
	enum disk_tear tear; /* of a corner */
	uint32_t sector_bytes; /* 512, 4096 */
	uint64_t seed;         /* of RANDOM */
};

struct disk;

/* @lie holds for flushes that begin at @lie_from or later. */
struct disk *disk_new(const struct record_list *list, enum disk_lie lie, uint64_t lie_from);
struct disk *disk_free(struct disk *disk);
/* The power fails at place @cut. Cuts of a disk do not go back. */
void disk_cut(struct disk *disk, uint64_t cut);
/* Chooses one of the states that are possible after the cut. Return: its hash. */
uint64_t disk_choose(struct disk *disk, const struct disk_choice *choice);
/* A file of the chosen state, to be changed; NULL when there is none. */
struct image *disk_file(struct disk *disk, enum disk_part part);
/* Makes @directory hold the chosen state and nothing else. */
void disk_write(const struct disk *disk, const char *directory);
/* Whether @directory holds exactly the chosen state. */
bool disk_compare(const struct disk *disk, const char *directory);
/* "12 unflushed writes of store, 3 of ...": for people. @text: (bytes,). */
void disk_describe(const struct disk *disk, char *text, uint32_t bytes);
