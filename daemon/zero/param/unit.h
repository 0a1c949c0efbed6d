/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on one unit that wait for the daemon. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero.h"

void unit_try_unshard(struct zero_op *op);
void unit_forget(const struct zero_rank *rank);
/* One more of its subgroups is at the step under way: the last one lets ranks go on. */
void unit_updated(struct zero_job *job, uint32_t unit);
/* Words for a gradient of a set that the rank is not in. -EPERM. */
int unit_refuse_foreign(struct zero_op *op);
