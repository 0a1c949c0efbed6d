/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that have no data left, while others have (zinf_join()). Floor 5, shard thread. */
#pragma once

#include "daemon/zero/zero.h"

struct zero_job;

/* STEP_BEGIN of a rank that has joined: completes or leaves it waiting. */
void join_try(struct zero_op *op);
/* A rank with data has begun a step: those that wait for one begin it too. */
void join_step(struct zero_job *job, const struct zero_rank *first);
/* The rank has joined the step under way. */
bool join_has(const struct zero_job *job, uint32_t rank);
/* Ranks here that do not wait as joined. */
uint64_t join_missing(const struct zero_job *job);
