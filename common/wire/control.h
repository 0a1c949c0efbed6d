/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on the control socket (UNIX SOCK_SEQPACKET): one packet is one message, a fixed header
 * and a payload whose length the header's type fixes (or bounds). Floor 1.
 *
 * Order of a trainer's session:
 *   HELLO → HELLO          versions and feature bits
 *   ATTACH → ATTACHED      + descriptors: uplink, downlink (O_RDONLY), doorbell to the daemon
 *                          (eventfd), doorbell to the client (eventfd)
 *   LAYOUT … → (no reply)  units and parameters, in order, several packets
 *   MATERIALIZE → MATERIALIZED  + descriptors: param plane (O_RDONLY), this rank's gradients
 *   PARAM_WRITE_BEGIN → PARAM_WRITE  + descriptor: staging copy of the unit
 *   PARAM_WRITE_END → DONE
 *   BLOB_GET → BLOB
 *   LOAD → DONE            before MATERIALIZE: a new job begins with a snapshot
 *   SNAPSHOT → SNAPSHOTTED the committed step is kept
 *   TENSOR_OPEN → TENSOR_OPENED  + descriptor: this rank's memory for tensors
 *   COLL_OPEN → COLL_OPENED  after ATTACHED, with or without a model; waits for all ranks
 *                          + descriptors: verdicts (O_RDONLY), arenas, board of all ranks
 *   COLL_GROUP → COLL_GROUPED  waits for all ranks or members  + descriptor, for members: the board
 *   COLL_GROUP_FREE → DONE
 *   COLL_FAIL → ERROR      a call of a group failed: what its error is, and why
 *   COLL_ABORT → DONE      a member wants the group to end, and says why
 *   GPU_OPEN → GPU_OPENED, GPU_CHUNKS → GPU_CHUNKS  gpu.h
 *   DETACH → DONE          then the socket closes; a socket that closes without is a death
 *   DESTROY → DONE
 * Of zctl:  HELLO → HELLO, ADMIN → ADMIN_REPLY … (JSON text in pieces, the last with MORE unset)
 * Any request may be answered by ERROR (errno and text). The daemon may send NOTICE at any time.
 * Requests carry a sequence number that the reply repeats. One request at a time per session, but
 * for the LAYOUT stream.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/feature.h"

#define ZI_CONTROL_MAGIC     0x464e495au /* "ZINF" */
#define ZI_PROTOCOL_MAJOR    1u
#define ZI_PROTOCOL_MINOR    0u
#define ZI_MESSAGE_BYTES_MAX 65536u
#define ZI_MESSAGE_FDS_MAX   8u

/*
 * Of what libzinf, zinfd and zinf-net share for collectives: COLL_* messages, verdicts, boards,
 * slabs, the orders of zinf-net; and of what goes between the nodes of a job. One more with each
 * release that changes their layout or what they mean; who has another one opens no collectives,
 * and all else goes on. Sides that say none have version 1. The layout of this one is held by
 * tests/unit/wire/test_coll_version.c.
 */
#define ZI_COLL_VERSION 2u

/* In a job over several nodes: after a call's deadline zinfd asks the other nodes what keeps them,
 * and a node has this long to answer. */
#define ZI_NODE_ANSWER_NS 1000000000ull

#define ZI_IO_WEIGHT_MAX     1000u
#define ZI_IO_WEIGHT_DEFAULT 100u /* what 0 means */

