/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over nodes; see grads.h. Floor 5, shard thread. */
#pragma once

#include "common/base/list.h"
#include "daemon/worker/finish.h"
#include "daemon/zero/across/bytes/fetch.h"
#include "daemon/zero/across/sums/grads.h"
#include "daemon/zero/across/sums/grads_plan.h"
#include "daemon/zero/across/sums/norm.h"
#include "daemon/zero/job/job.h"

struct across_serve;
struct talk_entry;
struct zero_subgroup;

/* `what` of TALK_READY, beside PARAMS_READY and AGREE_READY_GROUPS: its `micro` is a number, */
enum grads_ready {
	/* ranks there have handed over `unit`; `step` has those of them that have joined: bits;
	 * `piece` 1: they are left out of the average */
	GRADS_READY_UNIT = 1,
	GRADS_READY_SUM = 2, /* the sum of `subgroup` of `unit` is there */
};

/* Sums that are copied from other nodes at a time. */
#define GRADS_SUMS 4u

struct grads_unit {
	uint64_t finishers; /* nodes: bits: each finishes a part of it. 0: it does not span nodes */
	uint32_t finish_count;  /* pieces that are finished here, */
	uint32_t serve_count;   /* and partials of others that are made here, of each micro-batch */
	uint32_t handed, begun; /* numbers: by ranks here; to be finished here */
	uint32_t asks_left, serves_left; /* partials that nobody has asked for; not made yet */
	uint32_t pieces_left;            /* not finished yet */
	uint64_t untold;                 /* nodes that have yet to hear that it is ready */
	/* ranks of other nodes that have joined the step of the number that is heard: bits; and of
	 * those which are to be left out of the average */
	uint64_t joined, dividers;
	float factor;                       /* of the number that is being finished */
	uint32_t next_subgroup, next_piece; /* to be finished, while it is linked */
	struct zi_list link;
};

struct grads_subgroup {
	uint64_t takers;                /* nodes that need its sum and do not finish it */
	uint32_t pieces_left;           /* finished here, of this micro-batch */
	uint32_t asks_left, gives_left; /* pieces of the sum for takers */
	uint64_t untold;                /* takers that have yet to hear of it */
	bool is_awaited;                /* its sum is to come from its finisher */
	uint32_t takes_left;            /* pieces of it that are still to be copied */
	bool is_stored;                 /* its sum is on its way from a slot to the store */
	uint32_t number;                /* of the step whose sum it is, or will be */
};

/* A piece that is being finished. */
struct grads_group {
	struct fetch fetch;
	struct grads *grads;
	struct zero_subgroup *subgroup;
	struct grads_piece piece;
	uint32_t culprit; /* as culprit.h says */
	struct finish_scratch *scratch;
	float *partials; /* (leaf_max × FINISH_BLOCK_ELEMENTS,) of leaves of several ranks here */
	float *block;    /* (FINISH_BLOCK_ELEMENTS,) of the tree, before it is added to accum */
};

/* A piece of a sum that comes. */
struct grads_take {
	struct fetch fetch;
	struct pull pull;
	struct grads *grads;
	struct zero_subgroup *subgroup;
	struct grads_piece piece;
};

struct grads {
	struct across *across;
	struct zero_job *job; /* while something is in flight there is one */
	uint32_t unit_count, subgroup_count, set_count, node_count;
	struct grads_plan *plans;         /* (set_count,) */
	struct grads_unit *units;         /* (unit_count,) */
	struct grads_subgroup *subgroups; /* (subgroup_count,) */
	uint32_t *heard;     /* (unit_count × node_count,) numbers that nodes have handed over */
	uint32_t wait_count; /* units and sums that a step has to wait for */
	struct zi_list finishing; /* struct grads_unit: ready on all nodes, in this order */
	struct grads_group groups[GRADS_DEPTH];
	/* subgroups whose sum can be pulled, in the order in which that was heard */
	uint32_t *ready; /* (subgroup_count,) a ring */
	uint32_t ready_put, ready_taken, ready_piece;
	struct grads_take takes[GRADS_SUMS];
	/* what is to be said: units, and behind them subgroups */
	uint32_t *notes; /* (unit_count + subgroup_count,) a ring */
	uint32_t note_put, note_said;
	struct norm norm;
};

