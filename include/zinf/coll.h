/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file coll.h
 * Collectives, for programs whose ranks exchange data in any memory. zinf.h includes this header.
 * Collectives need no model and no zinf_materialize().
 *
 *     zinf_attach(), zinf_coll_open()      once
 *     zinf_coll_alloc()                    a buffer that all ranks of the node can reach
 *     zinf_coll_all_reduce(), ...          as often as needed
 *     zinf_detach()
 *
 * Order: every member of a group makes the same calls of that group in the same order, with the
 * same operation, count, dtype, op and root.
 *   - If a member's call differs, or has a wrong argument, the call fails on every member, with a
 *     text that names the members and the difference. The group stays usable. Members get the
 *     error at once, also while other members are missing. The text names the wrong
 *     member if more than half of the members call the same; else one member of each side.
 *   - A send, receive or batch with a wrong argument fails at once, and so does each peer's side of
 *     its messages. Both continue with the next message.
 *   - In a call of up to 4 KiB a member waits only for members whose data it needs: in a broadcast
 *     or scatter for the root, and the root for nobody; in a reduce or gather only the root waits.
 *     So a member may be up to 31 calls ahead of others. It learns of an error in such a call at
 *     once if it still waits there. Otherwise its next call that waits for all members fails with
 *     this error on every waiting member, or the call that would be too far ahead. (Messages and
 *     leaving do not report it.)
 *   - A member that comes too late, or dies, *breaks* the group: each member's call, and every
 *     later one, returns the same error and text. The text names the rank at fault and what it did
 *     instead. A broken group stays broken: zinf_coll_group_free() it and make a new one.
 *   - Leaving breaks a group too. Calls to which all members have come still complete.
 *     zinf_detach() and zinf_coll_group_free() wait until all members have come to the calls that
 *     this member was ahead with.
 *   - Other groups continue while their own members live, also if the group of all ranks is broken.
 *
 * Results: the elements of the ranks are joined in the order of docs/ARITHMETIC.md. The same ranks
 * and the same data always give the same bits, wherever buffers lie. Floats are joined in fp32 and
 * rounded once. Operations that only move data keep all bits.
 *
 * Buffers: @source and @target are arrays of @dtype, aligned to its width.
 *   - Memory of zinf_coll_alloc() is used without a copy. Other memory passes through a staging
 *     area, with a copy in and a copy out; or, in all_gather and all_to_all of large blocks, ranks
 *     read each other's memory as far as the kernel allows (zinf_coll_open()).
 *   - *In place* means that both are the same array; or, if one holds a block for each member, that
 *     the short one is this member's block of the long one. Any other overlap is -EINVAL; overlaps
 *     between messages of a batch are not checked.
 *   - A source without memory is a SIGSEGV. Of a target the first and the last page are checked.
 *   - A buffer belongs to the call until it returns (with a ticket: until it was waited for). A
 *     failed call leaves its target undefined.
 *   - After a group broke, late members may still read and write buffers of its last call in the
 *     arena: do not use them until a call of another group of the same members has succeeded.
 *     Buffers elsewhere are the caller's again.
 *   - A call with a count of 0 moves nothing. All members make it too; its pointers may be NULL.
 *
 * Interrupts: a call without a ticket that zinf_interrupt() ended with -EINTR stays under way, with
 * its first deadline. Repeat it with the same arguments before any other call of the group, which
 * else returns -EBUSY. Its buffers belong to it until a repeated call has returned something else
 * than -EINTR. If the call is not to be repeated: zinf_coll_abort(), then zinf_coll_group_free();
 * or zinf_detach().
 *
 * Errors of every operation:
 *   -ENOTCONN    zinf_coll_open() was not called
 *   -EPERM       this rank is not a member (ZINF_GROUP_NONE)
 *   -EINVAL      an argument of a member is wrong, or a member calls another operation: the text
 *                names both calls
 *   -EOVERFLOW   the size of the buffers does not fit into 64 bits
 *   -EACCES      the target cannot be written. After this and the two errors before nothing has
 *                been done, and the group stays usable
 *   -EINTR       interrupted; repeat the call
 *   -EBUSY       another call of this group was interrupted, and has not been repeated
 *   -ETIMEDOUT   the deadline passed; the text names who did not come, and what it does instead
 *   -EPIPE       a member died or left; the text names it
 *   -ECONNABORTED  a member called zinf_coll_abort(); the text names it, and its reason
 *   -ESTALE      the session ended: the daemon went away, or a newer incarnation of the job
 *                replaced this process. A waiting rank gets it within two seconds
 *
 * Tickets: with options.ret_ticket a call only begins. zinf_wait(), zinf_wait_for(), zinf_test()
 * and zinf_cancel() take its ticket, and return its error. -ETIMEDOUT of zinf_wait_for() is either
 * its own, or that of the call; the second one ends the ticket. Calls of one group take place
 * in the order in which they began; calls of different groups are independent. -ENOBUFS: 1024
 * tickets of collectives were not waited for.
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

