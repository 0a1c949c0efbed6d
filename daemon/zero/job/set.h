/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameter sets: units that one data-parallel group of ranks trains. The tree of a sum, its
 * average and who owns what are the set's, over its members in the order of ranks; what a node does
 * is over those of them that are here. One set of all ranks until a model names others. Floor 5,
 * shard thread; device threads read.
 */
#pragma once

#include "common/base/types.h"

struct zero_job;

struct zero_set {
	uint64_t members; /* mask of ranks */
	uint32_t member_count;
	uint32_t shard_count; /* members that divide a plane; 1: nothing is divided */
	float average;        /* f32(1 / members) */
};

/* Of job->world and job->training. */
void sets_build(struct zero_job *job);
const struct zero_set *set_of(const struct zero_job *job, uint32_t unit);
/* Ranks that hand a gradient of the unit over, to this node. */
uint64_t set_mask_here(const struct zero_job *job, uint32_t unit);
/* The number of a member's rank. */
uint32_t set_rank(const struct zero_set *set, uint32_t member);