/* In what a rank's own elements travel: the 16 bits whose values they have been given, or their own
 * type; what several are joined to is f32. So do sums, in what they are rounded to, wherever they
 * lie. Values come back as they were. */
static inline enum zi_dtype grads_leaf_dtype(const struct zero_job *job)
{
	return job->config.grad_dtype == ZI_DTYPE_F32 ? job_reduce_dtype(job)
	                                              : (enum zi_dtype)job->config.grad_dtype;
}
static inline enum zi_dtype grads_sum_dtype(const struct zero_job *job)
{
	return job_reduce_dtype(job);
}

/* ---- grads.c ---- */

/* Nothing of it is in flight. Return: NULL. */
struct grads *grads_free(struct grads *grads);
const struct grads_plan *grads_plan_of(const struct grads *grads, uint32_t unit);
/* The node on which its sum is finished. */
uint32_t grads_finisher(const struct zero_job *job, const struct zero_subgroup *subgroup);
/* Is the unit ready on all nodes that have a part of it, and here? Then its pieces are next in
 * turn. May be called any time. */
void grads_try_finish(struct grads *grads, uint32_t unit);
/* The ranks' buffers may be free now. The job may end with it. */
void grads_unit_advance(struct grads *grads, uint32_t unit);
/* One thing less is waited for. The job may end with it. */
void grads_waited(struct grads *grads);

/* ---- grads_say.c ---- */

/* What is to be said to other nodes is, as far as there is room. */
void grads_say(struct across *across);
/* @note: a unit, or unit_count + a subgroup: it has somebody to be told to. */
void grads_note(struct grads *grads, uint32_t note);
/* What was heard of kind READY. -EPROTO with @text. */
int grads_heard(struct across *across, const struct talk_entry *entry, struct zi_text *text);

/* ---- grads_finish.c ---- */

/* Pieces of units that are ready on all nodes are finished, as many at a time as may be. */
void grads_finish(struct grads *grads);
int grads_finish_prepare(struct grads *grads, uint32_t leaf_max);
void grads_finish_free(struct grads *grads);
/* What serve.c asks. */
bool grads_partial_asked(struct grads *grads, const struct talk_entry *entry);
void grads_partial_fill(struct across_serve *serve);
void grads_partial_filled(struct across_serve *serve);

/* ---- grads_spill.c ---- */

/* A piece of its sum is about to be made, or copied. False: it needs a slot, and there is none. */
bool grads_spill_begin(struct zero_subgroup *subgroup);
/* All pieces of its sum are there, and it is in a slot: it is waited for until it is written. */
void grads_spill_made(struct grads *grads, struct zero_subgroup *subgroup);
/* All that need it have been given it. */
void grads_spill_given(struct grads *grads, struct zero_subgroup *subgroup);

/* ---- grads_culprit.c ---- */

/* A piece of which @blocks of the norm were made: of @sum, which @is_in_place of a rank's elements
 * where there are no buckets. Any device thread; costs nothing where all is finite. */
uint32_t grads_culprit(const struct grads_group *group, const double *blocks, const void *sum,
                       enum zi_dtype sum_dtype, bool is_in_place);

/* ---- grads_sum.c ---- */

/* A sum is there that was finished here: whoever needs it hears so. */
void grads_sum_made(struct grads *grads, struct zero_subgroup *subgroup);
/* That of another node is. @subgroup: of the job. Return: false, it is not waited for. */
bool grads_sum_ready(struct grads *grads, uint32_t subgroup, const struct talk_entry *entry);
/* Sums that can be pulled are, as many pieces at a time as may be. */
void grads_take(struct grads *grads);
bool grads_sum_asked(struct grads *grads, const struct talk_entry *entry);
void grads_sum_fill(struct across_serve *serve);
void grads_sum_filled(struct across_serve *serve);