/** Reductions. The values are part of the ABI. ZINF_AVG is only for floats, the last three are only
 * for integers. Integers wrap. */
enum zinf_reduce_op {
	ZINF_SUM = 1,
	ZINF_AVG = 2,
	ZINF_PROD = 3,
	ZINF_MIN = 4, /**< of floats: NaN if one is NaN */
	ZINF_MAX = 5,
	ZINF_BAND = 6,
	ZINF_BOR = 7,
	ZINF_BXOR = 8
};

/** A group of ranks. *Members* are numbered from 0, in the order of their ranks. root and peer are
 * member numbers. */
typedef uint32_t zinf_group;
#define ZINF_GROUP_WORLD ((zinf_group)0)          /**< all ranks; member r is rank r */
#define ZINF_GROUP_NONE  ((zinf_group)UINT32_MAX) /**< for a rank that is not a member */
#define ZINF_GROUPS_MAX  64 /**< groups of a job at once, with ZINF_GROUP_WORLD */

#define ZINF_GROUP_NAME_BYTES 32 /**< name of a group, NUL included */

/** Options of a call: begin with ZINF_COLL_OPTIONS_INIT. A NULL pointer means the same. */
struct zinf_coll_options {
	uint32_t bytes;          /**< sizeof(struct zinf_coll_options) */
	zinf_group group;        /**< group of the call */
	uint32_t timeout_ms;     /**< deadline of this call, from its begin; 0: the group's */
	uint32_t reserved0;      /**< zero */
	zinf_ticket *ret_ticket; /**< NULL: the call waits. Else the call only begins */
	uint64_t reserved[4];    /**< zero */
};

#define ZINF_COLL_OPTIONS_INIT                            \
	{                                                 \
		.bytes = sizeof(struct zinf_coll_options) \
	}

/** Options of a new group. */
struct zinf_group_options {
	uint32_t bytes;       /**< sizeof(struct zinf_group_options) */
	uint32_t timeout_ms;  /**< deadline of its calls; 0: zinf_options.timeout_ms; if that is 0,
	                       *   zinfd's coll_timeout_s, by default 10 minutes */
	uint64_t reserved[4]; /**< zero */
};

#define ZINF_GROUP_OPTIONS_INIT                            \
	{                                                  \
		.bytes = sizeof(struct zinf_group_options) \
	}

/**
 * Opens collectives. Collective over all ranks, once per attach, before all other calls here.
 * @arena_bytes: memory for this rank's zinf_coll_alloc(), equal on all ranks, rounded up to 2 MiB;
 * 0 if all buffers lie elsewhere. The job is charged for it, and for 16 MiB of staging per rank.
 * Return: 0; -EALREADY; -EINVAL ranks ask for different sizes (named); -ENOSPC, -EDQUOT with
 * figures; -ETIMEDOUT, -EPIPE with the ranks that did not come; -EOPNOTSUPP an older daemon;
 * -EPROTONOSUPPORT libzinf and zinfd are of different releases; -EOVERFLOW arena_bytes is too
 * large. All ranks of a node get the same error, also ranks that come later. All may try again.
 *
 * Over several nodes ($LOCAL_WORLD_SIZE, or the variable of another launcher, is below the world
 * size) the nodes meet at $MASTER_ADDR, port $ZINF_PORT (else $MASTER_PORT + 1). Also -EINVAL these
 * variables are missing; -EADDRINUSE the port is in use; -EEXIST a rank is on two nodes, or another
 * job runs there; -ENOENT zinf-net is not installed.
 *
 * $ZINF_COLL_CMA_BYTES: bytes of a block from which ranks of a node read it from each other's
 * private memory (process_vm_readv(2)); 0: this rank neither reads nor is read; -EINVAL: no number.
 * If the kernel forbids it, blocks are staged, with the same result. The kernel applies the rules
 * of ptrace(2): Yama, prctl(PR_SET_DUMPABLE), containers. libzinf does not change them.
 */
ZINF_API int zinf_coll_open(struct zinf *zinf, uint64_t arena_bytes);

/**
 * Allocates from this rank's arena memory that every rank of the node can read and write. No system
 * call. @ret_data: (@bytes,) aligned to 4096, undefined content; valid until zinf_coll_free() or
 * zinf_detach(). Return: 0; -EINVAL bytes is 0; -ENOSPC, with the free bytes and the largest hole.
 */
ZINF_API int zinf_coll_alloc(struct zinf *zinf, uint64_t bytes, void **ret_data);

