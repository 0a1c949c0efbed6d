/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the daemon and zinf-net, the worker by which one job's nodes exchange data: messages on a
 * socket pair (SOCK_SEQPACKET), one packet each. Floor 3. Both ends are of one release, which
 * the first message shows, and the worker serves one job alone; still the daemon believes none of
 * its lengths.
 *
 *   daemon                        worker
 *              ◀── HELLO          it runs; its cookie is ZI_COLL_VERSION
 *   JOIN       ──▶     DONE       find the others through the store, connect to all
 *   MAP + fd   ──▶     DONE       a slab: memory that the ranks of this node and the worker share
 *   EXCHANGE   ──▶     DONE       one operation across the nodes, on a slab
 *   MEET       ──▶     DONE       before JOIN: which ranks are on which node; or why this one's
 *                                 ranks do not come: done when nobody is left to be told
 *   AGREE      ──▶     DONE       before JOIN: whether all nodes would make the same group
 *   FOLLOW     ──▶     DONE       the calls of a group, as its ranks make them: done at its end
 *   TALK       ──▶     DONE       what daemons say to each other goes both ways: done at its end
 *   TALK_BATCH ──▶                some of it (talk.h); what comes before TALK or after goes nowhere
 *              ◀── TALK_BATCH
 *              ◀── LATE           a call's time has passed, and a rank of this node has not come
 *              ◀── LATE_MESSAGE   so has a message's
 *              ◀── ASKED          another node waits in a call for ranks of this one in vain
 *   ABORT      ──▶                what runs fails, here and on all other nodes, with this text
 *   PING       ──▶     PONG       at once, also while an operation runs
 *
 * Operations run in the order they come, which is the same on all nodes: each has the next
 * sequence number. One that fails breaks the mesh: later ones fail with its text, until a JOIN with
 * a higher epoch makes a new one. The daemon's end closing ends the worker.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/worker/place.h"
#include "daemon/worker/store.h"
#include "daemon/worker/subtree.h"
#include "daemon/worker/talk.h"

#define NET_SOCKET_FD 3 /* the worker's end */
#define NET_SLABS_MAX 8u
#define NET_QUEUE_MAX 16u /* requests that the worker has not answered */
/* Threads of a worker that are busy while its group's ranks wait: of operations, and Gloo's. */
#define NET_BUSY_THREADS 2u

enum net_type {
	NET_HELLO = 1,
	NET_JOIN = 2,
	NET_MAP = 3,
	NET_EXCHANGE = 4,
	NET_ABORT = 5,
	NET_PING = 6,
	NET_PONG = 7,
	NET_DONE = 8,
	NET_MEET = 9,
	NET_FOLLOW = 10,
	NET_LATE = 11, /* a header: see net_late_cookie() */
	NET_AGREE = 12,
	NET_LATE_MESSAGE = 13,
	NET_ASKED = 14,
	NET_TALK = 15, /* a header. After JOIN, and MAP of NET_SLAB_TALK and NET_SLAB_PARAM */
	NET_TALK_BATCH = 16,
	_NET_TYPE_COUNT,
};

struct net_header {
	uint32_t type;   /* enum net_type */
	uint32_t bytes;  /* of the message; the packet's length */
	uint64_t cookie; /* of a request; DONE and PONG repeat it */
};

/* The way to the job's store, and from there to the other nodes. */
struct net_way {
	struct place place;
	char interface[PLACE_INTERFACE_BYTES]; /* "": the one that the way to the place leaves by */
	char job[ZI_NAME_BYTES], incarnation[ZI_NAME_BYTES];
	char token[STORE_TOKEN_BYTES];
	uint32_t run; /* which store it is, once nodes have met; 0: whichever serves the job */
	uint32_t reserved;
};

