/* SPDX-License-Identifier: Apache-2.0 */
/* The time of calls that wait (op.h). Floor 5, shard thread. */
#pragma once

#include "daemon/zero/job/gather.h"

struct zero_job;

/* What waits is looked at then, or before. ZI_DEADLINE_NEVER: it has no time. */
void op_expire_at(struct zero_job *job, uint64_t deadline_ns);
/* Adds to @text which ranks of this node have not come, and what they did instead. Return: the
 * first, or UINT32_MAX. */
uint32_t op_say_absent(const struct zero_job *job, enum zero_gather gather, struct zi_text *text);