/** Frees memory of zinf_coll_alloc(); @data may be NULL. No pending call may use it. -EINVAL: @data
 * is not such memory. */
ZINF_API int zinf_coll_free(struct zinf *zinf, void *data);

/* ---- groups ---- */

/**
 * Makes a group. Collective over ALL ranks of the job, with the same list of members. A rank that
 * is not a member gets ZINF_GROUP_NONE.
 * @ranks: (@rank_count,) of the job, each once, in any order. @options: NULL for the defaults.
 * Return: 0; -EINVAL a rank is named twice or does not exist, or ranks name different members;
 * -ENOSPC there are ZINF_GROUPS_MAX; -ETIMEDOUT, -EPIPE with the ranks that did not come.
 * All ranks get the same error, also ranks that come later: their call ends at once.
 */
ZINF_API int zinf_coll_group(struct zinf *zinf, const uint32_t *ranks, uint32_t rank_count,
                             const struct zinf_group_options *options, zinf_group *ret_group);

/** Makes a group that only its members call for. Ranks that are not members take no part, and must
 * not call it.
 * @name: 1 to ZINF_GROUP_NAME_BYTES - 1 bytes. The members' calls are matched by it; it may be used
 * again when all members have returned. @ranks: (@rank_count,) of the job, this rank among them; in
 * any order, but the same ranks on all members. @options: NULL for the defaults.
 * Return: 0; -EINVAL the list is wrong, or members of one name list different ranks: the text names
 * both; -ENOSPC there are ZINF_GROUPS_MAX; -ETIMEDOUT, with the members that did not come; -EPIPE a
 * member has left or died; -EOPNOTSUPP the job spans nodes. All members get the same error, also
 * members that come later: their next call with this name ends with it at once.
 */
ZINF_API int zinf_coll_group_named(struct zinf *zinf, const char *name, const uint32_t *ranks,
                                   uint32_t rank_count, const struct zinf_group_options *options,
                                   zinf_group *ret_group);

/** Leaves a group, broken or not. Each member calls it when it likes. @group may be
 * ZINF_GROUP_NONE.
 * Return: 0; -EINVAL no such group, or ZINF_GROUP_WORLD; -EBUSY a ticket was not waited for. */
ZINF_API int zinf_coll_group_free(struct zinf *zinf, zinf_group group);

/**
 * Ends the group for all its members, on every node: their pending and later calls return
 * -ECONNABORTED at once, with a text that names this rank and @reason. It is for a member that will
 * not come again (a bad batch, an exception), so that others need not wait for their deadlines.
 * Buffers are undefined. Tickets must still be waited for. Then free the group and make it again,
 * as any broken group; for the group of all ranks attach again.
 * Only from the thread of @zinf: a rank that waits in a call cannot abort; another rank does, or it
 * uses tickets. @reason: for people, at most 127 bytes are shown; NULL: none.
 * Return: 0, also for a broken group, which keeps its error; -EPERM ZINF_GROUP_NONE;
 * -EINVAL no such group; -ESTALE the session ended; -EOPNOTSUPP an older daemon.
 */
ZINF_API int zinf_coll_abort(struct zinf *zinf, zinf_group group, const char *reason);

/** Member number of this rank; -1 for ZINF_GROUP_NONE. -EINVAL: no such group. */
ZINF_API int zinf_coll_group_rank(struct zinf *zinf, zinf_group group, int32_t *ret_member);

/** Number of members. -EPERM: ZINF_GROUP_NONE; -EINVAL: no such group. */
ZINF_API int zinf_coll_group_size(struct zinf *zinf, zinf_group group, uint32_t *ret_count);

/* ---- operations; n is the number of members ---- */

/** Every member gets the reduction of all sources. @source, @target: (@count,); in place: the same.
 *  */
ZINF_API int zinf_coll_all_reduce(struct zinf *zinf, const void *source, void *target,
                                  uint64_t count, enum zinf_dtype dtype, enum zinf_reduce_op op,
                                  const struct zinf_coll_options *options);

/** The root gets the reduction of all sources. @source: (@count,). @target: (@count,) on the root,
 * ignored elsewhere; in place: the same. */
ZINF_API int zinf_coll_reduce(struct zinf *zinf, const void *source, void *target, uint64_t count,
                              enum zinf_dtype dtype, enum zinf_reduce_op op, uint32_t root,
                              const struct zinf_coll_options *options);

/** Member i gets block i of the reduction of all sources. @source: (n, @count). @target: (@count,);
 * in place: @source + this member × @count. */
ZINF_API int zinf_coll_reduce_scatter(struct zinf *zinf, const void *source, void *target,
                                      uint64_t count, enum zinf_dtype dtype, enum zinf_reduce_op op,
                                      const struct zinf_coll_options *options);

