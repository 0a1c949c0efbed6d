/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes over which a job's ranks train, as one of them sees the others, and its worker: what is
 * decided together goes by rounds (round.h), bytes are pulled. Floor 5, shard thread. In one node
 * job->across is NULL, and nothing here is called.
 *
 *   MEETING ──▶ JOINING ──▶ MAPPING ──▶ TALKING ──────────────────▶ OVER
 * unless collectives                  an error of anybody's, a node that is gone: the group breaks
 *   have met already
 *
 * It is made when the ranks of this node have materialized, and there until they have left; then it
 * stays, nobody's any more, until those of all nodes have: who goes ends the talk of all.
 *
 *   across.c   life        say.c     what is said and heard      agree.c   gathers of all nodes
 *   model.c    that all train the same model                     late.c    who is waited for
 *    pull.c     bytes pulled       serve.c   and served           fetch.c   pulls, and then a task
 *   written.c  parameters that were written                      norm.c    the norm of all
 *   summed.c   all have what a step takes                        used.c    what ranks have used
 *   params.c   parameters of what others update   params_pull.c  said, heard, and copied
 *   fetch_far.c  of units in use   lent.c  from the store, for others
 *   grads.c    gradients: what is waited for   grads_say.c  ready   grads_plan.c  parts
 *   grads_finish.c  sums are made   grads_sum.c  and come        grads_culprit.c  who is not finite
 *   grads_spill.c   those that have no room in memory
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "daemon/zero/across/talk/round.h"
#include "daemon/zero/job/gather.h"

struct across;
struct zero;
struct zero_job;
struct zero_op;

/* All nodes talk, or not: then @job->across is NULL again, or its group has broken. */
typedef void (*across_joined_fn)(struct zero_job *job, int error, const struct zi_text *text);

/* @job's ranks here wait in ZERO_GATHER_MATERIALIZE, one of them by @op. Return: 0, @joined comes;
 * -EINVAL, -ENOENT the worker is not built, -EAGAIN, -ENOMEM, with @text. */
int across_open(struct zero_job *job, const struct zero_op *op, across_joined_fn joined,
                struct zi_text *text);
bool across_talks(const struct zero_job *job);
uint32_t across_node(const struct zero_job *job);
uint32_t across_node_count(const struct zero_job *job);

/* This node votes. @done: as rounds_cast() has it, with @job as its argument; from the loop, and
 * after it nothing of the job is touched: where that may be its end it settles the job. Counted in
 * busy_count until then. Precondition: across_talks(). */
void across_vote(struct zero_job *job, enum round_kind kind, const struct round_vote *vote,
                 round_done_fn done);

/* The group breaks here: the other nodes hear why. No-op where that came from them. */
void across_break(struct zero_job *job, int error, const struct zi_text *text);
/* A rank of this node has left: the other nodes need not wait for it. @error: 0, it left cleanly;
 * or what their ranks hear, as it died. */
void across_left(struct zero_job *job, uint32_t rank, int error, const struct zi_text *text);
/* The last rank of this node has. Nodes talk on where something of the job's is left to be agreed
 * on: a step that all ranks have called, or (with @is_clean) steps ahead of their commit, for which
 * others may take @timeout_ns. Else job->across is NULL after this. */
void across_over(struct zero_job *job, bool is_clean, uint64_t timeout_ns);
/* A start has failed, and its memory is about to go: another node that goes on as if it had not is
 * answered that there is nothing. Precondition: nothing of the job is in flight. */
void across_forget_start(struct zero_job *job);
/* Nothing is in flight: nor is anything left, where its ranks have gone. */
void across_settle(struct zero_job *job);
/* The daemon stops: nobody is waited for longer than it may take. */
void across_hurry(struct zero_job *job);
/* Those that stay though their ranks have left end now: of job @name, or all. */
void across_forget(struct zero *zero, const char *name);
/* Whether one of them cannot end yet: a new start, whose store may have its port, waits for it. */
bool across_is_busy(const struct zero *zero, const char *name);
/* Whether one of job @name stays, and needs the store where it has met. */
bool across_stays(const struct zero *zero, const char *name);

/* What names its group in what it commits. */
uint64_t across_line(const struct zero_job *job);
/* What @node calls itself, for people; "": it has not said so yet. Theirs, during the call. */
const char *across_host(const struct zero_job *job, uint32_t node);
/* The node of @rank, which trains. */
uint32_t across_node_of(const struct zero_job *job, uint32_t rank);
struct catalog_placement;
/* Which rank is where, and which node this is: into a commit's record. */
void across_place(const struct zero_job *job, struct catalog_placement *placement);

/* Charged for it. */
uint64_t across_held_bytes(const struct zero_job *job);
/* "node 1 (ranks 2, 3)": for people. */
struct zi_text across_name(const struct zero_job *job, uint32_t node);
