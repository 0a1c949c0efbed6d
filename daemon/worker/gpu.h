/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the daemon and zinf-gpu, the worker that owns memory of one GPU: messages on a socket
 * pair (SOCK_SEQPACKET), one packet each. Floor 3. Each end checks every word of the other.
 *
 *   daemon              worker
 *           ◀── SEEN           the driver is open: how many GPUs there are, whatever becomes of
 *                              this one
 *           ◀── HELLO          the GPU is open: what it is
 *           ◀── FAILED         instead of HELLO: why there is none. The daemon closes its end
 *   CREATE  ──▶                chunks of one size, all or none
 *           ◀── CHUNKS + fds   some of them, at most GPU_FDS_MAX
 *   TAKEN   ──▶                the fds are the daemon's, more of them may come; or the daemon has
 *                              no room for them: the worker releases all of this CREATE
 *           ◀── DONE           all chunks are taken; or an error, and the worker released them
 *   RELEASE ──▶ DONE           the worker's hold on chunks ends
 *   PING    ──▶ PONG           between two batches of chunks
 *
 * The worker answers one CREATE or RELEASE after the other: the daemon sends the next request after
 * DONE. TAKEN bounds the descriptors in flight: Linux counts them by user, and refuses more than
 * RLIMIT_NOFILE.
 *
 * A chunk is memory made by cuMemCreate(). The worker never maps it and has no CUDA context, so
 * that no kernel's error reaches the worker. The memory is free when the worker released the chunk,
 * every descriptor of it is closed, and every process that imported it released or lost it. The end
 * of the daemon's socket ends the worker, and releases all its chunks.
 *
 * HELLO has no count of free bytes: the driver tells it to processes with a context only.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/gpu/device.h"

#define GPU_MAGIC        0x5550475au /* "ZGPU" */
#define GPU_VERSION      2u          /* one more with each change of layout or meaning */
#define GPU_FDS_MAX      8u
#define GPU_CHUNKS_MAX   8192u /* chunks that a worker holds: 8 arenas of 1024 */
#define GPU_RELEASES_MAX 64u   /* chunks of one RELEASE */

enum gpu_type {
	GPU_HELLO = 1,
	GPU_FAILED = 2,
	GPU_CREATE = 3,
	GPU_CHUNKS = 4,
	GPU_TAKEN = 5,
	GPU_RELEASE = 6,
	GPU_DONE = 7,
	GPU_PING = 8,
	GPU_PONG = 9,
	GPU_SEEN = 10,
};

struct gpu_header {
	uint32_t magic;   /* GPU_MAGIC */
	uint16_t version; /* GPU_VERSION */
	uint16_t type;    /* enum gpu_type */
	uint32_t bytes;   /* of the message: the packet's length */
	uint32_t reserved;
	uint64_t cookie; /* of a CREATE or RELEASE; CHUNKS, TAKEN and DONE repeat it. Else 0 */
};
static_assert(sizeof(struct gpu_header) == 24, "header");

#define GPU_FLAG_VMM       (1u << 0) /* virtual memory management */
#define GPU_FLAG_POSIX_FDS (1u << 1) /* chunks can be exported as descriptors */
#define GPU_FLAG_MIG       (1u << 2) /* an instance of a GPU, not a whole one */
#define GPU_FLAGS          (GPU_FLAG_VMM | GPU_FLAG_POSIX_FDS | GPU_FLAG_MIG)

struct gpu_hello {
	struct gpu_header header;
	char uuid[48]; /* "GPU-…" or "MIG-…", with a NUL, as the other texts */
	char name[ZI_GPU_NAME_BYTES];
	char pci[ZI_GPU_PCI_BYTES];
	uint64_t bytes;             /* memory of the GPU, what other processes hold included */
	uint64_t granularity_bytes; /* the size of a chunk is a multiple of it */
	int32_t driver_version;     /* 12040: CUDA 12.4 */
	uint32_t capability;        /* 90: compute capability 9.0 */
	int32_t compute_mode;       /* ZI_CUDA_MODE_... */
	int32_t host_numa;          /* -1: unknown */
	uint32_t index, count;      /* number of the GPU, and how many the worker sees */
	uint32_t flags;             /* GPU_FLAG_... */
	uint32_t reserved;
};
static_assert(sizeof(struct gpu_hello) == 232, "hello");