/* The node of rank 0 serves the store; nodes are numbered in the order of their first ranks. */
struct net_meet {
	struct net_header header;
	struct net_way way;
	uint64_t ranks; /* bits: those of this node */
	uint32_t world_size;
	/* Openings of this start of the job, 1, 2, …: each node's n-th is the others' n-th. Those
	 * that failed here: all before this one; this one too, and the others hear why. */
	uint32_t opening, failed;
	int32_t error; /* of the last that failed, with @text */
	uint64_t timeout_ms;
	uint64_t arena_bytes,
		asked_bytes; /* of each rank: the same on all nodes; what it asked for */
	struct zi_text text;
};

#define NET_JOIN_AS_CLIENT (1u << 0) /* another worker serves the store, even of node 0 */
/* … on a node that is none of these: its end is not theirs. */
#define NET_JOIN_STORE_ELSEWHERE (1u << 1)

struct net_join {
	struct net_header header;
	struct net_way way;
	uint32_t node, node_count; /* node 0 serves the store, unless flags say other things */
	uint64_t epoch;            /* 1, and higher each time the mesh is made anew */
	uint64_t timeout_ms;
	uint32_t flags, reserved;
};

/* What this node's ranks would make, or why they make nothing. Nodes as MEET numbered them. */
struct net_agree {
	struct net_header header;
	struct net_way way;
	uint32_t node, node_count;
	uint64_t epoch;   /* counts what is made, alike on all nodes */
	uint64_t members; /* ranks: bits */
	uint32_t world_size;
	int32_t error; /* 0, or -errno with @text: nothing can be made here */
	uint64_t timeout_ms;
	uint8_t nodes[ZI_WORLD_MAX]; /* (world_size,) of each rank, for people */
	struct zi_text text;
};

struct net_map {
	struct net_header header;
	uint32_t slab; /* below NET_SLABS_MAX; takes the place of a former one */
	uint32_t reserved;
	uint64_t bytes; /* of the descriptor that comes with it; 0, without one: unmap */
};

enum net_kind {
	NET_REDUCE = 1, /* finish the tree from the nodes' partials */
	NET_MOVE = 2,   /* bytes from each node to each other; of none: a barrier */
	_NET_KIND_COUNT,
};

/* Who has the result of NET_REDUCE. */
enum net_mode {
	NET_ALL = 1,       /* all nodes, of all elements: all_reduce */
	NET_ROOT = 2,      /* one node: reduce */
	NET_SCATTER = 3,   /* of rank r's block the node of rank r: reduce_scatter */
	NET_BROADCAST = 4, /* all but the root: its bytes as they are */
	_NET_MODE_COUNT,
};

struct net_range {
	uint64_t offset_bytes, bytes; /* in the slab */
};

/*
 * NET_REDUCE: nodes[rank] is the placement of rank_count ranks (of NET_BROADCAST: one, the root's).
 * This node's partials (subtree.h) lie from partial_offset_bytes on, one leaf after the other, each
 * begun at a multiple of ZI_LINE_BYTES; the result, element_count of dtype, at result_offset_bytes.
 * NET_SCATTER: element_count is a multiple of rank_count; the node's own blocks are written alone.
 */
struct net_exchange {
	struct net_header header;
	uint32_t kind, mode; /* enum net_kind, net_mode */
	uint32_t dtype, op;
	uint32_t rank_count, root; /* root: a node */
	uint32_t slab;
	float average;
	uint64_t sequence; /* 1, 2, … since the join */
	uint64_t element_count;
	uint64_t partial_offset_bytes, result_offset_bytes;
	uint64_t timeout_ms;
	uint8_t nodes[SUBTREE_RANKS_MAX];
	struct net_range sends[SUBTREE_NODES_MAX];    /* NET_MOVE: to each node, own excepted */
	struct net_range receives[SUBTREE_NODES_MAX]; /* from each */
};

/* Slabs of a group that is followed: common/wire/far.h, board.h, verdict.h; the ranks' arenas. Then
 * those of TALK, of which either may be missing. */
