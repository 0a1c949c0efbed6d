/* SPDX-License-Identifier: Apache-2.0 */
/* The step, from step_begin() to its end. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "common/wire/layout.h"
#include "daemon/zero/step/scale.h"
#include "daemon/zero/zero.h"
#include "kernels/optim.h"

struct zero_job;
struct zero_rank;

/*
 *   NONE ──step_begin──▶ STEPPING ──all steps, norm known──▶ UPDATING ──written──▶ COMMITTING
 *    ▲                      │ group broke                               │ I/O error             │
 *    └──────────────────────┴───────────────────────────────────────────┴───────────────────────┘
 * zero_commit() goes from NONE to COMMITTING, and so does a snapshot of state in memory alone. A
 * skipped step goes from STEPPING to COMMITTING, a discarded one to NONE (discard.h).
 * An early step (is_early) updates units while STEPPING already; should the group break then,
 * memory is no longer the committed step's and is read anew before it is used (job_unload()).
 */
enum zero_step_phase {
	ZERO_STEP_NONE,
	ZERO_STEP_STEPPING,
	ZERO_STEP_UPDATING,
	ZERO_STEP_COMMITTING
};

struct zero_step {
	enum zero_step_phase phase;
	bool is_commit; /* zero_commit(), not a step */
	/* Of its commit: who is asked before it, and so after it. */
	const struct zero_votes *votes;
	bool is_keep;    /* neither: state in memory is written for a snapshot */
	bool is_skipped; /* non-finite */
	bool is_due;     /* it ends in a commit (ahead.c) */
	bool is_unasked; /* a commit that no rank called for */
	bool is_norm_wanted;
	bool skips_nonfinite;
	bool is_pass1;      /* gradients are summed before the update */
	bool is_early;      /* units are updated as they become ready */
	bool will_skip;     /* its gradients are not finite, and so nothing changes */
	bool is_asked;      /* nothing is missing here, and other nodes are asked (doubt.h) */
	bool is_settling;   /* others have made it; its ranks are gone */
	bool is_discarding; /* all ranks discard it, and something is still in flight */
	bool is_norm_known; /* norm_sum is (grad_norm.h) */
	struct zi_step_options options; /* of the first rank that began; all others' are equal */
	uint32_t options_rank;
	/* Deferred (options.h): what ranks of with_mask gave, all the same; also groups, betas. */
	struct zi_step_options with;
	uint64_t with_mask;
	uint32_t generation; /* of the group that began it, */
	uint64_t line;       /* and its name in what is committed */
	uint64_t begun_mask;
	uint64_t joined_mask;  /* of these, those without data (join.c) */
	bool divides_by_live;  /* as they say */
	uint32_t reduce_count; /* pass 1 in flight, subgroups */
	uint64_t first_step_ns, last_step_ns, update_ns, commit_ns;
	double norm, norm_sum;
	struct kern_hyper hyper; /* but for what groups have of their own */
	struct zi_step_group groups[ZI_PARAM_GROUPS_MAX];       /* (options.group_count,) */
	struct zi_step_betas betas[ZI_PARAM_GROUPS_MAX];        /* so, with ZI_STEP_BETAS */
	struct kern_optim_scalars scalars[ZI_PARAM_GROUPS_MAX]; /* (stretches_group_count(),) */
	double next_beta1_power, next_beta2_power;
	struct zero_scale next_scale;
	int scale_error;       /* -ERANGE: an overflow at the least scale ends the run with it */
	uint32_t culprit_unit; /* of stats.culprit; UINT32_MAX: none */
	uint32_t unused_count; /* parameters that got no gradient, so far (unused.h) */
	uint32_t used_word;    /* of what other nodes have told (across/agree/used.h), up to here */
	bool is_used_asked;    /* they are, for what follows */
	uint32_t blob_index;   /* of the blobs that are committed with it */
	int64_t former_step;   /* what was committed when it ended */
	struct zi_step_stats stats;
	uint64_t failed_mask; /* ranks whose zinf_step() failed, and has not been called again */
	int failed_error;
	struct zi_text failed_text;
};

/* The calls of zinf_step() of the ranks in @mask end with @error. @text: NULL, it has no words. */
void step_fail(struct zero_job *job, uint64_t mask, int error, const struct zi_text *text);
void step_try_begin(struct zero_op *op); /* STEP_BEGIN: completes or leaves it waiting */
void step_advance(struct zero_job *job); /* to UPDATING when nothing is missing */
/* Nothing is, anywhere: it is updated, or skipped. The job may be gone afterwards. */
void step_update(struct zero_job *job);
bool step_is_called(const struct zero_job *job);
/* options.c: bit by bit; of @rank, and of @model_rank. Return: 0; -EINVAL, with @text. */
int step_options_compare(const struct zi_step_options *mine, uint32_t rank,
                         const struct zi_step_options *model, uint32_t model_rank,
                         struct zi_text *text);
/* A unit's update begins early when nothing is missing for it. */
void step_unit_advance(struct zero_job *job, uint32_t unit);
/* This rank has handed over the last gradient of the unit in this step, or has none of it. */
bool step_unit_is_handed(const struct zero_rank *rank, uint32_t unit);
/* Return: 0; -ENODATA, op->text names units of which @rank has not handed over all gradients. */
int step_check_handed(const struct zero_rank *rank, struct zero_op *op);
void step_prepare(struct zero_job *job); /* scalars, but for the clip */
void step_units_reset(struct zero_job *job);
void step_updated(struct zero_job *job, int error, const struct zi_text *text); /* pipeline's end */
/* Of a step that is written, once nothing is read any more from the extents that it replaces. */
void step_go_to_commit(struct zero_job *job);
