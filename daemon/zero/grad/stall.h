/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a rank that waits for a bucket will ever have one. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero.h"

struct zero_job;

/* @op, in its rank's list, never ends unless somebody gives up. */
bool stall_is_certain(const struct zero_op *op);
/* -EDEADLK, with who holds what. */
int stall_refuse(struct zero_op *op);
/* Somebody waits who did not, or what was waited for has come: acquires that never end are refused.
 */
void stall_look(struct zero_job *job);
/* The rank waits for a gradient's room which it does not get as long as it and the ranks of
 * @still_mask stand still. */
bool stall_waits(struct zero_job *job, const struct zero_rank *rank, uint64_t still_mask);
