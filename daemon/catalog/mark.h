/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A witness of the newest commit, beside the catalog's file and its log (catalog.db-mark). Floor 2,
 * private to daemon/catalog; the thread that owns the connection.
 *
 * SQLite takes the log up to the first frame that does not check, and calls the rest an unfinished
 * transaction. So damage, or a log that was cut or removed, would silently give an older commit.
 * The mark names the stamp of the newest stand that was committed. Where the catalog has no such
 * stand, commits are missing, and the catalog is refused.
 *
 *   - A commit overwrites the mark after its transaction, without a flush: a process that is killed
 *     in between leaves an older mark, which claims less.
 *   - After a power failure (another boot) log and mark are as old as the disk left them. Then only
 *     commits that were synced (durability power) must be there.
 *   - What removes the newest stand (a job is deleted, a commit is dropped) makes the mark void
 *     before its transaction, with a flush.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"

struct catalog;
struct catalog_request;

#define CATALOG_MARK_MAGIC   "ZINFMARK"
#define CATALOG_MARK_VERSION 2u
#define CATALOG_BOOT_BYTES   40u

struct catalog_mark_commit {
	uint64_t stamp; /* of the stand; 0: nothing is claimed */
	int64_t step;   /* the same commit's, and whose it is: for people */
	char job[2 * ZI_NAME_BYTES];
};

/* As it lies in the file, within one sector of a disk; little endian. A file of zeros, of another
 * version, or one that does not check, claims nothing. */
struct catalog_mark {
	uint8_t magic[8];
	uint32_t version;
	uint32_t reserved;
	struct catalog_mark_commit newest;
	struct catalog_mark_commit synced; /* the newest one that was synced */
	char boot[CATALOG_BOOT_BYTES];     /* the kernel's boot that wrote it; "": not known */
	uint64_t checksum;                 /* XXH3 of all bytes before it */
};

/* Under the lock of a catalog that is begun anew: nothing of a former one is claimed. 0; -errno in
 * words. */
int catalog_mark_remove(const struct catalog *catalog, struct zi_text *text);
/* Reads the file, if there is one. Return: 0; the errno of a file that cannot be used, in words. */
int catalog_mark_open(struct catalog *catalog, struct zi_text *text);
/* Whether all commits are there that the mark names. @newest: the largest stamp of a stand.
 * -EUCLEAN, in words, with nothing changed. */
int catalog_mark_check(struct catalog *catalog, uint64_t newest, struct zi_text *text);
/* The catalog is accepted: makes the file unless it is there, and gives it the catalog's owner. 0;
 * -errno in words. */
int catalog_mark_accept(struct catalog *catalog, struct zi_text *text);
/* Before a transaction of @request ends, after which @newest is the largest stamp. 0; -errno in its
 * words: the transaction must not be made. */
int catalog_mark_prepare(struct catalog *catalog, uint64_t newest, struct zi_text *text);
/* After SQLite's end. Where that has left no log, nothing can be missed in it: the mark is void.
 * So a catalog that is restored, or written by a zinfd without marks, is taken. */
void catalog_mark_close(struct catalog *catalog);
/* A transaction was made with a stand of @stamp. */
void catalog_mark_note(struct catalog *catalog, const struct catalog_request *request,
                       uint64_t stamp);
