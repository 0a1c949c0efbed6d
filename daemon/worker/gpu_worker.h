/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinf-gpu seen from the daemon: the proxy of the process (process.h) that owns chunks of one GPU,
 * spoken to in the messages of gpu.h. Floor 3. A worker belongs to its loop's thread. The daemon
 * loads no driver: what it knows of a GPU is what zinf-gpu said.
 *
 * A request starts the process where it is DOWN. Requests are served one after the other. The end
 * of the process fails its requests, with the GPU and the reason, and ends its hold on all chunks.
 * Each start has a number (its life), and a chunk belongs to one life.
 *
 * A process that was killed in a call of the driver may live on: it is ENDING, and holds its chunks
 * until it has gone. No other process is started before. Requests for chunks wait for that, and
 * fail with -EAGAIN once the process is stuck.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/worker/gpu.h"
#include "daemon/worker/process.h"

struct gpu_worker;
struct gpu_request;
struct spawn_options;
struct spawned;

/* Of gpu_worker_release(): the chunks ended with the process that made them. */
#define GPU_WORKER_E_GONE 1
/* Of gpu_worker_release(): the process that made the chunks was killed, and holds them until it has
 * gone. */
#define GPU_WORKER_E_ENDING 2
/* Of gpu_worker_stop(): the process was killed and has not ended. */
#define GPU_WORKER_E_STUCK 3

#define GPU_WORKER_PATH_BYTES   256u
#define GPU_WORKER_REQUESTS_MAX 64u

enum gpu_worker_state { GPU_WORKER_DOWN, GPU_WORKER_STARTING, GPU_WORKER_UP, GPU_WORKER_ENDING };

/* What a GPU is, checked: texts end, have no control characters, and the UUID is one. */
struct gpu_facts {
	char uuid[ZI_GPU_UUID_BYTES];
	char name[ZI_GPU_NAME_BYTES];
	char pci[ZI_GPU_PCI_BYTES];
	uint64_t bytes;             /* memory of the GPU, what other processes hold included */
	uint64_t granularity_bytes; /* chunks are multiples of it */
	uint32_t index, count;      /* number of the GPU for zinf-gpu, and of GPUs it sees */
	int32_t driver_version;     /* 12040: CUDA 12.4 */
	uint32_t capability;        /* 90: compute capability 9.0 */
	int32_t compute_mode;       /* ZI_CUDA_MODE_... */
	int32_t host_numa;          /* -1: unknown */
	bool has_vmm, has_posix_fds, is_mig;
};

struct gpu_chunk {
	uint64_t id;   /* zinf-gpu's */
	uint64_t life; /* of the process that made it */
	int fd;        /* for cuMemImportFromShareableHandle() */
};

/* Exactly once for every request that was accepted, from the loop; it may make others, and does not
 * free the worker. So the next two. */
typedef void (*gpu_request_fn)(struct gpu_request *request);
/* The GPU is open, after each start. From the loop. */
typedef void (*gpu_greeted_fn)(void *arg, const struct gpu_facts *facts);
/* The driver is open, and sees so many GPUs, whether this one will be opened or not. From the loop,
 * once for each start. */
typedef void (*gpu_seen_fn)(void *arg, uint32_t count);
/* The process has gone or is ENDING: @text says why, @error as the requests had it. From the loop,
 * after its requests' own calls. */
typedef void (*gpu_ended_fn)(void *arg, int error, const struct zi_text *text);
/* The process is ENDING, and its requests fail next; or it was ENDING, and has gone. From the
 * loop. */
typedef void (*gpu_ending_fn)(void *arg, bool is_ending);
/* The process is stuck, as @text says: it was killed linger_ns ago, and has not ended. From the
 * loop. */
typedef void (*gpu_stuck_fn)(void *arg, const struct zi_text *text);

/* The caller's, and in its place until `done`. */
struct gpu_request {
	gpu_request_fn done;
	uint32_t count;           /* of chunks */
	uint64_t chunk_bytes;     /* CREATE */
	struct gpu_chunk *chunks; /* (count,) CREATE: written; RELEASE: read. The caller's */
	int error;                /* of `done`: 0 or -errno, with `text` */
	struct zi_text text;

	/* The worker's own. */
	struct process_request base;
	uint16_t type; /* GPU_CREATE, GPU_RELEASE */
	bool is_sent;
	uint32_t passed;  /* chunks that came, or whose release is answered */
	uint32_t portion; /* RELEASE: chunks of the message that is not answered */
};

