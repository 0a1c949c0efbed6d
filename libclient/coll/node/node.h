/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives inside a node: the ranks do the work, each its share. Floor 2; what libzinf's public
 * calls stand on. A group belongs to the thread that makes its calls, and while asynchronous ones
 * are under way to the queue's thread (queue.h).
 *
 *   op.h      a call from its beginning to its end: whose turn it is; fail.h when a group is over
 *   queue.h   calls that nobody waits for: a thread makes them
 *   call.h    one collective as a state machine
 *   posts.h   posting, and looking at what others posted
 *   check.h   what a member refuses; words.h what it is called
 *   differ.h  in what calls of members differ
 *   place.h   where everybody's data lie, hence the path
 *   join.h    a rank's part of what joins elements, move.h of what only moves them; share.h
 *   read.h    out of peers' private memory, when that is worth it; cma.h
 *   numa.h    what goes by NUMA nodes; levels.h, near.h: a rank's part of that
 *   pair.h    sends and receives: pair_send.h, pair_take.h; pair_line.h where, pair_refuse.h
 *   far.h     calls of a group that spans nodes; members.h
 * How members wait for each other: common/wire/meet.h.
 *
 * A call never blocks by itself: it is polled, and says which word it waits for. Paths (run.h):
 * up to ZI_BOARD_INLINE_BYTES the data travel with the post; above, posts say where in the arenas
 * the data lie and each rank works on its share of everybody's; what lies outside the arenas goes
 * in pieces through the staging part of its rank's arena, or, where it is only moved, is read where
 * it lies, if the kernel lets ranks do that (cma.h). Where arenas lie on several NUMA nodes,
 * what is large goes by those (numa.h). The bits are the same on every path.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/meet.h"
#include "libclient/coll/node/cma.h"
#include "libclient/coll/node/numa.h"
#include "libclient/coll/node/run.h"

#define ZI_NODE_NOBODY UINT32_MAX

/* By what a group was over first, as far as this member knows. */
struct zi_node_failure {
	uint32_t sequence; /* of a collective; 0: a message */
	uint32_t culprit;  /* member, or ZI_NODE_NOBODY */
	enum zi_coll_operation operation;
	enum zi_dtype dtype;
	enum zi_reduce_op reduce_op;
	uint32_t root; /* of a message the peer */
	uint64_t element_count;
	/* -ETIMEDOUT: within which it was not over, its own time or that of a call behind it. */
	uint64_t timeout_ns;
};

/*
 * What whoever makes a group fills in: everything above `sequence`. The rest starts as zero.
 * Members have ascending ranks; a member's arena need not be at its member number.
 */
struct zi_node_group {
	struct zi_meet meet;
	char *arenas; /* of all ranks of the job, one after the other */
	uint64_t arenas_bytes;
	char *own; /* this rank's among them */
	uint64_t own_bytes;
	char *staging; /* in `own`, this group's alone: see zi_node_staging() */
	uint64_t staging_bytes;
	uint64_t streaming_bytes; /* calls that touch so many bytes in all pass by the cache */
	struct zi_numa numa;      /* zi_numa_init(), or as it is: all arenas on one node */
	uint64_t levels_bytes;    /* joins of shorter sources do not go by NUMA nodes */
	struct zi_cma cma;        /* from_bytes; then zi_cma_offer() */
	uint32_t number;          /* the daemon's, for texts */
	struct zi_far_group *far; /* NULL: all members are on this node */
	const uint32_t *ranks; /* (members,) for texts; NULL: not known, or a rank is its number */

	uint32_t sequence; /* of the newest call */
	int over;          /* errno (negative) once a call found the group broken; for good */
	uint32_t culprit;  /* member that the newest failure is about, or ZI_NODE_NOBODY */
	struct zi_node_failure failure; /* by which it is over; all zero: a verdict */

