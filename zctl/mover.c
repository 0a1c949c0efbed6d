/* SPDX-License-Identifier: Apache-2.0 */
/* See mover.h. The mutex guards the queue and every move's `is_out` and `error`; nothing is called
 * while it is held. */
#include "zctl/mover.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/fd.h"
#include "common/base/thread.h"

/* Disks want a few requests at once; beyond that more threads only wait for each other. */
#define MOVER_THREADS 4u

struct mover {
	pthread_mutex_t mutex;
	pthread_cond_t is_due, is_done;
	struct mover_move *first, **end; /* queue */
	bool is_ending;
	struct zi_thread threads[MOVER_THREADS];
};

/* ---- one move ---- */

static int move_bytes(int fd, bool is_write, uint8_t *buffer, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t done = is_write ? pwrite(fd, buffer, bytes, (off_t)offset)
		                        : pread(fd, buffer, bytes, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return errno;
		if (!done)
			return is_write ? EIO : ENODATA;
		buffer += done;
		offset += (uint64_t)done;
		bytes -= (uint64_t)done;
	}
	return 0;
}

/* As much as direct I/O can do; the rest (a file's tail), or all, by way of the page cache. */
static int move_run(const struct mover_move *move)
{
	const struct mover_file *file = move->file;
	uint64_t direct_bytes = move->bytes - move->bytes % MOVER_ALIGN_BYTES;
	int error = EINVAL;

	if (file->direct_fd >= 0 && direct_bytes && move->offset_bytes % MOVER_ALIGN_BYTES == 0)
		error = move_bytes(file->direct_fd, move->is_write, move->buffer, direct_bytes,
		                   move->offset_bytes);
	/* EINVAL: stricter than we know, or a short one that ended in the middle of a block. */
	if (error && error != EINVAL)
		return error;
	if (error)
		direct_bytes = 0;
	error = move_bytes(file->fd, move->is_write, move->buffer + direct_bytes,
	                   move->bytes - direct_bytes, move->offset_bytes + direct_bytes);
	/* On its way to the disk while the next ones are made, not all of it in the end. */
	if (!error && move->is_write && !direct_bytes)
		(void)sync_file_range(file->fd, (off_t)move->offset_bytes, (off_t)move->bytes,
		                      SYNC_FILE_RANGE_WRITE);
	return error;
}

static int work(void *arg)
{
	struct mover *mover = arg;

	(void)pthread_mutex_lock(&mover->mutex); /* Cannot fail: not recursive, initialised. */
	for (;;) {
		struct mover_move *move = mover->first;
		int error;

		if (!move && mover->is_ending)
			break;
		if (!move) {
			(void)pthread_cond_wait(&mover->is_due, &mover->mutex);
			continue;
		}
		mover->first = move->next;
		if (!mover->first)
			mover->end = &mover->first;
		(void)pthread_mutex_unlock(&mover->mutex);
		error = move_run(move);
		(void)pthread_mutex_lock(&mover->mutex);
		move->error = error;
		move->is_out = false;
		(void)pthread_cond_signal(&mover->is_done);
	}
	(void)pthread_mutex_unlock(&mover->mutex);
	return 0;
}

/* ---- the mover ---- */

/* See mover.h. */
struct mover *mover_new(void)
{
	struct mover *mover = calloc(1, sizeof *mover);

	if (!mover)
		return NULL;
	(void)pthread_mutex_init(&mover->mutex, NULL);
	(void)pthread_cond_init(&mover->is_due, NULL);
	(void)pthread_cond_init(&mover->is_done, NULL);
	mover->end = &mover->first;
	for (uint32_t i = 0; i < MOVER_THREADS; i++)
		if (zi_thread_start(&mover->threads[i], "mover", work, mover))
			return mover_free(mover);
	return mover;
}

/* See mover.h. */
struct mover *mover_free(struct mover *mover)
{
	if (!mover)
		return NULL;
	(void)pthread_mutex_lock(&mover->mutex);
	mover->is_ending = true;
	(void)pthread_cond_broadcast(&mover->is_due);
	(void)pthread_mutex_unlock(&mover->mutex);
	for (uint32_t i = 0; i < MOVER_THREADS; i++)
		(void)zi_thread_join(&mover->threads[i]); /* 0. */
	assert(!mover->first);
	(void)pthread_cond_destroy(&mover->is_done);
	(void)pthread_cond_destroy(&mover->is_due);
	(void)pthread_mutex_destroy(&mover->mutex);
	free(mover);
	return NULL;
}

/* See mover.h. */
void mover_submit(struct mover *mover, struct mover_move *move)
{
	assert(!move->is_out);
	assert((uintptr_t)move->buffer % MOVER_ALIGN_BYTES == 0);
	(void)pthread_mutex_lock(&mover->mutex);
	move->is_out = true;
	move->error = 0;
	move->next = NULL;
	*mover->end = move;
	mover->end = &move->next;
	(void)pthread_cond_signal(&mover->is_due);
	(void)pthread_mutex_unlock(&mover->mutex);
}

/* See mover.h. */
int mover_wait(struct mover *mover, struct mover_move *move)
{
	int error;

	(void)pthread_mutex_lock(&mover->mutex);
	while (move->is_out)
		(void)pthread_cond_wait(&mover->is_done, &mover->mutex);
	error = move->error;
	(void)pthread_mutex_unlock(&mover->mutex);
	return error;
}

/* ---- files and memory ---- */

/* See mover.h. */
int mover_file_open(struct mover_file *file, const char *path, int flags, unsigned mode)
{
	int fd = open(path, flags | O_CLOEXEC, mode);
	char again[32];

	*file = (struct mover_file){ .fd = -1, .direct_fd = -1 };
	if (fd < 0)
		return errno;
	file->fd = fd;
	/* The same file, whatever its name has become meanwhile. Without it everything works,
	 * slower. */
	(void)snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
	file->direct_fd = open(again, (flags & O_ACCMODE) | O_DIRECT | O_CLOEXEC);
	return 0;
}

/* See mover.h. */
void mover_file_close(struct mover_file *file)
{
	file->direct_fd = zi_close(file->direct_fd);
	file->fd = zi_close(file->fd);
}

/* See mover.h. */
int mover_read(const struct mover_file *file, void *bytes, uint64_t byte_count, uint64_t offset)
{
	return move_bytes(file->fd, false, bytes, byte_count, offset);
}

/* See mover.h. */
uint8_t *mover_memory(uint64_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	(void)madvise(memory, bytes, MADV_HUGEPAGE); /* A wish. */
	return memory;
}

/* See mover.h. */
void mover_memory_free(uint8_t *memory, uint64_t bytes)
{
	if (memory)
		(void)munmap(memory, bytes); /* Ours, whole. */
}
