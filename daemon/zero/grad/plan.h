/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a job's gradients: planned with all of its memory (job/memory.c). Floor 5, shard
 * thread. */
#pragma once

#include "common/base/text.h"

struct zero_job;

/* Buckets or planes, and which sums go to the store: before anything is charged. -ENOSPC a budget
 * below the longest unit; -ENOMEM. */
int grads_choose(struct zero_job *job, struct zi_text *text);
/* Charges it. What was charged before a failure is the job's. -ENOSPC, -EDQUOT with figures. */
int grads_plan(struct zero_job *job, struct zi_text *text);
/* After it was built: where sums lie. */
void grads_place(struct zero_job *job);
/* Nothing is in flight on it. What is in doubt keeps its sums (step/doubt.h), */
void grads_drop(struct zero_job *job);
/* until here. */
void grads_drop_sums(struct zero_job *job);
uint64_t grads_held_bytes(const struct zero_job *job);
