/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU as the daemon sees it: its facts, and the requests for chunks of its memory. Floor 2, shard
 * thread.
 *
 * The process that owns the chunks (zinf-gpu) is reached through a table of functions, which
 * daemon/ fills in: this folder and those above it know no worker. The functions have one request
 * at a time; the others wait here, in the order in which they came.
 *
 *             create, release        the one before is answered        dev_gpu_answer()
 *   (caller's) ────────────▶ WAITING ──────────────────────────▶ SERVED ────────────▶ (caller's)
 *                                 a release while the owner │                              ▲
 *                                                 is ending └▶ PARKED ─────────────────────┘
 *                                                                   the owner has gone
 *
 * The owner may have been killed and live on in a call of its driver. Then it is ending: what it
 * holds is not free. Releases of its chunks are PARKED until it has gone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/list.h"
#include "common/base/text.h"

#define DEV_GPU_UUID_BYTES 48u
#define DEV_GPU_NAME_BYTES 96u
#define DEV_GPU_PCI_BYTES  16u
#define DEV_GPU_CHUNKS_MAX 1024u /* of a request */

/* Of dev_gpu_ops.release: the chunks ended with the process that made them. */
#define DEV_GPU_E_GONE 1
/* Of dev_gpu_ops.release: that process is ending, and holds the chunks until it has gone. */
#define DEV_GPU_E_ENDING 2

struct dev_gpu;
struct dev_gpu_request;

/* Texts end, and have no control characters. */
struct dev_gpu_facts {
	char uuid[DEV_GPU_UUID_BYTES]; /* "GPU-…" or "MIG-…" */
	char name[DEV_GPU_NAME_BYTES];
	char pci[DEV_GPU_PCI_BYTES];
	uint64_t bytes;             /* memory of the GPU */
	uint64_t granularity_bytes; /* chunks are multiples of it; not 0 */
	int32_t driver_version;     /* 12040: CUDA 12.4 */
	uint32_t capability;        /* 90: compute capability 9.0 */
	int32_t node;               /* index into topo's nodes; -1: unknown */
};

struct dev_gpu_chunk {
	uint64_t id;   /* the owner's */
	uint64_t life; /* number of the owning process that made it */
	int fd;        /* to be imported by a process that computes */
};

typedef void (*dev_gpu_fn)(struct dev_gpu_request *request);

/* The caller's, and in its place until `done`. */
struct dev_gpu_request {
	dev_gpu_fn done;              /* once; may make other requests */
	uint32_t count;               /* of chunks: 1 to DEV_GPU_CHUNKS_MAX */
	uint64_t chunk_bytes;         /* create */
	struct dev_gpu_chunk *chunks; /* (count,) create: written; release: read, of one life */
	int error;                    /* of `done`: 0 or -errno, with `text` */
	struct zi_text text;

	/* private */
	bool is_release;
	bool may_hold; /* a create that was SERVED when its owner was killed */
	struct zi_list link;
};

/* Each has one request until it calls dev_gpu_answer(), which it does not from within. */
struct dev_gpu_ops {
	/* All or none; each chunk has a descriptor, the caller's. 0; -errno with request->text. */
	int (*create)(void *arg, struct dev_gpu_request *request);
	/* The owner's hold ends; descriptors stay the caller's. 0; DEV_GPU_E_GONE;
	 * DEV_GPU_E_ENDING; -errno with request->text. */
	int (*release)(void *arg, struct dev_gpu_request *request);
};

struct dev_gpu {
	struct dev_gpu_facts facts;
	bool is_up;          /* its process runs; else a request starts it */
	struct zi_text down; /* why its process does not run */
	pid_t ending_pid;    /* of the process that was killed and has not gone; 0: none */
	uint64_t killed_ns;  /* when, on the clock */

	/* private */
	const struct dev_gpu_ops *ops;
	void *arg;
	struct zi_list requests;        /* WAITING, oldest first */
	struct dev_gpu_request *served; /* NULL: none */
	struct zi_list parked;          /* PARKED */
	bool is_closed;
};

/* @facts: copied. @ops: of @arg; outlives the GPU. */
void dev_gpu_init(struct dev_gpu *gpu, const struct dev_gpu_facts *facts,
                  const struct dev_gpu_ops *ops, void *arg);
/* Asserts that no request is left. */
void dev_gpu_deinit(struct dev_gpu *gpu);

/* 0 accepted, and `done` comes; -errno with request->text. */
int dev_gpu_create(struct dev_gpu *gpu, struct dev_gpu_request *request);
/* `done` comes, possibly from within. With an error the owner may still hold some. */
void dev_gpu_release(struct dev_gpu *gpu, struct dev_gpu_request *request);
/* @request: of a create that failed. An owner that is ending may hold some of its chunks: then
 * `done` comes without an error when that process has gone, else from within. */
void dev_gpu_await_gone(struct dev_gpu *gpu, struct dev_gpu_request *request);
/* True: it was WAITING, and is the caller's again without a `done`. */
bool dev_gpu_cancel(struct dev_gpu *gpu, struct dev_gpu_request *request);

/* ---- for whoever fills in the table ---- */

/* The request that is SERVED has ended. @text: of an error; else NULL. */
void dev_gpu_answer(struct dev_gpu *gpu, int error, const struct zi_text *text);
void dev_gpu_set_up(struct dev_gpu *gpu);
void dev_gpu_set_down(struct dev_gpu *gpu, const struct zi_text *text);
/* Its process was killed at @killed_ns, and lives on. Before the answer of what is SERVED. */
void dev_gpu_set_ending(struct dev_gpu *gpu, pid_t pid, uint64_t killed_ns);
/* It has gone: what is PARKED ends. */
void dev_gpu_set_gone(struct dev_gpu *gpu);
/* The owner is about to end for good, with all chunks: no function of the table is called any more.
 * The request that is SERVED still has its answer. */
void dev_gpu_close(struct dev_gpu *gpu);
