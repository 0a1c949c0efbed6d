/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file coll.h
 * Collectives: what all ranks of a group do together, on any memory. Part of zinf.h, which includes
 * it; independent of the model and its steps, so that zinf_materialize() need not be called.
 *
 *     zinf_attach(), zinf_coll_open()      once
 *     zinf_coll_alloc()                    a buffer that all ranks of the node can reach
 *     zinf_coll_all_reduce(), ...          as often as you like
 *     zinf_detach()
 *
 * Order: every member of a group makes the same calls of that group in the same order, with the
 * same operation, count, dtype, op and root. When one differs, or an argument of one member is
 * wrong, that call fails on every member with a text that names who and what; the group stands.
 * That is told as soon as it is seen, whoever else has not come yet: who is wrong is named once
 * more than half of the members call the same, else one of each side is. A send, receive or batch
 * with a wrong argument fails at once, and so does each peer's side of its messages: both go on
 * with the next ones. In a call of up to 4 KiB a member waits for nobody whose data it does not
 * need: in a broadcast or a scatter for the root alone, and the root for nobody; in a reduce or a
 * gather only the root waits. So it may be up to 31 calls ahead of others. What is wrong with their
 * side of such a call it is told at once if it still waits there; else by its next call that waits
 * for everybody, or when it would be too far ahead, and that call then fails with the same words on
 * every member that waits for it. (Not by a message, nor by leaving.) A call to which a member
 * comes too late, or whose member died, *breaks* the group: each member's call, and every later
 * one, returns the same error with the same text, which names the rank at fault and what it did
 * instead. A broken group stays broken; zinf_coll_group_free() it and make a new one. To leave is
 * to break as well: of what all have come to everybody has its result all the same, and
 * zinf_detach() and zinf_coll_group_free() wait until all have come to what this member was ahead
 * with. Other groups go on, also when the group of all ranks is broken, as long as their own
 * members live.
 *
 * Results: the ranks' elements are joined in the order of docs/ARITHMETIC.md, so that the same
 * ranks and the same data always give the same bits, however buffers lie and messages are cut.
 * Floats are joined in fp32 and rounded once. What is only moved keeps all bits.
 *
 * Buffers: @source and @target are arrays of @dtype, aligned to its width. In memory of
 * zinf_coll_alloc() nothing is copied on the way; elsewhere pieces pass through a staging area, at
 * the cost of a copy in and a copy out; or, in all_gather and all_to_all of some size, ranks read
 * each other's memory, as far as the kernel lets them (zinf_coll_open()). *In place* means that
 * both are the same array, or, where one holds a block for each member, that the short one is this
 * member's block of the long one. Any other overlap is refused; that of a batch's messages is not
 * looked for. A source that is not there is a fault (SIGSEGV); of a target its first and last page
 * are asked. A buffer belongs to the call until it returns (with a ticket: until it was waited
 * for); a call that failed leaves its target undefined. When a group broke, members that are late
 * may still read and write buffers of its last call in the arena: leave those alone until a call of
 * another group of the same members has succeeded; buffers elsewhere are the caller's again. A
 * count of 0 is a call like any other, that all must make; its pointers may be NULL.
 *
 * Errors of every operation:
 *   -ENOTCONN    zinf_coll_open() was not called
 *   -EPERM       this rank is not a member (ZINF_GROUP_NONE)
 *   -EINVAL      an argument of a member is wrong, or a member calls something else: the text
 *                names both calls. Nothing has happened, the group stands; so after the next two
 *   -EOVERFLOW   the size of the buffers does not fit into 64 bits
 *   -EACCES      the target cannot be written
 *   -ETIMEDOUT   the deadline passed; the text names who did not come, and what it does instead
 *   -EPIPE       a member died or left; the text names it
 *   -ECONNABORTED  a member called zinf_coll_abort(); the text names it, and its reason
 *   -ESTALE      the session ended: the daemon went away (nobody could be named any more), or a
 *                newer incarnation of the job replaced this process. Who waits for others when the
 *                daemon dies has this within two seconds
 *
 * Tickets: with options.ret_ticket a call only begins; zinf_wait(), zinf_wait_for(), zinf_test()
 * and zinf_cancel() take its ticket as they take others, and tell what went wrong; -ETIMEDOUT of
 * zinf_wait_for() is either its own, or the call's, whose ticket is then used up. Calls of one
 * group take place in the order in which they were begun, whether anybody waits or not, and calls
 * of different groups independently of each other. -ENOBUFS: 1024 of them were not waited for.
 */