enum zi_message_type {
	ZI_MESSAGE_HELLO = 1,
	ZI_MESSAGE_ATTACH = 2,
	ZI_MESSAGE_ATTACHED = 3,
	ZI_MESSAGE_LAYOUT = 4,
	ZI_MESSAGE_MATERIALIZE = 5,
	ZI_MESSAGE_MATERIALIZED = 6,
	ZI_MESSAGE_PARAM_WRITE_BEGIN = 7,
	ZI_MESSAGE_PARAM_WRITE = 8,
	ZI_MESSAGE_PARAM_WRITE_END = 9,
	ZI_MESSAGE_BLOB_GET = 10,
	ZI_MESSAGE_BLOB = 11,
	ZI_MESSAGE_DETACH = 12,
	ZI_MESSAGE_DESTROY = 13,
	ZI_MESSAGE_DONE = 14,
	ZI_MESSAGE_ERROR = 15,
	ZI_MESSAGE_NOTICE = 16,
	ZI_MESSAGE_ADMIN = 17,
	ZI_MESSAGE_ADMIN_REPLY = 18,
	ZI_MESSAGE_LOAD = 19,
	ZI_MESSAGE_SNAPSHOT = 20,
	ZI_MESSAGE_SNAPSHOTTED = 21,
	ZI_MESSAGE_TENSOR_OPEN = 22,
	ZI_MESSAGE_TENSOR_OPENED = 23,
	ZI_MESSAGE_COLL_OPEN = 24,
	ZI_MESSAGE_COLL_OPENED = 25,
	ZI_MESSAGE_COLL_GROUP = 26,
	ZI_MESSAGE_COLL_GROUPED = 27,
	ZI_MESSAGE_COLL_GROUP_FREE = 28,
	ZI_MESSAGE_COLL_FAIL = 29,
	ZI_MESSAGE_COLL_ABORT = 30,
	ZI_MESSAGE_STATE_OPEN = 31,
	ZI_MESSAGE_STATE_OPENED = 32,
	ZI_MESSAGE_STATE_READ = 33,
	ZI_MESSAGE_STATE_WRITE = 34,
	ZI_MESSAGE_STATE_COUNT = 35,
	ZI_MESSAGE_GPU_OPEN = 36,
	ZI_MESSAGE_GPU_OPENED = 37,
	ZI_MESSAGE_GPU_CHUNKS = 38,
	_ZI_MESSAGE_COUNT,
};

#define ZI_MESSAGE_MORE (1u << 0) /* ADMIN_REPLY, BLOB: another piece follows */

struct zi_message_header {
	uint32_t magic;
	uint16_t type;
	uint16_t flags;
	uint32_t bytes;    /* of the whole message, header included; equals the packet's length */
	uint32_t sequence; /* of the request; NOTICE: 0 */
};
static_assert(sizeof(struct zi_message_header) == 16, "message header");

struct zi_hello {
	struct zi_message_header header;
	uint16_t major, minor;
	uint32_t
		coll_version; /* under ZI_FEATURE_COLL_VERSION of the same HELLO: ZI_COLL_VERSION */
	uint64_t features;
	char program[ZI_NAME_BYTES]; /* "zinfd 0.1.0", for people */
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_hello) == 128, "hello");

/* What a side makes collectives by. */
static inline uint32_t zi_hello_coll_version(const struct zi_hello *hello)
{
	return hello->features & ZI_FEATURE_COLL_VERSION ? hello->coll_version : 1;
}

/* What all ranks of a job must agree on, and what the catalog keeps. */
struct zi_job_config {
	uint32_t param_dtype, grad_dtype; /* enum zi_dtype */
	uint32_t optimizer, schedule;
	uint32_t offload_optimizer, offload_param;
	uint32_t durability;
	uint32_t commit_interval; /* steps to a commit; 0 is 1. Under ZI_FEATURE_INTERVAL */
	uint64_t resident_bytes;
	uint64_t staging_bytes;
	uint64_t param_budget_bytes; /* of a pool of parameters; without one zero */
	uint32_t io_weight;          /* with ZI_FEATURE_IO_WEIGHT; else zero */
	uint32_t snapshot_interval;  /* steps; with ZI_FEATURE_PERIODIC; else zero, as is */
	uint32_t snapshot_keep;
	uint32_t reserved0;
	uint64_t reserved[1];
};
static_assert(sizeof(struct zi_job_config) == 80, "job configuration");

