/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients, summed over ranks. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"

#include <stdint.h>

struct zero_job;
struct zero_subgroup;

/* A subgroup's part of it, whose place is known; reduce_end() follows. */
void reduce_start(struct zero_subgroup *subgroup);
/* Its sum is where it stays, or lost. The job may be gone afterwards, if its step was aborted. */
void reduce_end(struct zero_subgroup *subgroup);
void reduce_unit(struct zero_job *job, uint32_t unit);
/* f32 gradients, or their sums, that a type of 16 bits is to hold take its values, in place;
 * others stay as they are. @values: (@count,). Any thread. */
void reduce_round(const struct zero_job *job, float *values, uint64_t count);
/* This micro-batch's sum is made of what the ranks here handed over: their buffers are free, but
 * for the last one's where it lies. May end the job. */
void reduce_unit_over(struct zero_job *job, uint32_t unit);
