/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node has of a model, where nodes divide planes: whole subgroups, dealt out as in owner.h.
 * Pure arithmetic. Floor 1, any thread.
 *
 * A unit's subgroups are full but for the last. So those of them that are here are as those of a
 * shorter unit, and a part is a model.
 */
#pragma once

#include "common/wire/owner.h"
#include "common/wire/plan.h"

struct zi_plan_part {
	struct zi_plan_model held;   /* subgroups that are held: state, extents, own parameters */
	struct zi_plan_model summed; /* those whose sums are here: made here, or needed */
	uint64_t finished_count;     /* elements whose sums are made here */
	/* private */
	uint64_t *padded;
};

/* @model, @options: checked. -ENOMEM. */
int zi_plan_part_make(const struct zi_plan_model *model, const struct zi_plan_options *options,
                      struct zi_plan_part *ret_part);
void zi_plan_part_free(struct zi_plan_part *part);
uint64_t zi_plan_subgroups(const struct zi_plan_model *model);
/* Of held subgroups the longest, from number @first on, in elements; 0: there are none. */
uint64_t zi_plan_longest(const struct zi_plan_model *model, uint64_t first);

/* Ranks on the node: bits. */
uint64_t zi_plan_here(const struct zi_plan_options *options);
/* Ranks of a set, of which there is one of all where a model names none: bits. */
uint32_t zi_plan_set_count(const struct zi_plan_model *model);
uint64_t zi_plan_members(const struct zi_plan_model *model, const struct zi_plan_options *options,
                         uint32_t set);
uint32_t zi_plan_set_of(const struct zi_plan_model *model, uint32_t unit);
/* Each rank's share of the model, wherever it is: what it stands for (owner.h). */
void zi_plan_shares(const struct zi_plan_model *model, const struct zi_plan_options *options,
                    struct zi_share *ret_shares);
