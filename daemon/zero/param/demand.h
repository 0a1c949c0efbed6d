/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a demand for which there is no room will ever be met. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero.h"

struct zero_job;

/* The ranks without which @op will not end; 0: it ends by the daemon's work. Of one that waits for
 * a bucket grad/stall.h knows more. */
uint64_t demand_missing_mask(const struct zero_job *job, const struct zero_op *op);
bool demand_is_hopeless(struct zero_job *job);
int demand_refuse(const struct zero_job *job, struct zero_op *op);
