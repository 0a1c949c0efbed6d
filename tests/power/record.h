/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recorder of everything that reaches the files of one directory: a test double of the C
 * library's calls that write, size, flush, name and unname files. It stands before libc for the
 * whole program, SQLite included, so what is recorded is what the unchanged code does, in one order
 * over all files. While nothing is recorded the calls only pass, and flushes do nothing: what a
 * disk would keep is decided from the record (disk.h), not by this machine's.
 *
 * Any thread. A call takes effect somewhere between `begin` and `end`, two places of one order.
 * What the recorder cannot see (io_uring, shared mappings) must not be used; disk_compare() finds
 * it out, as the record, played from the beginning, must give the files byte by byte.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RECORD_NONE       UINT32_MAX
#define RECORD_FILES_MAX  64u
#define RECORD_NAME_BYTES 48u

enum record_kind {
	RECORD_CREATE,      /* name */
	RECORD_WRITE,       /* offset_bytes, bytes, data */
	RECORD_TRUNCATE,    /* offset_bytes: the new size */
	RECORD_EXTEND,      /* offset_bytes: the size, where it was less */
	RECORD_FLUSH,       /* of the file: fsync, fdatasync */
	RECORD_RENAME,      /* file, name: the new one */
	RECORD_UNLINK,      /* file */
	RECORD_FLUSH_NAMES, /* fsync of the directory */
};

struct record {
	enum record_kind kind;
	uint32_t file;
	uint64_t begin, end; /* end: UINT64_MAX while the call has not returned */
	uint64_t offset_bytes, bytes;
	void *data; /* (bytes,), the recorder's */
	char name[RECORD_NAME_BYTES];
};

/* Ordered by `begin`. */
struct record_list {
	struct record *records;
	uint32_t count, capacity;
	uint32_t file_count;
	char names[RECORD_FILES_MAX][RECORD_NAME_BYTES]; /* of each file, the last one */
};

/* From now on, all that happens in @directory, which is empty. */
void record_start(const char *directory);
/* The caller's, to read, until the program ends. */
const struct record_list *record_stop(void);
/* The present place in the order: all that began before is in the past. */
uint64_t record_now(void);
