/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a job, its catalog rows and extents. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"

struct zero;
struct zero_job;

bool delete_is_under_way(const struct zero *zero, uint32_t uid);
/* For jobs without ranks. The catalog is asked at once, or in the loop's first turn. */
void job_delete(struct zero_job *job);
void job_delete_later(struct zero_job *job);
/* What zero_job_destroy() waited for is over. May free the job. */
void job_destroy_go(struct zero_job *job);