	/* the engine's own */
	uint32_t seen; /* the newest call up to which all posts have been looked at */
	uint32_t left; /* the same of whoever has looked least, as far as it has said */
	uint64_t unseen_timeout_ns; /* the longest of the calls behind `seen` */
	/* As posted, in the same slots; and of which bits: who is wrong there has been told. */
	struct zi_board_call said[ZI_BOARD_SLOTS];
	uint32_t told;
	struct zi_node_due due;
	uint32_t steps;         /* of calls in pieces so far */
	uint32_t slot;          /* where the next piece is staged */
	uint32_t refusal_count; /* reasons for which messages were refused, so far */
	uint32_t refused_count; /* those messages */
	struct zi_node_run run;
	struct zi_node_pairs pairs;
	struct zi_node_turn turn;
};

/* Which part of ZI_COLL_STAGING_BYTES is that of group @number: the world's is the largest. */
void zi_node_staging(uint32_t number, uint64_t *ret_offset, uint64_t *ret_bytes);

/* One send or receive. To oneself only in a batch that has both. */
struct zi_node_p2p {
	bool is_send;
	enum zi_dtype dtype;
	uint32_t peer; /* member */
	uint64_t element_count;
	void *buffer; /* a send only reads it */
	/* the engine's own */
	struct zi_node_message message;
};

enum zi_node_state {
	ZI_NODE_NEW = 0,
	ZI_NODE_QUEUED = 1,
	ZI_NODE_RUNNING = 2,  /* posted, or about to be */
	ZI_NODE_CANCELED = 3, /* before it was posted; not done yet */
	ZI_NODE_DONE = 4,
};

/*
 * A call from the moment it is made until it is over: the caller's memory, the engine's until then.
 * What is not named is zero.
 */
struct zi_node_op {
	struct zi_node_group *group;
	/* A collective; with p2p_count only its deadline_ns, refused and reason count. */
	struct zi_node_call call;
	struct zi_node_p2p *p2ps;
	uint32_t p2p_count;
	/* Once it is done: */
	int result;        /* as zi_node_call() returns it */
	uint32_t sequence; /* that a collective had; 0: none */
	uint32_t culprit;  /* see group->culprit */
	/* the engine's own */
	uint32_t state; /* enum zi_node_state; atomic */
	bool is_begun;
	bool is_interrupted; /* its caller was: it is made again, and goes on */
	/* Of the reason for which a batch is refused; stays when the op is made again, with the
	 * next part of a batch for which there was no room. 0: none is posted yet. */
	uint32_t refusal;
	struct zi_node_op *next;
	/* Of a failure. Last: clearing it would be a tenth of a small call. */
	struct zi_text text;
};

/*
 * Return: 0; -ETIMEDOUT, or the verdict on the group: @text and group->culprit say who did not
 * come; -EINVAL, -EOVERFLOW, -EACCES: a member (maybe this one) refuses the call, or members call
 * different things, @text says who and what; -EPROTO, -EFAULT: what a member posted makes no sense.
 * After -EINVAL, -EOVERFLOW and -EACCES the group stands and all members have the error; after the
 * others it is over. (Who comes late to a message that its peer refused may find that the reason
 * has made room for others: then it has -EINVAL, whatever its peer has.)
 */
int zi_node_call(struct zi_node_group *group, const struct zi_node_call *call,
                 struct zi_text *text);
/*
 * Until all have come to the calls that this member was ahead of, so that nobody misses it there
 * when it leaves; or the group is broken, or what those calls may take has passed since @begin_ns.
 * What is wrong with those calls the others know. Nothing is under way.
 */
void zi_node_settle(struct zi_node_group *group, uint64_t begin_ns);
/* Sends and receives that progress together; the first failure of one, which its peer has as well.
 * Else as above. */
int zi_node_batch(struct zi_node_group *group, struct zi_node_p2p *p2ps, uint32_t p2p_count,
                  uint64_t deadline_ns, struct zi_text *text);