#define ZI_ATTACH_TAKEOVER (1u << 0)
/* The job must be there: ATTACH makes none. Under ZI_FEATURE_EXIST. */
#define ZI_ATTACH_MUST_EXIST (1u << 1)
#define ZI_ATTACH_FLAGS_ALL  (ZI_ATTACH_TAKEOVER | ZI_ATTACH_MUST_EXIST)

struct zi_attach {
	struct zi_message_header header;
	char job[ZI_NAME_BYTES];
	char incarnation[ZI_NAME_BYTES]; /* "" is none */
	uint32_t rank, world_size;
	uint32_t flags;
	uint32_t timeout_ms;
	struct zi_job_config config;
	uint32_t local_world_size; /* ranks on this node; 0: all. Under ZI_FEATURE_NODES */
	uint32_t reserved0;
	uint64_t reserved[3];
};
static_assert(sizeof(struct zi_attach) == 272, "attach");

struct zi_attached {
	struct zi_message_header header;
	uint64_t session_id;
	uint32_t ring_entries;
	uint32_t coll_timeout_ms; /* of collectives that give none. Under ZI_FEATURE_COLL_ABORT */
	uint64_t uplink_bytes, downlink_bytes;
	uint64_t incarnation_number;
	/* Under ZI_FEATURE_LOST; else zero. Where the job stood when the end of a daemon lost its
	 * state in memory; -1: nothing was lost. A job that is made anew of that name ends it. */
	int64_t lost_step;
	uint64_t reserved[3];
};
static_assert(sizeof(struct zi_attached) == 88, "attached");

/* One entry of the LAYOUT stream: a unit (kind 1; shape unused), a parameter of the newest unit
 * (kind 2), or a set of ranks that train the units behind it (kind 3; shape[0]: their mask). */
struct zi_layout_entry {
	uint16_t kind;
	uint16_t group; /* of a parameter, under ZI_FEATURE_TRAINING; else zero */
	uint32_t dim_count;
	char name[ZI_PARAM_NAME_BYTES];
	uint64_t shape[ZI_PARAM_DIMS_MAX];
};
static_assert(sizeof(struct zi_layout_entry) == 168, "layout entry");
#define ZI_LAYOUT_UNIT  1u
#define ZI_LAYOUT_PARAM 2u
#define ZI_LAYOUT_SET   3u /* under ZI_FEATURE_SETS; one of a known name goes on with that one */

#define ZI_SETS_MAX 256u

#define ZI_LAYOUT_FROZEN 0xffffu /* group: neither gradient nor update */

struct zi_layout {
	struct zi_message_header header;
	uint32_t entry_count; /* follow the struct */
	uint32_t reserved;
	/* struct zi_layout_entry entries[entry_count] */
};
static_assert(sizeof(struct zi_layout) == 24, "layout head");
#define ZI_LAYOUT_ENTRIES_MAX \
	((ZI_MESSAGE_BYTES_MAX - sizeof(struct zi_layout)) / sizeof(struct zi_layout_entry))

struct zi_materialize {
	struct zi_message_header header;
	uint32_t unit_count, param_count; /* of the LAYOUT stream that went before */
};
static_assert(sizeof(struct zi_materialize) == 24, "materialize");

#define ZI_RENDEZVOUS_BYTES 256u
#define ZI_INTERFACE_BYTES  16u
#define ZI_TOKEN_BYTES      64u

/* Where the nodes of a job meet that have not met for collectives; the same in all ranks. */
struct zi_rendezvous {
	uint32_t port;
	uint32_t reserved;
	char host[ZI_RENDEZVOUS_BYTES];     /* MASTER_ADDR */
	char interface[ZI_INTERFACE_BYTES]; /* "": found */
	char token[ZI_TOKEN_BYTES];         /* ZINF_TOKEN; "": none. Nobody logs it */
};
static_assert(sizeof(struct zi_rendezvous) == 344, "rendezvous");

