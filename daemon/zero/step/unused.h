/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that got no gradient in a step (ZI_TRAINING_FIND_UNUSED). A rank names those of its
 * own before it hands a unit over, and writes zeros for them; what no rank has a gradient of is
 * left alone by the step, as what is frozen is. Floor 5, shard thread.
 *
 * Over nodes each knows of its own ranks alone until all have called step() and nodes have told
 * each other (across/agree/used.h): sums are made before that, where zeros are zeros.
 */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/tier/account.h"

struct zero_job;
struct zero_rank;
struct zero_stretch;

struct zero_unused {
	uint32_t *param_firsts; /* (unit_count + 1,) the first parameter of each unit */
	uint32_t word_count;    /* of a bit for each parameter */
	/* (world × word_count,) named by each rank since it last handed their unit over */
	uint64_t *named;
	uint64_t *used; /* (word_count,) some rank has a gradient of it, in this step */
	/* (param_count,) of units with parameters that nobody used, from the unit's first parameter
	 * on, in the place of job->stretches */
	struct zero_stretch *stretches;
	struct tier_charge charge;
};

/* Of a job whose stretches are built, as it trains now: what it had goes. Return: 0; -ENOMEM with
 * @text. */
int unused_build(struct zero_job *job, struct zi_text *text);
/* The job's units stay. */
void unused_drop(struct zero_job *job);
void unused_unbuild(struct zero_job *job);
/* Its tables are charged to the job. Return: 0; -ENOSPC, -EDQUOT with figures. */
int unused_charge(struct zero_job *job, struct zi_text *text);
uint64_t unused_charged_bytes(const struct zero_job *job);
/* A step begins: no device thread has anything to do with the former one any more. */
void unused_reset(struct zero_job *job);
/* The rank hands the unit over: what it has not named is used. */
void unused_hand_over(const struct zero_rank *rank, uint32_t unit);
/* It did not come to that: names are given anew. */
void unused_forget(const struct zero_rank *rank, uint32_t unit);
/* Of a unit whose cut_count is not 0. Device threads. */
const struct zero_stretch *unused_stretches(const struct zero_job *job, uint32_t unit);
/* Every rank has handed over the last micro-batch's, and no device thread has begun with it. */
void unused_settle(struct zero_job *job, uint32_t unit);
/* Of all units: what all ranks used is known, and no device thread works on sums. */
void unused_settle_all(struct zero_job *job);
