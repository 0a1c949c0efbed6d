/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of parameters, as stretches of elements: what of a unit lies side by side and is of one
 * group. They are the trainers' and not stored, as is what a step does with them. Floor 5, shard
 * thread; device threads read.
 */
#pragma once

#include "common/base/types.h"
#include "common/wire/control.h"

struct zero_job;
struct zero_layout;
struct zero_rank;

struct zero_stretch {
	uint64_t end;   /* element of the unit behind it; it begins where the one before ends */
	uint32_t group; /* below the job's group_count; ZI_LAYOUT_FROZEN: no gradient, no update */
};

static inline bool stretch_is_frozen(const struct zero_stretch *run)
{
	return run->group == ZI_LAYOUT_FROZEN;
}

/* Groups that the job's ranks name; at least 1. */
uint32_t stretches_group_count(const struct zero_job *job);
/* @rank is about to materialise, with a layout that is the others': its parameters are of groups
 * that there are, the same as in another rank that waits. -EINVAL, naming one. */
int stretches_check(const struct zero_rank *rank, struct zi_text *text);
/* Of the groups in @layout, which is the job's but for them; its units are built. Also what
 * finds parameters without a gradient (step/unused.h). -ENOMEM, -EOPNOTSUPP. */
int stretches_build(struct zero_job *job, const struct zero_layout *layout, struct zi_text *text);
/* Of a unit, whose parameters begin at @param. @used: (param_count,) bits: what is not set counts
 * as frozen; NULL: all are. @stretches: NULL, they are only counted; else there is room for one for
 * each of its parameters. Return: how many. */
uint32_t stretches_of_unit(const struct zero_job *job, uint32_t unit, uint32_t param,
                           const uint64_t *used, struct zero_stretch *stretches);
/* A step begins: of a unit that is frozen whole nobody makes the blocks of the norm. */
void stretches_clear_norm(struct zero_job *job);
void stretches_unbuild(struct zero_job *job);
/* The run with @element of @unit, padding included; those behind it follow. */
const struct zero_stretch *stretches_find(const struct zero_job *job, uint32_t unit,
                                          uint64_t element);
/* Frozen elements among @count from @element of @unit on, at @values of @width bytes each, are +0
 * from here on, as padding is. Device threads. */
void stretches_clear(const struct zero_job *job, uint32_t unit, uint64_t element, uint64_t count,
                     void *values, uint32_t width);
