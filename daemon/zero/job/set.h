/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameter sets: units that one data-parallel group of ranks trains. The tree of a sum, its
 * average and who owns what are the set's, over its members in the order of ranks; what a node does
 * is over those of them that are here. One set of all ranks where a model names none. Floor 5,
 * shard thread; device threads read.
 *
 * In the gradients of a rank lie those of its sets, one after the other in their order, each with
 * its units in theirs; libclient computes the same (materialize.c there).
 */
#pragma once

#include "common/base/types.h"
#include "common/wire/control.h"

struct zero_job;

struct zero_set {
	uint64_t members; /* mask of ranks */
	uint32_t member_count;
	uint32_t shard_count; /* members that divide a plane; 1: nothing is divided */
	float average;        /* f32(1 / members) */
	float factor;         /* of the step under way: what its sums are multiplied by */
	uint64_t grad_bytes;  /* gradients of its units, of one member */
	uint64_t grad_bases[ZI_WORLD_MAX]; /* of each member: where they begin in its plane */
};

/* The model names them, for a world like this one; else there is one of all ranks. */
bool sets_are_named(const struct zero_job *job);
/* Of job->world, ->training and ->layout, which is built: also where gradients lie. -ENOMEM. */
int sets_build(struct zero_job *job);
const struct zero_set *set_of(const struct zero_job *job, uint32_t unit);
/* Its name, for sentences: "all ranks" where the model names none. */
const char *set_name(const struct zero_job *job, uint32_t unit);
/* Is the rank one of the unit's? */
bool set_has(const struct zero_job *job, uint32_t unit, uint32_t rank);
/* … and trains it, as it is not frozen whole. */
bool set_trains(const struct zero_job *job, uint32_t unit, uint32_t rank);
/* Ranks that hand a gradient of the unit over, to this node. */
uint64_t set_mask_here(const struct zero_job *job, uint32_t unit);
/* The number of a member's rank. */
uint32_t set_rank(const struct zero_set *set, uint32_t member);
/* Gradients of all sets that the rank is a member of; at least a page. */
uint64_t set_grad_bytes(const struct zero_job *job, uint32_t rank);

struct set_ranks {
	char chars[64];
};
/* "0, 2, 5-7", for sentences; what is too long ends in "...". */
struct set_ranks set_format(uint64_t members);