struct gpu_failed {
	struct gpu_header header;
	int32_t error; /* -errno */
	uint32_t reserved;
	struct zi_text text;
};
static_assert(sizeof(struct gpu_failed) == 288, "failed");

/* Once, before HELLO or FAILED. */
struct gpu_seen {
	struct gpu_header header;
	uint32_t count;
	uint32_t reserved;
};
static_assert(sizeof(struct gpu_seen) == 32, "seen");

struct gpu_create {
	struct gpu_header header;
	uint32_t count;
	uint32_t reserved;
	uint64_t chunk_bytes;
};
static_assert(sizeof(struct gpu_create) == 40, "create");

/* With one descriptor for each chunk, in this order. */
struct gpu_chunks {
	struct gpu_header header;
	uint32_t first; /* chunks of this CREATE that came before */
	uint32_t count;
	uint64_t ids[GPU_FDS_MAX]; /* (count,) above all former ids of this worker; the rest is 0 */
};
static_assert(sizeof(struct gpu_chunks) == 96, "chunks");

struct gpu_taken {
	struct gpu_header header;
	int32_t error; /* 0; -errno: the daemon has no use for more of this CREATE */
	uint32_t reserved;
};
static_assert(sizeof(struct gpu_taken) == 32, "taken");

struct gpu_release {
	struct gpu_header header;
	uint32_t count;
	uint32_t reserved;
	uint64_t ids[GPU_RELEASES_MAX]; /* (count,) the rest is 0 */
};
static_assert(sizeof(struct gpu_release) == 544, "release");

struct gpu_done {
	struct gpu_header header;
	int32_t error; /* 0 or -errno, with text */
	uint32_t held_count;
	uint64_t held_bytes; /* of all chunks that the worker holds now */
	struct zi_text text;
};
static_assert(sizeof(struct gpu_done) == 296, "done");

union gpu_message {
	struct gpu_header header; /* PING, PONG */
	struct gpu_hello hello;
	struct gpu_failed failed;
	struct gpu_seen seen;
	struct gpu_create create;
	struct gpu_chunks chunks;
	struct gpu_taken taken;
	struct gpu_release release;
	struct gpu_done done;
};

/* The length of a message of @type; 0: there is no such type. */
static inline uint32_t gpu_message_bytes(uint32_t type)
{
	switch (type) {
	case GPU_HELLO:
		return sizeof(struct gpu_hello);
	case GPU_FAILED:
		return sizeof(struct gpu_failed);
	case GPU_CREATE:
		return sizeof(struct gpu_create);
	case GPU_CHUNKS:
		return sizeof(struct gpu_chunks);
	case GPU_RELEASE:
		return sizeof(struct gpu_release);
	case GPU_TAKEN:
		return sizeof(struct gpu_taken);
	case GPU_SEEN:
		return sizeof(struct gpu_seen);
	case GPU_DONE:
		return sizeof(struct gpu_done);
	case GPU_PING:
	case GPU_PONG:
		return sizeof(struct gpu_header);
	default:
		return 0;
	}
}

static inline struct gpu_header gpu_header_of(enum gpu_type type, uint64_t cookie)
{
	return (struct gpu_header){ .magic = GPU_MAGIC,
		                    .version = GPU_VERSION,
		                    .type = (uint16_t)type,
		                    .bytes = gpu_message_bytes(type),
		                    .cookie = cookie };
}

/* Of a packet of @bytes: whether its header is sound, and its length that of its type. */
static inline bool gpu_message_is_whole(const union gpu_message *message, uint64_t bytes)
{
	const struct gpu_header *header = &message->header;

	return bytes >= sizeof(*header) && header->magic == GPU_MAGIC &&
	       header->version == GPU_VERSION && !header->reserved && header->bytes == bytes &&
	       gpu_message_bytes(header->type) == bytes;
}
