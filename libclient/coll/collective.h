/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between the public calls (zinf/coll.h) and what ranks of a node do (node/). Floor 2,
 * private to libclient; everything belongs to the thread that uses the struct zinf.
 *
 *   open.c        verdicts, arenas, board of the world; alloc, free
 *   arena.c       what of this rank's arena is given out
 *   group.c       groups made, left, asked
 *   collective.c  the calls
 *   p2p.c         those between two members
 *   reach.c       where their buffers lie, and whether they can be written
 *   calls.c       from the table, made, over; waited for at once or not
 *   ticket.c      those that go on by themselves: waited for later, asked after, canceled
 *   refuse.c      a wish for all ranks that this one sees cannot be: the others are told
 *   blame.c       a call that failed: the daemon says why, and to everybody the same
 *
 * A call touches the daemon only when the group broke: COLL_FAIL tells it, and its answer is the
 * group's error from now on. Whether the rank's training group is broken (zinf->over of -EPIPE)
 * does not matter here: groups whose members live go on. The end of the session itself ends all.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/verdict.h"
#include "libclient/client.h"
#include "libclient/coll/arena.h"
#include "libclient/coll/node/far.h"
#include "libclient/coll/node/members.h"
#include "libclient/coll/node/node.h"
#include "libclient/coll/node/queue.h"

/* Pages of targets outside the arena that are known to be writable, so that a buffer which is used
 * again and again costs no system call. */
#define ZI_CLIENT_COLL_PAGES 64u

/* Tickets of collectives have this bit, which no ticket of the rings has. */
#define ZI_CLIENT_TICKET_COLL (1ull << 63)

struct zi_client_group {
	uint32_t number;              /* its place in the table, and its line of the verdicts */
	uint32_t timeout_ms;          /* of calls that give none */
	uint32_t ranks[ZI_WORLD_MAX]; /* of the members */
	uint32_t call_count;          /* in use: under way, or over and not waited for */
	struct zi_client_call *interrupted; /* NULL, or the one to be repeated before any other */
	void *board;                        /* (board_bytes,) mapped */
	uint64_t board_bytes;
	int error;           /* 0, or why it is broken, … */
	struct zi_text text; /* … in the daemon's words */
	struct zi_node_group node;
	struct zi_far_group far; /* node.far, where it spans nodes */
};

/* A call from its beginning until it was waited for. Used again and again, with what it has
 * allocated. */
struct zi_client_call {
	uint64_t ticket; /* its place in the table, and a number that grows with each use */
	uint32_t timeout_ms;
	bool is_used;
	struct zi_client_group *group;
	struct zi_node_op op;
	struct zi_text reason;    /* of a refusal */
	struct zi_node_p2p *p2ps; /* (p2p_capacity,) */
	uint32_t p2p_capacity;
	uint64_t counts[2][ZI_WORLD_MAX]; /* all_to_allv: to each member, from each */
};

struct zi_client_coll {
	const struct zi_verdicts *verdicts; /* (verdict_bytes,) read-only */
	uint64_t verdict_bytes;
	char *arenas;                /* (arenas_bytes,) of this node's ranks, each arena_bytes */
	uint32_t node_count, node;   /* of the job; this one */
	uint8_t nodes[ZI_WORLD_MAX]; /* of each rank */
	uint64_t arenas_bytes, arena_bytes;
	uint64_t streaming_bytes;             /* see struct zi_node_group */
	char *own;                            /* this rank's, staging included */
	struct zi_arena arena;                /* what of it is given out */
	uintptr_t seen[ZI_CLIENT_COLL_PAGES]; /* pages elsewhere that could be written; 0 none */
	struct zi_node_queue *queue;
	struct zi_client_group *groups[ZI_GROUPS_MAX]; /* NULL: none, or not a member */
	struct zi_client_call *calls[ZI_NODE_QUEUE_MAX];
	uint32_t call_count;                      /* that exist */
	uint32_t free_indices[ZI_NODE_QUEUE_MAX]; /* (free_count,) of them, not in use */
	uint32_t free_count;
};

/* open.c */
/* 0; -ENOTCONN; or how the session ended. First thing in a call. */
int zi_client_coll_enter(struct zinf *zinf);
/* Is the daemon still there? 0, -ESTALE. Any thread; @arg: struct zinf. */
int zi_client_coll_look(void *arg);

/* group.c */
/* 0; -EPERM, -EINVAL with the text. */
int zi_client_group_find(struct zinf *zinf, zinf_group number, struct zi_client_group **ret_group);
/* With the board of a group that this rank is a member of, and its slab where it spans nodes.
 * @fds: of both; stay the caller's. @ranks: (@member_count,) ascending. Into the table;
 * zi_client_group_free() it. */
int zi_client_group_new(struct zinf *zinf, uint32_t number, const int *fds, uint64_t board_bytes,
                        uint64_t slab_bytes, const uint32_t *ranks, uint32_t member_count,
                        struct zi_client_group **ret_group);
/* Whether its members are on more nodes than one. */
bool zi_client_group_spans(const struct zinf *zinf, const uint32_t *ranks, uint32_t member_count);
/* Returns NULL; NULL is fine. */
struct zi_client_group *zi_client_group_free(struct zi_client_group *group);

/* Before this rank leaves it in good order: all have come to what it was ahead of, or it is too
 * late for that, @begin_ns being when it began to leave. */
