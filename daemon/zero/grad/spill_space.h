/* SPDX-License-Identifier: Apache-2.0 */
/* Extents of sums that go to the store: reserved when a step begins that needs them, free when it
 * is over. Floor 5, shard thread. */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

struct zero_job;

/* Their turns among the paths (tier/stripe.h), beside those of the planes that are committed. */
#define ZERO_LANE_SUM 2u

/* Bytes of what is reserved, on each path: @bytes (member_count,) and *@sum are added to. */
void spill_add_due(const struct zero_job *job, uint64_t *bytes, uint64_t *sum);
/* Room for all sums of a step. All or nothing. -ENOSPC, -EINVAL with figures. */
int spill_reserve(struct zero_job *job, struct zi_text *text);
/* Nothing is in flight there. */
void spill_release(struct zero_job *job);
/* What a step takes; 0: nothing. */
uint64_t spill_bytes(const struct zero_job *job);