#ifndef ZINF_COLL_H
#define ZINF_COLL_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How elements are joined. The values are part of the ABI. ZINF_AVG is for floats, the last three
 * are for integers; integers wrap. */
enum zinf_reduce_op {
	ZINF_SUM = 1,
	ZINF_AVG = 2,
	ZINF_PROD = 3,
	ZINF_MIN = 4, /**< of floats: NaN when one is */
	ZINF_MAX = 5,
	ZINF_BAND = 6,
	ZINF_BOR = 7,
	ZINF_BXOR = 8
};

/** A group of ranks. *Members* are counted from 0 in the order of their ranks; root and peer are
 * numbers of members. */
typedef uint32_t zinf_group;
#define ZINF_GROUP_WORLD ((zinf_group)0)          /**< all ranks; member r is rank r */
#define ZINF_GROUP_NONE  ((zinf_group)UINT32_MAX) /**< what a rank that is no member gets */
#define ZINF_GROUPS_MAX  64 /**< of a job at once, ZINF_GROUP_WORLD included */

/** What most calls leave at ZINF_COLL_OPTIONS_INIT; a NULL pointer to it means the same. */
struct zinf_coll_options {
	uint32_t bytes;          /**< sizeof(struct zinf_coll_options) */
	zinf_group group;        /**< who takes part */
	uint32_t timeout_ms;     /**< of this call, from when it was begun; 0: the group's */
	uint32_t reserved0;      /**< zero */
	zinf_ticket *ret_ticket; /**< NULL: wait here. Else the call is only begun */
	uint64_t reserved[4];    /**< zero */
};

#define ZINF_COLL_OPTIONS_INIT                            \
	{                                                 \
		.bytes = sizeof(struct zinf_coll_options) \
	}

/** How a group is made. */
struct zinf_group_options {
	uint32_t bytes;       /**< sizeof(struct zinf_group_options) */
	uint32_t timeout_ms;  /**< of its calls; 0: zinf_options.timeout_ms; where that is 0
	                       *   zinfd's coll_timeout_s, by default 10 minutes */
	uint64_t reserved[4]; /**< zero */
};

#define ZINF_GROUP_OPTIONS_INIT                            \
	{                                                  \
		.bytes = sizeof(struct zinf_group_options) \
	}

/**
 * Collective over all ranks, once per attach and before anything else here.
 * @arena_bytes: memory for this rank's zinf_coll_alloc(), equal on all ranks, rounded up to 2 MiB;
 * 0 will do for buffers elsewhere. It counts as memory of the job, beside a few MiB for staging.
 * Return: 0; -EALREADY; -EINVAL ranks ask for different sizes (named); -ENOSPC, -EDQUOT with
 * figures; -ETIMEDOUT, -EPIPE naming who did not come; -EOPNOTSUPP an older daemon;
 * -EPROTONOSUPPORT a libzinf and a zinfd of different releases; -EOVERFLOW. An error is that of all
 * ranks of a node, also of those that come later; all may try again.
 *
 * Where ranks are on several nodes ($LOCAL_WORLD_SIZE or the launcher's like) they meet at
 * $MASTER_ADDR, $ZINF_PORT (else $MASTER_PORT + 1): -EINVAL those are missing; -EADDRINUSE the
 * port; -EEXIST a rank is on two nodes; -ENOENT zinf-net is not installed.
 *
 * $ZINF_COLL_CMA_BYTES: from how many bytes of a block on ranks of a node read it out of each
 * other's private memory (process_vm_readv(2)); 0: this rank neither reads nor is read; -EINVAL: it
 * is no number. Where the kernel forbids it (as it forbids one of them to attach to the other with
 * ptrace(2): Yama, prctl(PR_SET_DUMPABLE), containers) blocks are staged, with the same result;
 * nothing is done here to be allowed more.
 */
ZINF_API int zinf_coll_open(struct zinf *zinf, uint64_t arena_bytes);

/**
 * Memory that every rank of the node can read and write, from this rank's arena. No system call.
 * @ret_data: (@bytes,) aligned to 4096, undefined content; zinf_coll_free() it, or zinf_detach().
 * Return: 0; -EINVAL bytes are 0; -ENOSPC: the text says what is free, and the largest hole.
 */
