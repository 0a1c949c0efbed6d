/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes of files behind their user's back, a few at once, past the page cache where the
 * file system lets them: a checkpoint is larger than memory, and is not looked at again. Threads
 * that call pread() and pwrite(); who submits and waits is one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What direct I/O wants offsets, lengths and buffers to be multiples of, on all disks. */
#define MOVER_ALIGN_BYTES 4096u

struct mover;

/* A file for reading or for writing. */
struct mover_file {
	int fd;        /* -1: not open */
	int direct_fd; /* the same file, past the page cache; -1: its file system cannot */
};

/* Embedded in its owner, which leaves it and its buffer alone from mover_submit() until
 * mover_wait(). */
struct mover_move {
	const struct mover_file *file;
	bool is_write;
	uint8_t *buffer; /* aligned to MOVER_ALIGN_BYTES */
	uint64_t bytes, offset_bytes;
	/* private */
	bool is_out;
	int error;
	struct mover_move *next;
};

/* NULL: no memory, or no threads. */
struct mover *mover_new(void);
/* Waits for what is out. NULL is fine. Return: NULL. */
struct mover *mover_free(struct mover *mover);
void mover_submit(struct mover *mover, struct mover_move *move);
/* Return: 0; an errno; ENODATA: the file ends before. 0 for one that was never submitted. */
int mover_wait(struct mover *mover, struct mover_move *move);

/* Opens with open()'s @flags and @mode. 0, or an errno. */
int mover_file_open(struct mover_file *file, const char *path, int flags, unsigned mode);
/* What was opened; what is not, stays so. */
void mover_file_close(struct mover_file *file);
/* At once, by whoever calls, through the page cache. Return: as mover_wait(). */
int mover_read(const struct mover_file *file, void *bytes, uint64_t byte_count, uint64_t offset);

/* Memory for moves, of huge pages where there are some; NULL: none. @bytes: of all of it. */
uint8_t *mover_memory(uint64_t bytes);
void mover_memory_free(uint8_t *memory, uint64_t bytes);
