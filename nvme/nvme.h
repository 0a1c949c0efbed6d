/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes ↔ disk: a store (one preallocated file or block device), its free space, and an engine that
 * moves bytes (io_uring, O_DIRECT, registered buffers and files). Knows nothing of jobs. Floor 2.
 *
 *   nvme_store    the file: superblock, size, identity, lock. Opened once, any thread reads fields
 *   nvme_space    which runs of the store are free. Owner thread only
 *   nvme_engine   requests in flight. One per owner thread, never shared: the first that kicks owns
 *                 it; before that, any one thread may make it and register stores and buffers
 *
 * The first NVME_SUPERBLOCK_BYTES of a store are the superblock; extents lie behind it, offset and
 * length multiples of ZI_STORE_ALIGN_BYTES. Which extents are in use is the catalog's knowledge:
 * after a restart the space is rebuilt from it (nvme_space_claim()): what no commit names is free.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/text.h"
#include "common/base/types.h"

#define NVME_SUPERBLOCK_BYTES 4096u
#define NVME_STORE_VERSION    2u

/* ---- store (store.c) ---- */

struct nvme_store_options {
	const char *name;        /* of the tier */
	const char *path;        /* file (made when missing) or block device */
	uint64_t bytes;          /* size of a file that is made or grown; 0: as it is */
	bool is_direct_required; /* refuse a file system without O_DIRECT (tmpfs included) */
	bool is_known;           /* data lies in it: what is missing or empty is not made anew */
	/* Called while the file is written once in advance; may be NULL. What it returns, if not
	 * 0, ends that, and is returned: a file that was being made is gone then. */
	int (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
	void *progress_arg;
};

/* What was measured of a store (`zctl bench nvme`), or configured. 0: not known. */
struct nvme_tuning {
	uint32_t read_block_bytes, write_block_bytes;
	uint32_t read_depth, write_depth; /* blocks in flight */
	uint64_t read_bytes_per_s, write_bytes_per_s;
};

struct nvme_backend;
struct nvme_store {
	char name[ZI_NAME_BYTES];
	char *path;
	int fd;         /* O_DIRECT where is_direct */
	uint64_t bytes; /* usable end: offsets are below this */
	uint8_t uuid[16];
	bool is_direct;
	bool is_blocking; /* its file system may hold up whoever begins a request: FUSE */
	bool is_block_device;
	bool is_created;      /* by this open or a former one: the catalog must adopt it */
	uint32_t align_bytes; /* what the device asks for, at most ZI_STORE_ALIGN_BYTES */
	uint64_t timeout_ns;  /* what a request may take; 0: no limit. Set by who opened it */
	struct nvme_backend *flusher; /* the engine's, where it has a say in flushes; or NULL */
	uint32_t poll_block_bytes;    /* what goes to the device in one piece, with is_polled */
	/* Alone changes while the store is in use: the thread's that owns the engine. */
	struct nvme_tuning tuning;
	bool is_polled; /* completions are polled for, by an engine that can */
};

/* Opens or makes a store, takes its lock (flock: two daemons on one store are refused, -EBUSY),
 * checks the superblock (magic, version, bytes, checksum). A foreign file that is not empty and
 * has no superblock is refused with -EEXIST, never overwritten. A new file is written once in
 * advance (a third of the speed otherwise). Errors come with a sentence. */
int nvme_store_open(const struct nvme_store_options *options, struct zi_text *text,
                    struct nvme_store **ret_store);
struct nvme_store *nvme_store_close(struct nvme_store *store);
ZI_DEFINE_CLEANUP(struct nvme_store *, nvme_store_close)
/* Once the catalog has adopted a new store, and before anything is written in it: a daemon that
 * ends between making a store and adopting it finds it new again. */
int nvme_store_settle(struct nvme_store *store, struct zi_text *text);
/* What was written is on its medium. Blocks for as long as the disk likes: a thread for it. */
int nvme_store_flush(struct nvme_store *store);
/* From here on completions are polled for, if they can be: the device is asked, and one read is
 * tried. Before the engine uses it. -EOPNOTSUPP with why and what to do; others. (poll.c) */
int nvme_store_start_poll(struct nvme_store *store, struct zi_text *text);

/* ---- space (space.c) ---- */

struct nvme_space;
enum { _NVME_E_SUCCESS, NVME_E_FULL, NVME_E_BUSY };

int nvme_space_new(uint64_t store_bytes, struct nvme_space **ret_space);
struct nvme_space *nvme_space_free(struct nvme_space *space);
ZI_DEFINE_CLEANUP(struct nvme_space *, nvme_space_free)
/* One contiguous run, next-fit (a step's writes are sequential on a quiet store). NVME_E_FULL. */
int nvme_space_allocate(struct nvme_space *space, uint64_t bytes, struct zi_extent *ret_extent);
/* The next ones, of @bytes together, go to the shortest run that holds them all, if there is. */
void nvme_space_aim(struct nvme_space *space, uint64_t bytes, bool is_end);
/* Gives a run back. Asserts that it was allocated (whole). Zero-length extents are ignored. */
void nvme_space_release(struct nvme_space *space, const struct zi_extent *extent);
/* Recovery: marks a run as in use. -EUCLEAN when misaligned, outside, or claimed before. */
int nvme_space_claim(struct nvme_space *space, const struct zi_extent *extent);
uint64_t nvme_space_free_bytes(const struct nvme_space *space);
uint64_t nvme_space_total_bytes(const struct nvme_space *space);

/* ---- engine (engine.c, schedule.c, flow.c, cancel.c; uring.c, threads.c, faulty.c) ---- */

struct nvme_engine;
struct nvme_io;
struct nvme_port;
typedef void (*nvme_io_fn)(struct nvme_io *io);

enum nvme_direction { NVME_READ = 0, NVME_WRITE = 1 };

/* Whose requests they are (a job's, say). Flows that want the same store at once have it in
 * proportion to their weights, by bytes; one that is alone has all of it. (flow.c) */
struct nvme_flow;
#define NVME_FLOW_WEIGHT_MAX     1000u
#define NVME_FLOW_WEIGHT_DEFAULT 100u

/* @weight: 1 to NVME_FLOW_WEIGHT_MAX; 0: NVME_FLOW_WEIGHT_DEFAULT. -EINVAL, -ENOMEM. */
int nvme_flow_new(uint32_t weight, struct nvme_flow **ret_flow);
/* Asserts that nothing of it is queued. Before the engine that it was used with. Owner thread. */
struct nvme_flow *nvme_flow_free(struct nvme_flow *flow);
ZI_DEFINE_CLEANUP(struct nvme_flow *, nvme_flow_free)
/* From the next block on. Values as above. */
int nvme_flow_weigh(struct nvme_flow *flow, uint32_t weight);
uint32_t nvme_flow_weight(const struct nvme_flow *flow);
/* Bytes handed to the kernel so far, whatever became of them. */
uint64_t nvme_flow_bytes(const struct nvme_flow *flow, enum nvme_direction direction);

/* A request: embedded in its owner, which must leave it and its buffer alone until `done` ran.
 * Split into blocks inside; done is called exactly once, from nvme_engine_reap(), never from
 * nvme_engine_submit() or nvme_engine_cancel(). result: 0 when every byte moved, else the first
 * -errno; what lies in the buffer, or in the extent, is then undefined.
 *
 * Past its deadline a request is given up like one that is cancelled, with -ETIMEDOUT. The kernel
 * cannot take back every block: `done` waits for those, so that the buffer is nobody else's while a
 * device may still write into it. Meanwhile is_late is set, and the engine's `late` has told so:
 * the owner may report the stall, answer who waits, and work elsewhere; it may not touch, reuse,
 * unregister or free the buffer, or release the extent that is written. */
struct nvme_io {
	enum nvme_direction direction;
	struct nvme_store *store;
	uint64_t offset_bytes;
	void *buffer; /* aligned to ZI_STORE_ALIGN_BYTES */
	uint64_t bytes;
	uint64_t deadline_ns; /* absolute; 0: none */
	nvme_io_fn done;
	struct nvme_flow *flow; /* NULL: the engine's own, of default weight */
	bool is_urgent;         /* goes before those of its flow that are not, in its direction */
	/* results */
	int result;
	bool is_late; /* the deadline passed before the last block came back */
	uint64_t submitted_ns, finished_ns;
	/* private to the engine */
	bool is_active;   /* from submit until the last block is back */
	bool is_given_up; /* cancelled or late */
	struct zi_list link, deadline_link;
	struct nvme_port *port;
	uint64_t next_bytes; /* blocks handed out */
	uint64_t done_bytes;
	uint32_t inflight_count;
};

struct nvme_engine_options {
	const char *backend; /* "auto", "io_uring", "threads", or "faulty:SPEC" (tests, by hand) */
	/* Blocks in flight of all stores together, 0: 32. As many of each direction are a store's,
	 * and blocks have these sizes (0: 1 MiB), where its tuning says nothing. */
	uint32_t depth;
	uint32_t read_block_bytes, write_block_bytes;
	/* Both from the owner thread; may be NULL. Call nvme_engine_reap() at @deadline_ns, which
	 * replaces what was asked before; one timer does. Without, deadlines pass when something
	 * else comes back. */
	void (*alarm)(void *arg, uint64_t deadline_ns);
	/* @io missed its deadline; `done` follows when its blocks are back. Not to submit in. */
	void (*late)(void *arg, const struct nvme_io *io);
	/* Owner thread; may be NULL. The device of @store takes no polled requests any more: it
	 * goes on with interrupts, nothing is lost. Not to submit in. */
	void (*unpolled)(void *arg, const struct nvme_store *store);
	void *arg;
	bool has_poll; /* stores with is_polled may come: a second ring is made */
};

struct nvme_engine_stats {
	uint64_t read_bytes, write_bytes, read_count, write_count, error_count, short_count;
	uint64_t cancel_count, late_count; /* requests; also in error_count when they are over */
	uint64_t held_count;               /* late ones whose blocks are not back, at present */
	uint64_t registered_bytes;         /* buffers registered with the kernel */
	uint64_t unregistered_bytes;       /* asked for but refused (memlock): I/O works, slower */
};

/* -ENOSYS/-EPERM of io_uring with backend "auto" falls back to "threads". */
int nvme_engine_new(const struct nvme_engine_options *options, struct zi_text *text,
                    struct nvme_engine **ret_engine);
/* Asserts that nothing is in flight. */
struct nvme_engine *nvme_engine_free(struct nvme_engine *engine);
ZI_DEFINE_CLEANUP(struct nvme_engine *, nvme_engine_free)
const char *nvme_engine_backend(const struct nvme_engine *engine);
/* Whether stores with is_polled are polled: has_poll was set, and the backend is io_uring. */
bool nvme_engine_can_poll(const struct nvme_engine *engine);
/* A descriptor, readable when nvme_engine_reap() has something to do (loop source, level). */
int nvme_engine_fd(const struct nvme_engine *engine);
/* Its tuning holds from here on. A kernel that has no registered files is no error. -EEXIST,
 * -ENOSPC (NVME_ENGINE_STORES_MAX). */
int nvme_engine_register_store(struct nvme_engine *engine, struct nvme_store *store);
#define NVME_ENGINE_STORES_MAX 32u
/* Before nvme_store_close(), unless the engine is freed first. */
void nvme_engine_unregister_store(struct nvme_engine *engine, struct nvme_store *store);
/* A registered store has another tuning from its next block on. -EINVAL: not registered, a block
 * that is no multiple of ZI_STORE_ALIGN_BYTES up to 64 MiB. A depth beyond the engine's is cut. */
int nvme_engine_tune(struct nvme_engine *engine, struct nvme_store *store,
                     const struct nvme_tuning *tuning);
/* Registers memory for I/O without page pinning per request, in pieces of at most 1 GiB. A refusal
 * (memlock) is no error: counted in unregistered_bytes. Nothing may be in flight on it at
 * unregister. */
int nvme_engine_register_buffer(struct nvme_engine *engine, void *base, uint64_t bytes);
void nvme_engine_unregister_buffer(struct nvme_engine *engine, void *base);
/* 0, or -EINVAL misaligned or outside the store. Never -EAGAIN: requests queue inside. */
int nvme_engine_submit(struct nvme_engine *engine, struct nvme_io *io);
/* Gives a request up: blocks that wait never go out, those in flight are asked back of the kernel
 * and waited for. `done` runs from a later nvme_engine_reap(), with -ECANCELED unless an error came
 * first. A request that is over already keeps its result. Also from a `done`. */
void nvme_engine_cancel(struct nvme_engine *engine, struct nvme_io *io);
/* Pushes what is queued to the kernel (batched: call once after several submits). */
void nvme_engine_kick(struct nvme_engine *engine);
/* Completes what is finished, calling `done`; gives up what is late; then kicks. Number of requests
 * completed. */
uint32_t nvme_engine_reap(struct nvme_engine *engine);
/* As above, waiting for at least one completion when something is in flight (drain, benches). */
uint32_t nvme_engine_wait(struct nvme_engine *engine);
/* Waits until nothing is in flight. */
void nvme_engine_drain(struct nvme_engine *engine);
uint32_t nvme_engine_inflight_count(const struct nvme_engine *engine);
void nvme_engine_stats(const struct nvme_engine *engine, struct nvme_engine_stats *ret_stats);
