/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of a job's incarnation, as the daemon sees them: which groups there are, who is a
 * member, which are broken and why. The ranks do the work themselves (libclient/coll); nothing here
 * is on their way until one of them fails. Floor 3; belongs to the shard thread.
 *
 *   coll.c      groups: made, left, broken      look.c   what the boards say, which ranks write
 *   blame.c     whose fault a failed call is    words.c  calls and members, for people
 *   describe.c  for zctl
 *
 * Memory is handed in, mapped, and stays its owner's. Boards are written by ranks that may be
 * hostile: what they say is copied, then checked, and is hearsay at best. A false report breaks
 * groups of whoever reports, and no other.
 *
 * A *rank* is a number in the job; a *member* is a number in a group, in the order of ranks. Where
 * a job spans nodes some ranks are elsewhere (is_here false): no pid, no part of the board.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/board.h"
#include "common/wire/control.h"
#include "common/wire/verdict.h"

#define COLL_NOBODY UINT32_MAX

struct coll_rank {
	int pid;
	bool is_here; /* on this node: it writes its part of the boards */
	bool is_gone;
};

struct coll_group {
	bool is_used;
	uint32_t number;
	uint32_t member_count;
	uint32_t ranks[ZI_WORLD_MAX];        /* (member_count,) ascending */
	uint64_t far_mask;                   /* where it spans nodes: the ranks of all of them */
	uint64_t left_mask;                  /* members that make no more calls here */
	const struct zi_board_member *board; /* (member_count,) */
	uint64_t timeout_ns;                 /* of its calls, for people */
	int error;                           /* 0: it stands */
	struct zi_text text;                 /* why not */
	uint32_t culprit;                    /* rank; COLL_NOBODY: none, or several */
	uint32_t seen_sequence;              /* newest call when somebody looked in last, */
	uint64_t seen_ns;                    /* and since when it is that */
};

/* What a rank is doing as far as the caller knows: "it has been in step for 3.2 s". Empty: nothing
 * that is worth saying. */
typedef void (*coll_doing_fn)(void *arg, uint32_t rank, struct zi_text *ret_text);

/* A group broke, now. Must not call into coll. */
typedef void (*coll_broken_fn)(void *arg, uint32_t group, int error, const struct zi_text *text);

struct coll_options {
	uint32_t world_size;
	struct zi_verdicts *verdicts; /* all zero; outlives it */
	coll_doing_fn doing;          /* may be NULL */
	coll_broken_fn broken;        /* may be NULL */
	void *arg;
};

struct coll {
	struct coll_options options;
	struct coll_rank ranks[ZI_WORLD_MAX];
	struct coll_group groups[ZI_GROUPS_MAX];
};

/* @ret_coll: the caller's, coll_free(). Return: 0; -ENOMEM. */
int coll_new(const struct coll_options *options, struct coll **ret_coll);
struct coll *coll_free(struct coll *coll);
ZI_DEFINE_CLEANUP(struct coll *, coll_free)

/* Who stands behind a rank of this node. */
void coll_rank_here(struct coll *coll, uint32_t rank, int pid);
/* How long ranks that wait may spin, and their threads that wait while they compute. */
void coll_spin_set(struct coll *coll, uint32_t spin_us, uint32_t beside_us);

/* A number for one more group, none of @avoided (bits) where there is another. -ENOSPC with the
 * figure. */
int coll_group_choose(const struct coll *coll, uint64_t avoided, struct zi_text *text,
                      uint32_t *ret_group);
/* @group: as chosen; ZI_GROUP_WORLD first of all. @mask: ranks. @board: zeroed, whole. */
void coll_group_add(struct coll *coll, uint32_t group, uint64_t mask,
                    const struct zi_board_member *board, uint64_t timeout_ns);
/* The group of that number as @rank may use it; -EPERM otherwise, with the reason. */
int coll_group_of(struct coll *coll, uint32_t rank, uint32_t group, struct zi_text *text,
                  struct coll_group **ret_group);
/* Member that @rank is; COLL_NOBODY: none. */
uint32_t coll_member_of(const struct coll_group *group, uint32_t rank);
/* Rank of the @member-th of the whole group, where it spans nodes of those of all of them. */
uint32_t coll_rank_of(const struct coll_group *group, uint32_t member);
/* This member makes no more calls there. Whether it was the last one: its number is free. */
bool coll_group_leave(struct coll *coll, struct coll_group *group, uint32_t rank);

/* The group's calls end with @error from now on. Nothing when it is broken already. */
void coll_break(struct coll *coll, struct coll_group *group, int error, uint32_t culprit,
                const struct zi_text *text);
void coll_break_all(struct coll *coll, int error, const struct zi_text *text);
/* A rank left, or died: breaks what it is a member of. Bits of groups that have nobody left. */
uint64_t coll_rank_gone(struct coll *coll, uint32_t rank, const struct zi_text *text);

/* A rank wants its group's calls to end (COLL_ABORT): they do, with -ECONNABORTED, its name and
 * @reason, of which only what can be printed is told. Return: 0, also when the group is broken
 * already, whose error stands; -EPERM it is no member, with @text. */
int coll_abort(struct coll *coll, uint32_t rank, uint32_t group, const char *reason,
               struct zi_text *text);
struct coll_call;
/* A message's time has passed, of the member @waiting elsewhere: @call, whose root, a member here,
 * does not do its part. */
void coll_fail_message(struct coll *coll, struct coll_group *group, uint32_t waiting,
                       const struct coll_call *call, uint32_t timeout_ms);
/* Another node waited for @timeout_ms in @call for members here: those that have not come to it are
 * named, with what they do instead, unless other nodes keep them in a call before. @silent: ranks
 * (bits) of all nodes of which nothing has come there. */
void coll_fail_absent(struct coll *coll, struct coll_group *group, const struct coll_call *call,
                      uint64_t silent, uint32_t timeout_ms);
/* A rank says that a call failed (COLL_FAIL). Always an error, with words. */
int coll_fail(struct coll *coll, uint32_t rank, const struct zi_coll_fail *report,
              struct zi_text *text);