ZINF_API int zinf_coll_alloc(struct zinf *zinf, uint64_t bytes, void **ret_data);

/** Gives it back; NULL is fine. No call may use it any more. -EINVAL: it was not given out. */
ZINF_API int zinf_coll_free(struct zinf *zinf, void *data);

/* ---- groups ---- */

/**
 * Collective over ALL ranks of the job, which name the same members; those that are none of them
 * get ZINF_GROUP_NONE.
 * @ranks: (@rank_count,) of the job, each once, in any order. @options: NULL for the defaults. Of
 * ranks that cannot be this rank alone is told; the others wait for it.
 * Return: 0; -EINVAL a rank is named twice or does not exist, or ranks name different members;
 * -ENOSPC ZINF_GROUPS_MAX; -ETIMEDOUT, -EPIPE naming who did not come.
 * An error is all ranks', also of those that come later: their call ends with it at once.
 */
ZINF_API int zinf_coll_group(struct zinf *zinf, const uint32_t *ranks, uint32_t rank_count,
                             const struct zinf_group_options *options, zinf_group *ret_group);

/** Leaves a group, broken or not: by each member, in its own time. ZINF_GROUP_NONE is fine. -EINVAL
 * no such group, or ZINF_GROUP_WORLD; -EBUSY a ticket of it was not waited for. */
ZINF_API int zinf_coll_group_free(struct zinf *zinf, zinf_group group);

/**
 * Ends the group for all of its members, on every node: their calls, those under way and all later
 * ones, return -ECONNABORTED at once, with a text that names this rank and @reason. For a member
 * that finds what the others cannot see (a bad batch, an exception) and would not come again: they
 * need not wait for their deadlines. Buffers are undefined, tickets are still waited for, and the
 * group is then freed and made anew like any broken one; that of all ranks by attaching anew.
 * From the thread of @zinf: a rank that waits in a call is aborted by another one, or uses tickets.
 * @reason: for people, up to 127 bytes are told; NULL for none.
 * Return: 0, also of a group that is broken already, which keeps its error; -EPERM ZINF_GROUP_NONE;
 * -EINVAL no such group; -ESTALE the session ended; -EOPNOTSUPP an older daemon.
 */
ZINF_API int zinf_coll_abort(struct zinf *zinf, zinf_group group, const char *reason);

/** Which member this rank is; -1 of ZINF_GROUP_NONE. -EINVAL no such group. */
ZINF_API int zinf_coll_group_rank(struct zinf *zinf, zinf_group group, int32_t *ret_member);

/** How many members there are. -EPERM for ZINF_GROUP_NONE, -EINVAL no such group. */
ZINF_API int zinf_coll_group_size(struct zinf *zinf, zinf_group group, uint32_t *ret_count);

/* ---- operations; n is the number of members ---- */

/** Everybody has the join of all. @source, @target: (@count,); in place: the same. */
ZINF_API int zinf_coll_all_reduce(struct zinf *zinf, const void *source, void *target,
                                  uint64_t count, enum zinf_dtype dtype, enum zinf_reduce_op op,
                                  const struct zinf_coll_options *options);

/** The root has the join of all. @source: (@count,). @target: (@count,) of the root alone, else not
 * looked at; in place: the same. */
ZINF_API int zinf_coll_reduce(struct zinf *zinf, const void *source, void *target, uint64_t count,
                              enum zinf_dtype dtype, enum zinf_reduce_op op, uint32_t root,
                              const struct zinf_coll_options *options);

/** Member i has block i of the join of all. @source: (n, @count). @target: (@count,); in place:
 * @source + this member × @count. */
ZINF_API int zinf_coll_reduce_scatter(struct zinf *zinf, const void *source, void *target,
                                      uint64_t count, enum zinf_dtype dtype, enum zinf_reduce_op op,
                                      const struct zinf_coll_options *options);

/** Everybody has everybody's block. @source: (@count,). @target: (n, @count); in place: @source is
 * @target + this member × @count. */
ZINF_API int zinf_coll_all_gather(struct zinf *zinf, const void *source, void *target,
                                  uint64_t count, enum zinf_dtype dtype,
                                  const struct zinf_coll_options *options);