/* MATERIALIZE with its tail, under ZI_FEATURE_STATE_NODES. */
struct zi_materialize_nodes {
	struct zi_materialize materialize;
	struct zi_rendezvous rendezvous;
};
static_assert(sizeof(struct zi_materialize_nodes) == 368, "materialize with its tail");

/* Gradients are buckets: the segment holds a few units, GRAD_ACQUIRE says where. */
#define ZI_MATERIALIZED_GRADS_POOLED (1u << 0)
/* Parameters come and go though offload_param is not nvme; with nvme they do in any case. */
#define ZI_MATERIALIZED_PARAMS_POOLED (1u << 1)
#define ZI_MATERIALIZED_FLAGS_ALL     (ZI_MATERIALIZED_GRADS_POOLED | ZI_MATERIALIZED_PARAMS_POOLED)

/* Units begin at multiples of slot_bytes in both planes; offsets follow from the layout: unit u of
 * elements e (padded) occupies align(e × dtype bytes, slot_bytes). */
struct zi_materialized {
	struct zi_message_header header;
	int64_t committed_step; /* -1: none */
	uint64_t slot_bytes;
	uint64_t param_bytes, grad_bytes; /* of the two planes' segments */
	uint32_t flags;                   /* ZI_MATERIALIZED_*, under ZI_FEATURE_TRAINING */
	uint32_t reserved0;
	/* Under ZI_FEATURE_TRAINING; else zero. */
	double loss_scale;     /* of the next step; 1 without a scaler */
	uint64_t update_count; /* steps that changed the parameters, of those in force */
	uint64_t reserved[1];
};
static_assert(sizeof(struct zi_materialized) == 80, "materialized");

struct zi_param_write_begin {
	struct zi_message_header header;
	uint32_t unit, reserved;
};
struct zi_param_write {
	struct zi_message_header header;
	uint64_t bytes; /* of the staging segment, at least the unit's padded bytes */
};
struct zi_param_write_end {
	struct zi_message_header header;
	uint32_t unit, root;
};
static_assert(sizeof(struct zi_param_write_end) == 24, "param write end");

/* BLOB: pieces of at most a message; `total_bytes` is repeated in each. */
struct zi_blob {
	struct zi_message_header header;
	uint64_t total_bytes;
	/* bytes */
};

/* LOAD: a snapshot by its job and name. Every rank sends the same. A job that has a step of its own
 * goes on from there. */
struct zi_load {
	struct zi_message_header header;
	char job[ZI_NAME_BYTES];
	char name[ZI_NAME_BYTES];
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_load) == 176, "load");

#define ZI_SNAPSHOT_AUTOMATIC (1u << 0) /* counts for retention */

/* SNAPSHOT: of this session's job. @name "": "step-N". @keep_count: automatic ones to keep, with
 * this one; 0 all. */
struct zi_snapshot {
	struct zi_message_header header;
	char name[ZI_NAME_BYTES];
	uint32_t flags, keep_count;
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_snapshot) == 120, "snapshot");

struct zi_snapshotted {
	struct zi_message_header header;
	char name[ZI_NAME_BYTES];
	int64_t step;
	uint64_t held_bytes;
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_snapshotted) == 128, "snapshotted");

/* TENSOR_OPEN: once in a session, after MATERIALIZED. */
struct zi_tensor_open {
	struct zi_message_header header;
	uint64_t budget_bytes; /* memory for tensors of this rank */
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_tensor_open) == 56, "tensor open");

struct zi_tensor_opened {
	struct zi_message_header header;
	uint64_t bytes; /* of the segment, whole pages */
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_tensor_opened) == 56, "tensor opened");

#define ZI_REASON_BYTES 160u

/* COLL_OPEN: once in a session; every rank asks for the same bytes. The rendezvous counts where the
 * job spans nodes, and is then the same in all ranks. With an error it only says that this rank
 * opens nothing: it is answered by ERROR at once, and so is every other rank's. */