struct gpu_worker_options {
	const char *program;    /* path of zinf-gpu; kept by the caller, as all texts */
	const char *driver;     /* path of the CUDA driver; NULL or "": the system's */
	const char *device;     /* "GPU-…", "MIG-…" or the number of a GPU: "0" */
	uint64_t reserve_bytes; /* memory of the GPU that zinf leaves alone */
	uint64_t ping_ns;       /* between two pings; 0: 5 s */
	uint64_t pong_ns;       /* the time for an answer to a ping; 0: 30 s */
	uint64_t greeting_ns;   /* the time to open the driver; 0: 120 s */
	uint64_t request_ns;    /* between two answers to a request; 0: 60 s */
	uint64_t linger_ns;     /* from a kill until the process is stuck; 0: 5 s */
	uint64_t stop_ns;       /* that gpu_worker_stop() waits, from the kill on; 0: 5 s */
	uint32_t starts_max;    /* starts within starts_ns; 0: 3 */
	uint64_t starts_ns;     /* 0: 60 s */
	gpu_greeted_fn greeted; /* may be NULL, as the next four */
	gpu_seen_fn seen;
	gpu_ended_fn ended;
	gpu_ending_fn ending;
	gpu_stuck_fn stuck;
	void *arg;
	/* NULL: spawn_program(). A test double's place. */
	int (*spawn)(const struct spawn_options *options, struct zi_text *text,
	             struct spawned *ret_spawned);
};

/* @ret_worker: gpu_worker_free(); DOWN. Return: 0, -ENOMEM. */
int gpu_worker_new(struct zi_loop *loop, const struct gpu_worker_options *options,
                   struct gpu_worker **ret_worker);
/* Kills the process, and waits until the kernel has taken it away, but stop_ns at most; requests
 * fail with -ESHUTDOWN. `ended`, `ending` and `stuck` do not come any more. Return: 0;
 * GPU_WORKER_E_STUCK with @text. */
int gpu_worker_stop(struct gpu_worker *worker, struct zi_text *text);
/* As gpu_worker_stop() before. NULL-safe. Return: NULL. */
struct gpu_worker *gpu_worker_free(struct gpu_worker *worker);

/* Nothing to do unless DOWN; where it is ENDING it starts after that. Return: 0; -EAGAIN too many
 * starts, or the process is stuck; -ENOENT the program is not installed, -EACCES, …; with @text. */
int gpu_worker_start(struct gpu_worker *worker, struct zi_text *text);
/* Kills the process unless it was killed: as if it had crashed, with @text as the reason. */
void gpu_worker_kill(struct gpu_worker *worker, const struct zi_text *text);

/* After the end of the process ENDING or DOWN, until the next start. */
enum gpu_worker_state gpu_worker_state(const struct gpu_worker *worker);
/* 0 when DOWN. */
pid_t gpu_worker_pid(const struct gpu_worker *worker);
/* NULL before the first greeting. They stay after the end of the process. */
const struct gpu_facts *gpu_worker_facts(const struct gpu_worker *worker);
/* The number of the present or last start, from 1 on; 0 before the first one. */
uint64_t gpu_worker_life(const struct gpu_worker *worker);
/* Bytes that the process holds, as it said last; 0 when DOWN. */
uint64_t gpu_worker_held_bytes(const struct gpu_worker *worker);
/* When it was killed, on the clock. Precondition: it is ENDING. */
uint64_t gpu_worker_killed_ns(const struct gpu_worker *worker);

/**
 * gpu_worker_create() - ask for chunks
 * @request: done, count, chunk_bytes and chunks are the caller's
 *
 * All or none: after an error no chunk is held and no descriptor is open; else each chunk has a
 * descriptor, which is the caller's.
 * Return: 0 accepted: @request->done comes, with -ENOMEM where the GPU has no room, -EINVAL,
 * -ENOSPC, -EIO the process died, -ETIMEDOUT it hung, …; -EBUSY too many requests, -EINVAL,
 * -ENOSPC, or as gpu_worker_start(), with @request->text.
 */
int gpu_worker_create(struct gpu_worker *worker, struct gpu_request *request);
/**
 * gpu_worker_release() - end the worker's hold on chunks
 * @request: done, count and chunks are the caller's. The chunks are of one life; their descriptors
 * stay the caller's
 *
 * Return: 0 accepted: @request->done comes; -EBUSY too many requests; GPU_WORKER_E_GONE;
 * GPU_WORKER_E_ENDING. A process that is killed after 0 still holds them while it is ENDING.
 */
int gpu_worker_release(struct gpu_worker *worker, struct gpu_request *request);