/** Everybody has the root's. @data: (@count,), read on the root, written elsewhere. */
ZINF_API int zinf_coll_broadcast(struct zinf *zinf, void *data, uint64_t count,
                                 enum zinf_dtype dtype, uint32_t root,
                                 const struct zinf_coll_options *options);

/** The root has everybody's block. @source: (@count,). @target: (n, @count) of the root alone, else
 * not looked at; in place there: @source is @target + root × @count. */
ZINF_API int zinf_coll_gather(struct zinf *zinf, const void *source, void *target, uint64_t count,
                              enum zinf_dtype dtype, uint32_t root,
                              const struct zinf_coll_options *options);

/** Member i has the root's block i. @source: (n, @count) of the root alone, else not looked at.
 * @target: (@count,); in place on the root: @target is @source + root × @count. */
ZINF_API int zinf_coll_scatter(struct zinf *zinf, const void *source, void *target, uint64_t count,
                               enum zinf_dtype dtype, uint32_t root,
                               const struct zinf_coll_options *options);

/** Member i has block i of everybody, in their order. @source, @target: (n, @count); in place: the
 * same, through the staging area. */
ZINF_API int zinf_coll_all_to_all(struct zinf *zinf, const void *source, void *target,
                                  uint64_t count, enum zinf_dtype dtype,
                                  const struct zinf_coll_options *options);

/**
 * The same with blocks of different lengths, which lie one after the other.
 * @source_counts: (n,) elements for each member; @target_counts: (n,) elements from each: what that
 * one says for this one, else -EINVAL, naming both. Both are copied.
 * @source, @target: of as many elements as the counts add up to; not the same.
 */
ZINF_API int zinf_coll_all_to_allv(struct zinf *zinf, const void *source,
                                   const uint64_t *source_counts, void *target,
                                   const uint64_t *target_counts, enum zinf_dtype dtype,
                                   const struct zinf_coll_options *options);

/** All have come here. Unlike zinf_barrier() it is among ranks alone. */
ZINF_API int zinf_coll_barrier(struct zinf *zinf, const struct zinf_coll_options *options);

/* ---- from one member to another ---- */

/** One message, taken by the peer's zinf_coll_recv() of the same count and dtype; messages between
 * two members arrive in the order of their calls. Returns when @data (@count,) may be written
 * again: of any size not before the peer has taken it. Two members that both send first wait for
 * each other until the deadline: zinf_coll_batch() does both at once. Only the two take part.
 * Where one refuses its side, the other has its error and reason, on this node or another; of many
 * refused before the other comes those of the newest, of older ones -EINVAL. */
ZINF_API int zinf_coll_send(struct zinf *zinf, const void *data, uint64_t count,
                            enum zinf_dtype dtype, uint32_t peer,
                            const struct zinf_coll_options *options);

/** @data: (@count,). -EINVAL, on both sides and naming both: the peer sends another count or dtype.
 */
ZINF_API int zinf_coll_recv(struct zinf *zinf, void *data, uint64_t count, enum zinf_dtype dtype,
                            uint32_t peer, const struct zinf_coll_options *options);

/** One send or receive of a batch. */
struct zinf_coll_p2p {
	uint32_t is_send; /**< 1: send, 0: receive */
	uint32_t peer;    /**< member; this one only in a batch with both sides of it */
	void *data;       /**< (count,) not written by a send */
	uint64_t count;
	enum zinf_dtype dtype;
	uint32_t reserved; /**< zero */
};

#define ZINF_COLL_BATCH_MAX 1024 /**< sends and receives in a batch */

/** Sends and receives that all progress at once, so that two ranks may both send and then receive.
 * @ops: (@op_count,), at most ZINF_COLL_BATCH_MAX, copied. Over when all are. One that is too long
 * fails as by any other wrong argument (-EINVAL; if it has a ticket, that says so), and so do its
 * peers' sides: of more than 128 on this node the newest with the reason. Beyond 16 times
 * ZINF_COLL_BATCH_MAX it is a wild count: it fails at once, and nobody hears of it. When there is
 * no memory for it (-ENOMEM) it has no ticket, and its peers' sides fail as well; if a ticket was
 * asked for, only while no other call is under way. */
ZINF_API int zinf_coll_batch(struct zinf *zinf, const struct zinf_coll_p2p *ops, uint32_t op_count,
                             const struct zinf_coll_options *options);

#ifdef __cplusplus
}
#endif

#endif
