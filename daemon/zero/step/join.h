/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that have no data left, while others have (zinf_join()). Floor 5, shard thread. */
#pragma once

#include "common/base/text.h"
#include "common/wire/layout.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_set;

/*
 * Over nodes: what a node whose ranks have all joined hears of the others (across/agree/begin.h).
 *
 *   all have joined here ─▶ asked ─▶ begun: the step begins here as well, when it can
 *                                └─▶ over: all have joined everywhere
 * Who gives up waiting meanwhile hears it when he comes again.
 */
struct zero_join {
	uint32_t generation; /* of the group that this is about */
	bool is_asked;       /* until all other nodes have said what they do */
	bool has_begun;      /* some have begun a step, of these options: */
	uint32_t rank;       /* whose they are */
	struct zi_step_options options;
	struct zi_step_group groups[ZI_PARAM_GROUPS_MAX]; /* (options.group_count,) */
	uint64_t over_mask; /* ranks that did not wait when it was over: bits */
};

/* STEP_BEGIN of a rank that has joined: completes or leaves it waiting. */
void join_try(struct zero_op *op);
/* A rank with data has begun a step: those that wait for one begin it too. NULL: another node's. */
void join_step(struct zero_job *job, const struct zero_rank *first);
/* The rank has joined the step under way. */
bool join_has(const struct zero_job *job, uint32_t rank);
/* Why STEP_BEGIN of a rank that has joined goes on waiting. */
struct zi_text join_say_late(const struct zero_job *job);
/* What sums of a set are multiplied by, of which @joined have no data. */
float join_factor(const struct zero_job *job, const struct zero_set *set, uint64_t joined,
                  bool divides_by_live);

/* ---- over nodes ---- */

/* Other nodes are asked: until they have answered no rank here begins a step with data. */
bool join_is_asked(const struct zero_job *job);
/* They have begun one, which begins here next: with zero_join's options. */
bool join_has_begun(const struct zero_job *job);
/* That is so. @groups: (options->group_count,). The job may end with it, as with the next. */
void join_begun(struct zero_job *job, const struct zi_step_options *options,
                const struct zi_step_group *groups, uint32_t rank);
/* All ranks of all nodes have joined. */
void join_over(struct zero_job *job);
/* The rank begins a step with data: that a join is over is no news to it. */
void join_forget(struct zero_job *job, uint32_t rank);