/** Every member gets the blocks of all members. @source: (@count,). @target: (n, @count); in place:
 * @source is
 * @target + this member × @count. */
ZINF_API int zinf_coll_all_gather(struct zinf *zinf, const void *source, void *target,
                                  uint64_t count, enum zinf_dtype dtype,
                                  const struct zinf_coll_options *options);

/** Every member gets the root's data. @data: (@count,), read on the root, written elsewhere. */
ZINF_API int zinf_coll_broadcast(struct zinf *zinf, void *data, uint64_t count,
                                 enum zinf_dtype dtype, uint32_t root,
                                 const struct zinf_coll_options *options);

/** The root gets the blocks of all members. @source: (@count,). @target: (n, @count) on the root,
 * ignored elsewhere; in place on the root: @source is @target + root × @count. */
ZINF_API int zinf_coll_gather(struct zinf *zinf, const void *source, void *target, uint64_t count,
                              enum zinf_dtype dtype, uint32_t root,
                              const struct zinf_coll_options *options);

/** Member i gets the root's block i. @source: (n, @count) on the root, ignored elsewhere.
 * @target: (@count,); in place on the root: @target is @source + root × @count. */
ZINF_API int zinf_coll_scatter(struct zinf *zinf, const void *source, void *target, uint64_t count,
                               enum zinf_dtype dtype, uint32_t root,
                               const struct zinf_coll_options *options);

/** Member i gets block i of every member, in order. @source, @target: (n, @count); in place: the
 * same, through the staging area. */
ZINF_API int zinf_coll_all_to_all(struct zinf *zinf, const void *source, void *target,
                                  uint64_t count, enum zinf_dtype dtype,
                                  const struct zinf_coll_options *options);

/**
 * As zinf_coll_all_to_all(), with blocks of different lengths, one after the other.
 * @source_counts: (n,) elements for each member. @target_counts: (n,) elements from each member;
 * equal to that member's count for this one, else -EINVAL with both. Both arrays are copied.
 * @source, @target: as many elements as the counts add up to; different arrays.
 */
ZINF_API int zinf_coll_all_to_allv(struct zinf *zinf, const void *source,
                                   const uint64_t *source_counts, void *target,
                                   const uint64_t *target_counts, enum zinf_dtype dtype,
                                   const struct zinf_coll_options *options);

/** Waits until all members have called it. Unlike zinf_barrier() it does not use the daemon. */
ZINF_API int zinf_coll_barrier(struct zinf *zinf, const struct zinf_coll_options *options);

/* ---- from one member to another ---- */

/** Sends one message, which the peer's zinf_coll_recv() of the same count and dtype takes. Messages
 * between two members arrive in the order of their calls. Only the two members take part. The call
 * returns when the peer has taken the message; @data (@count,) may then be written again. Two
 * members that both send first wait for each other until the deadline: use zinf_coll_batch().
 * If one member refuses its side, the other gets its error and reason, on any node. If a member
 * refused many before the other came, the newest have their reasons, older ones -EINVAL. */
ZINF_API int zinf_coll_send(struct zinf *zinf, const void *data, uint64_t count,
                            enum zinf_dtype dtype, uint32_t peer,
                            const struct zinf_coll_options *options);

/** Receives one message of zinf_coll_send(). @data: (@count,). -EINVAL on both sides, with both
 * values: the peer sends another count or dtype. */
ZINF_API int zinf_coll_recv(struct zinf *zinf, void *data, uint64_t count, enum zinf_dtype dtype,
                            uint32_t peer, const struct zinf_coll_options *options);

/** One send or receive of a batch. */
struct zinf_coll_p2p {
	uint32_t is_send; /**< 1: send, 0: receive */
	uint32_t peer;    /**< member; this member only if the batch has both sides */
	void *data;       /**< (count,); a send does not write it */
	uint64_t count;
	enum zinf_dtype dtype;
	uint32_t reserved; /**< zero */
};

#define ZINF_COLL_BATCH_MAX 1024 /**< sends and receives in a batch */

/** Makes several sends and receives at once, so two ranks may both send and then receive.
 * @ops: (@op_count,), at most ZINF_COLL_BATCH_MAX, copied. The call is over when all are over.
 * -EINVAL: too many operations; a ticket returns it. The peers' sides fail too; of more than 128 on
 * this node the newest have the reason. More than 16 times ZINF_COLL_BATCH_MAX fail only here, at
 * once. -ENOMEM: there is no ticket, and the peers' sides fail too; if a ticket was asked for, only
 * while no other call is under way. */
ZINF_API int zinf_coll_batch(struct zinf *zinf, const struct zinf_coll_p2p *ops, uint32_t op_count,
                             const struct zinf_coll_options *options);

#ifdef __cplusplus
}
#endif

#endif
