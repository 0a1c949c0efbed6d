/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who really moves the blocks of an engine: a table of functions, chosen by name. Private to nvme/.
 * Floor 2; everything here is the engine's owner thread's, but where a backend says otherwise.
 *
 * The engine hands over at most `depth` blocks at once, each from its own array, and does not touch
 * one again until the backend returns it from reap() with a result. A backend neither retries nor
 * judges: a result is the count of bytes that moved, or -errno, as from pread().
 */
#pragma once

#include <stdint.h>

#include "common/base/list.h"
#include "common/base/text.h"
#include "nvme/nvme.h"

#define NVME_SLOT_NONE (-1)

/* A run of one request, at most a block long. */
struct nvme_block {
	struct zi_list link; /* free blocks of the engine, or a queue of the backend */
	struct nvme_io *io;
	enum nvme_direction direction;
	uint32_t index; /* in the engine's array */
	int fd;
	bool is_polled;      /* by the store; the backend clears it where it does not poll */
	bool is_blocking;    /* the file system may hold up whoever asks it: nvme_store */
	int32_t file_slot;   /* registered file, or NVME_SLOT_NONE */
	int32_t buffer_slot; /* registered buffer, or NVME_SLOT_NONE */
	char *buffer;
	uint64_t offset_bytes;
	uint32_t bytes;
	int32_t result;
	uint32_t stalled_count; /* results in a row that moved nothing */
	/* The backend's: which use of the block this is (uring.c), where it is (threads.c). */
	uint32_t generation;
	uint32_t stage;
};

struct nvme_backend {
	const struct nvme_backend_ops *ops;
};

struct nvme_backend_options {
	const char *spec; /* what follows the colon of the name; "" when there is none */
	uint32_t depth;
	uint32_t buffer_slots_count, file_slots_count;
	bool has_poll; /* blocks that are polled may come */
};

struct nvme_backend_ops {
	int (*new)(const struct nvme_backend_options *options, struct zi_text *text,
	           struct nvme_backend **ret_backend);
	/* Nothing is in flight. */
	void (*free)(struct nvme_backend *backend);
	const char *(*name)(const struct nvme_backend *backend);
	/* Readable, level, when reap() has something to return. */
	int (*fd)(const struct nvme_backend *backend);
	/* Whether polled blocks are polled. NULL: no. */
	bool (*can_poll)(const struct nvme_backend *backend);
	/* Takes a block; it need not start before submit(). Cannot fail. */
	void (*prepare)(struct nvme_backend *backend, struct nvme_block *block);
	/* Starts all that was prepared, in one system call where the backend makes any. */
	void (*submit)(struct nvme_backend *backend);
	/* Finished blocks, at most @capacity_count (not less than depth). Never blocks. */
	uint32_t (*reap)(struct nvme_backend *backend, struct nvme_block **ret_blocks,
	                 uint32_t capacity_count);
	/* submit(), then blocks until reap() has something to return, or a signal came. Something
	 * is prepared or in flight. */
	void (*wait)(struct nvme_backend *backend);
	/* Asks a block back that was prepared and has not been returned. It comes from reap() in
	 * any case, soon with -ECANCELED or when it is done. May submit what is prepared. */
	void (*cancel)(struct nvme_backend *backend, struct nvme_block *block);
	/* Makes fd() readable: the engine has something to tell. */
	void (*wake)(struct nvme_backend *backend);
	/* What was written to @store is on its medium then. Any thread; blocks; until the store is
	 * unregistered. NULL: fdatasync() is all there is to it. */
	int (*flush)(struct nvme_backend *backend, struct nvme_store *store);
	/* NULL where registering means nothing. @fd -1, @bytes 0: the slot is empty again. */
	int (*register_file)(struct nvme_backend *backend, uint32_t slot, int fd);
	int (*register_buffer)(struct nvme_backend *backend, uint32_t slot, void *base,
	                       uint64_t bytes);
};

extern const struct nvme_backend_ops nvme_backend_uring;
extern const struct nvme_backend_ops nvme_backend_threads;
extern const struct nvme_backend_ops nvme_backend_faulty;

/* "auto", "io_uring", "threads" or "faulty:SPEC". (backend.c) */
int nvme_backend_new(const char *name, const struct nvme_backend_options *options,
                     struct zi_text *text, struct nvme_backend **ret_backend);
static inline struct nvme_backend *nvme_backend_free(struct nvme_backend *backend)
{
	if (backend)
		backend->ops->free(backend);
	return NULL;
}
ZI_DEFINE_CLEANUP(struct nvme_backend *, nvme_backend_free)