void zi_client_group_settle(struct zi_client_group *group, uint64_t begin_ns);

/* collective.c */
/* Where every call begins: is there a session, is the group whole? Then a zi_client_call_new(), or
 * the one of the group that was interrupted (op.is_interrupted): zi_client_call_repeat() it. */
int zi_client_coll_begin(struct zinf *zinf, const struct zinf_coll_options *options,
                         struct zi_client_call **ret_call);
/* What it is has been said in its op, and in op.call.refused whether this rank refuses it: looks at
 * its memory, and zi_client_call_run()s it. */
int zi_client_coll_make(struct zinf *zinf, struct zi_client_call *call,
                        const struct zinf_coll_options *options);

/* reach.c */
/* Memory of another rank: -EINVAL. A target that cannot be written: -EACCES. With @text. What else
 * may be wrong is the engine's to find. */
int zi_client_coll_reach(struct zinf *zinf, const struct zi_client_call *call,
                         struct zi_text *text);

/* calls.c */
/* A call that is not in use, its op zero but for the group. */
int zi_client_call_new(struct zinf *zinf, struct zi_client_group *group,
                       const struct zinf_coll_options *options, struct zi_client_call **ret_call);
/* A call with which something is wrong that is nobody else's business, with call->reason. It is the
 * callee's. Return: @error. */
int zi_client_call_drop(struct zinf *zinf, struct zi_client_call *call, int error);
/* Makes the call: waits for it, or leaves its ticket in @options. It is the callee's now. */
int zi_client_call_run(struct zinf *zinf, struct zi_client_call *call,
                       const struct zinf_coll_options *options);
/* Goes on with a call that was interrupted. @is_same: what is called now is the same; else -EBUSY.
 * */
int zi_client_call_repeat(struct zinf *zinf, struct zi_client_call *call,
                          const struct zinf_coll_options *options, bool is_same);
/* Forgets the interrupted call of a group that is broken. 0, also without one; -EBUSY it is not. */
int zi_client_call_forget(struct zinf *zinf, struct zi_client_group *group);
/* The call is over; whatever it was, it may be used again. Return: its result, with its text. */
int zi_client_call_end(struct zinf *zinf, struct zi_client_call *call);
void zi_client_calls_deinit(struct zi_client_coll *coll);

/* refuse.c */
/* The text of the last failure, with @error, becomes that of every rank's same call, and stays this
 * one's. @request: (@bytes,) a COLL_OPEN or COLL_GROUP, @ret_error and @reason in it, which are
 * filled here. Return: @error. */
int zi_client_coll_refuse(struct zinf *zinf, struct zi_message_header *request,
                          enum zi_message_type type, uint32_t bytes, int error, int32_t *ret_error,
                          char reason[ZI_REASON_BYTES]);
/* @words, cut behind a whole character, into what a message has for them and is zero; what cannot
 * be printed the daemon replaces. @capacity: NUL included. */
void zi_client_coll_words(char *target, size_t capacity, const char *words);

/* blame.c */
/* A request and its reply without descriptors, within a second. That the training group broke is no
 * answer. */
int zi_client_coll_request(struct zinf *zinf, struct zi_message_header *request,
                           enum zi_message_type type, uint32_t bytes,
                           enum zi_message_type reply_type,
                           const struct zi_message_header **ret_reply);
/* The group is broken, or is as of now, with @error: see its node.failure. Return: the group's
 * error, with its text. */
int zi_client_group_fail(struct zinf *zinf, struct zi_client_group *group, int error);
/* This rank cannot take part in a group that was made: the others hear of it in their calls,
 * instead of waiting. */
void zi_client_coll_stay_out(struct zinf *zinf, uint32_t group);
/* 0 while the group stands. */
int zi_client_group_look(struct zinf *zinf, struct zi_client_group *group);

static_assert((int)ZINF_I8 == (int)ZI_DTYPE_I8, "the public values travel as they are");
static_assert((int)ZINF_U8 == (int)ZI_DTYPE_U8, "as above");
static_assert((int)ZINF_I32 == (int)ZI_DTYPE_I32, "as above");
static_assert((int)ZINF_I64 == (int)ZI_DTYPE_I64, "as above");
static_assert((int)ZINF_F64 == (int)ZI_DTYPE_F64, "as above");
static_assert((int)ZINF_SUM == (int)ZI_REDUCE_SUM, "as above");
static_assert((int)ZINF_AVG == (int)ZI_REDUCE_AVG, "as above");
static_assert((int)ZINF_PROD == (int)ZI_REDUCE_PROD, "as above");
static_assert((int)ZINF_MIN == (int)ZI_REDUCE_MIN, "as above");
static_assert((int)ZINF_MAX == (int)ZI_REDUCE_MAX, "as above");
static_assert((int)ZINF_BAND == (int)ZI_REDUCE_BAND, "as above");
static_assert((int)ZINF_BOR == (int)ZI_REDUCE_BOR, "as above");
static_assert((int)ZINF_BXOR == (int)ZI_REDUCE_BXOR, "as above");
static_assert(ZINF_GROUPS_MAX == ZI_GROUPS_MAX, "as above");
static_assert(ZINF_GROUP_NAME_BYTES == ZI_GROUP_NAME_BYTES, "as above");
static_assert(ZINF_GROUP_WORLD == ZI_GROUP_WORLD, "as above");
static_assert(ZINF_GROUP_NONE == ZI_GROUP_NONE, "as above");