struct zi_coll_open {
	struct zi_message_header header;
	uint64_t arena_bytes; /* of this rank's arena, more than 0 */
	uint32_t timeout_ms;  /* for this; 0: the session's */
	uint32_t rendezvous_port;
	char rendezvous_host[ZI_RENDEZVOUS_BYTES]; /* MASTER_ADDR; "": not set */
	char interface[ZI_INTERFACE_BYTES];        /* "": found */
	uint32_t call_timeout_ms; /* of calls of the group of all ranks, for people; 0: as above */
	int32_t error;            /* 0; -errno: see above, and `reason` */
	char token[ZI_TOKEN_BYTES];   /* ZINF_TOKEN; "": none. Nobody logs it */
	uint64_t asked_bytes;         /* of arena_bytes by the rank's program, for people */
	char reason[ZI_REASON_BYTES]; /* of the error, for people */
	uint64_t reserved[2];
};
static_assert(sizeof(struct zi_coll_open) == 560, "collectives open");

struct zi_coll_opened {
	struct zi_message_header header;
	uint64_t arena_bytes;   /* of each rank of this node, one after the other */
	uint64_t verdict_bytes; /* of the descriptors' regions, with … */
	uint64_t arenas_bytes;
	uint64_t board_bytes;
	uint32_t member_count; /* of the group of all ranks; this one is member `rank` */
	uint32_t node_count;   /* more than 1: the job spans nodes, and a slab is a descriptor */
	uint64_t slab_bytes;
	uint32_t node; /* this one */
	uint32_t reserved0;
	uint8_t nodes[ZI_WORLD_MAX]; /* of each rank */
	uint64_t reserved[2];
};
static_assert(sizeof(struct zi_coll_opened) == 152, "collectives opened");

#define ZI_GROUP_MASK_WORDS 4u
#define ZI_GROUP_MASK_RANKS (64u * ZI_GROUP_MASK_WORDS)

#define ZI_GROUP_NAME_BYTES 32u
/* COLL_GROUP: every rank names the same members; they are numbered in the order of their ranks.
 * With an error it only says that this rank makes none, as COLL_OPEN does. With a name only the
 * members send it. */
struct zi_coll_group {
	struct zi_message_header header;
	uint64_t members[ZI_GROUP_MASK_WORDS]; /* bit r % 64 of word r / 64: rank r */
	uint32_t timeout_ms;                   /* of its calls, for people; 0: the world's */
	int32_t error;                         /* 0; -errno: see above, and `reason` */
	char reason[ZI_REASON_BYTES];          /* of the error, for people */
	char name[ZI_GROUP_NAME_BYTES];        /* "": all ranks of the job send it */
};
static_assert(sizeof(struct zi_coll_group) == 248, "collective group");

struct zi_coll_grouped {
	struct zi_message_header header;
	uint32_t group; /* which line of the verdicts; below ZI_GROUPS_MAX */
	uint32_t self;  /* this rank's member; UINT32_MAX: none, and there is no descriptor */
	uint32_t member_count;
	uint32_t reserved0;
	uint64_t board_bytes; /* of the descriptor's region; 0 for no member */
	uint64_t slab_bytes;  /* of the second one's, where the group spans nodes; else 0 */
	uint64_t reserved[3];
};
static_assert(sizeof(struct zi_coll_grouped) == 72, "collective group made");

/* COLL_GROUP_FREE: this member makes no more calls there. */
struct zi_coll_group_free {
	struct zi_message_header header;
	uint32_t group; /* not the world's */
	uint32_t reserved0;
};
static_assert(sizeof(struct zi_coll_group_free) == 24, "collective group free");

/* COLL_FAIL: a member's call ended without its peers. Always answered by ERROR: the group's errno
 * and words, which whoever reports first decides. */
