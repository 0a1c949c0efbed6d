/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets of a job's ranks: whose units lie where. Floor 5, shard thread; what device threads read
 * is in grads.h. */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/tier/account.h"
#include "daemon/zero/grad/bucket.h"

struct zero_job;

struct zero_grad_pool {
	struct tier_charge charge;                 /* of all tables here */
	uint32_t *slot_counts;                     /* (unit_count,) of a bucket of each unit */
	uint32_t slot_count;                       /* of each rank */
	struct zero_buckets buckets[ZI_WORLD_MAX]; /* of ranks that are here */
};

/* As job->grad_plan has it; its tables are charged. -ENOSPC, -EDQUOT with figures, -ENOMEM. */
int grad_pool_new(struct zero_job *job, struct zi_text *text);
void grad_pool_free(struct zero_job *job);                    /* none is fine */
uint64_t grad_pool_charged_bytes(const struct zero_job *job); /* likewise */
/* Where the rank's gradient of the unit begins in its segment; made room for where it has no
 * bucket. False: there is no room. */
bool grad_pool_take(struct zero_job *job, uint32_t rank, uint32_t unit, uint64_t *ret_offset);
/* The rank has it: acquired, and perhaps handed over. */
bool grad_pool_has(const struct zero_job *job, uint32_t rank, uint32_t unit);
/* No rank has a bucket of the unit any more, whatever it was to do with it. No pool is fine. */
void grad_pool_clear(struct zero_job *job, uint32_t unit);
/* The daemon is done with what ranks of @mask handed over: their next acquire goes on. */
void grad_release(struct zero_job *job, uint32_t unit, uint64_t mask);
