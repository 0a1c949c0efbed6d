/* SPDX-License-Identifier: Apache-2.0 */
/* Whose gradient is not finite. Floor 5. */
#pragma once

#include "common/base/types.h"

struct zero_job;
struct zero_subgroup;

/* What a sum was made of. */
struct culprit_sum {
	const void *const *sources; /* (source_count,) of the ranks here that have the unit */
	uint32_t source_count;
	const void *sum;
	enum zi_dtype sum_dtype;
	enum zi_dtype rounded_to; /* what it was; F32 where it is an accumulator's */
	const void *lost;         /* the source that was written over since; NULL: none */
};

#define CULPRIT_NONE   UINT32_MAX        /* all is finite */
#define CULPRIT_UNTOLD (UINT32_MAX - 1u) /* it is not, and nobody's gradient need be the reason */

/* The subgroup's blocks of the norm were made of this sum, or of what was made of it. Any device
 * thread, of its own subgroup; costs nothing where all is finite. */
void culprit_look(struct zero_subgroup *subgroup, const struct culprit_sum *sum);
/* The first of all subgroups. False: there is none. *@ret_rank: UINT32_MAX, not told. Shard thread,
 * while nothing is being reduced. */
bool culprit_find(const struct zero_job *job, uint32_t *ret_rank, uint32_t *ret_unit);