struct zi_coll_fail {
	struct zi_message_header header;
	uint32_t group;
	uint32_t sequence;   /* of the call; 0: one that has none (send, recv) */
	int32_t error;       /* -errno; 0: only the verdict was seen */
	uint32_t culprit;    /* member; UINT32_MAX: the daemon finds out */
	uint32_t timeout_ms; /* that the call had */
	uint8_t operation;   /* what was called, as in struct zi_board_call; 0: see the board */
	uint8_t dtype;
	uint8_t reduce_op;
	uint8_t reserved0;
	uint64_t element_count;
	uint32_t root; /* or the peer of send and recv */
	uint32_t reserved1;
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_coll_fail) == 88, "collective call failed");

#define ZI_ABORT_REASON_BYTES 128u

/* COLL_ABORT: every member's calls end, those under way and all later ones, with -ECONNABORTED and
 * words that name who asked. Of a group that is broken already nothing changes: DONE as well. */
struct zi_coll_abort {
	struct zi_message_header header;
	uint32_t group;
	uint32_t reserved0;
	char reason[ZI_ABORT_REASON_BYTES]; /* for people; "": none */
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_coll_abort) == 184, "collectives aborted");

/* DESTROY, DETACH, MATERIALIZE's kin without payload, BLOB_GET, DONE: header only. */

struct zi_error_message {
	struct zi_message_header header;
	int32_t error; /* -errno */
	uint32_t reserved;
	struct zi_text text;
};
static_assert(sizeof(struct zi_error_message) == 280, "error");

/* NOTICE: the group or session is over; the downlink's `broken` word says the same. */
struct zi_notice {
	struct zi_message_header header;
	int32_t error;
	uint32_t rank; /* who caused it; UINT32_MAX: the daemon */
	struct zi_text text;
};
static_assert(sizeof(struct zi_notice) == 280, "notice");

/* ADMIN: a command line of words ("status", "jobs train", …) as text, at most 1 KiB. */
#define ZI_ADMIN_COMMAND_BYTES 1024u
struct zi_admin {
	struct zi_message_header header;
	char command[ZI_ADMIN_COMMAND_BYTES];
};

/* ---- sending and receiving ---- */

/* Fills a header. @bytes: whole message. */
void zi_message_init(struct zi_message_header *header, enum zi_message_type type, uint32_t bytes,
                     uint32_t sequence);
/* Sends one packet with descriptors. -EAGAIN on a full non-blocking socket, -EPIPE when closed. */
int zi_message_send(int socket_fd, const struct zi_message_header *message, const int *fds,
                    uint32_t fd_count);
/* Receives one packet into @buffer ((ZI_MESSAGE_BYTES_MAX,) bytes, 8-aligned) and checks that it is
 * whole, not truncated, has magic, and header.bytes equals its length. Descriptors beyond
 * ZI_MESSAGE_FDS_MAX, or any when @fds is NULL, are closed. -EAGAIN nothing there, -ECONNRESET end
 * of stream, -EPROTO malformed (every received descriptor is closed). fds are O_CLOEXEC. */
int zi_message_receive(int socket_fd, void *buffer, int *fds, uint32_t *ret_fd_count);
/* -EPROTO unless the (received) message has exactly (fixed types) or at least (streamed types) the
 * bytes of its type, and its strings end within their fields. */
int zi_message_check(const struct zi_message_header *message, struct zi_text *text);

const char *zi_message_name(uint16_t type);

/* Listening and connecting. Paths longer than sun_path: -ENAMETOOLONG. A stale socket (nobody
 * listens) is replaced; a live one is -EADDRINUSE. The listener is non-blocking, the connected
 * socket blocks (connecting itself never does: -EAGAIN when the daemon's backlog is full). */
int zi_control_listen(const char *path, uint32_t mode, struct zi_text *text, int *ret_fd);
int zi_control_connect(const char *path, int *ret_fd);
/* The socket path by the rules of zinf_options.socket_path. */
int zi_control_default_path(char *buffer, size_t capacity);