enum net_slab {
	NET_SLAB_DATA = 0,
	NET_SLAB_BOARD = 1,
	NET_SLAB_VERDICTS = 2,
	NET_SLAB_ARENAS = 3,
	NET_SLAB_OWN = 4,   /* the worker's own, which no daemon maps: out of the ranks' reach */
	NET_SLAB_TALK = 5,  /* on its way to be summed, or summed */
	NET_SLAB_PARAM = 6, /* the job's parameters */
};

/* After JOIN and four MAPs. The worker is the member behind those of its node on their board. */
struct net_follow {
	struct net_header header;
	uint32_t group; /* the daemon's number, for people */
	uint32_t member_count;
	uint8_t nodes[ZI_WORLD_MAX]; /* (member_count,) as JOIN numbers them */
	uint8_t ranks[ZI_WORLD_MAX]; /* (member_count,) for people */
};

/* Of LATE_MESSAGE: the time of a member on another node has passed, to whom one of this node's
 * sends nothing, or from whom it does not take what is sent. Members of the whole group. */
struct net_late_message {
	struct net_header header;
	uint32_t waiting, absent;
	uint32_t is_send; /* the waiting one's: 1 a send, 0 a receive */
	uint32_t dtype;
	uint64_t element_count;
	uint32_t timeout_ms, reserved;
};

/* Also what one node asks another through the store; then the header is all zero. Who answers does
 * so by an ABORT that names its ranks, and what they do instead. Numbers alone: all is hearsay. */
struct net_asked {
	struct net_header header;
	uint32_t sequence; /* of the call */
	uint32_t operation, dtype, reduce_op;
	uint32_t root; /* member of the whole group */
	uint32_t timeout_ms;
	uint64_t element_count;
	uint64_t silent; /* ranks: bits: of nodes that have said nothing of the call */
};

/* Entries to several nodes, or from one: no longer than they are. */
struct net_talk_batch {
	struct net_header header;
	uint32_t count;
	/* From the worker: of all entries that were for `node` it has taken so many. */
	uint32_t node, taken, reserved;
	struct talk_entry entries[TALK_BATCH_MAX];
};

static inline uint32_t net_talk_batch_bytes(uint32_t count)
{
	return (uint32_t)(offsetof(struct net_talk_batch, entries) +
	                  count * sizeof(struct talk_entry));
}

/* Of a packet of @bytes: whether it has as many entries as it says. */
static inline bool net_talk_batch_is_whole(const struct net_talk_batch *batch, uint64_t bytes)
{
	return bytes >= net_talk_batch_bytes(0) && batch->count <= TALK_BATCH_MAX &&
	       bytes == net_talk_batch_bytes(batch->count);
}

struct net_abort {
	struct net_header header;
	int32_t error;
	uint32_t reserved;
	struct zi_text text;
};

#define NET_CULPRIT_NONE UINT32_MAX

/* Of LATE: the call's number; and who of this node's has come to it and does not do its part, or
 * NET_CULPRIT_NONE: somebody has not come. */
static inline uint64_t net_late_cookie(uint32_t sequence, uint32_t member)
{
	return (uint64_t)member << 32 | sequence;
}

struct net_done {
	struct net_header header;
	int32_t error;    /* 0 or -errno */
	uint32_t culprit; /* a node, or NET_CULPRIT_NONE */
	struct zi_text text;
	uint64_t busy_ns; /* from its start to its end */
	/* MEET: the node of each rank, and the store's number. */
	uint32_t node_count, node, run, reserved;
	uint8_t nodes[ZI_WORLD_MAX];
};

union net_message {
	struct net_header header;
	struct net_meet meet;
	struct net_join join;
	struct net_agree agree;
	struct net_follow follow;
	struct net_map map;
	struct net_exchange exchange;
	struct net_abort abort;
	struct net_done done;
	struct net_late_message late_message;
	struct net_asked asked;
	struct net_talk_batch talk;
};
