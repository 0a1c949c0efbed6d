/* SPDX-License-Identifier: Apache-2.0 */
/* How a snapshot comes about. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/zero.h"

struct zero_job;

/* Where its phase lets it, what waits for this job goes on. */
void snapshot_retry(struct zero_job *job);
/* State in memory alone can be written now: nothing changes it, and no step is kept waiting that a
 * rank which waits for the snapshot would have to end. */
bool snapshot_is_writable(const struct zero_job *job, bool is_kept_by_all);
/* Nobody will end its steps any more: what waits for it is refused. */
void snapshot_cancel(struct zero_job *job, int error, const char *why);
/* The step, in which the KEEP pipeline began, is no more. */
void snapshot_outlives_step(struct zero_job *job);
/* The KEEP pipeline has ended. */
void snapshot_written(struct zero_job *job, int error, const struct zi_text *text);

/* The job has committed; it stood at @former_step before. */
void snapshot_keep_due(struct zero_job *job, int64_t former_step);
/* The catalog has taken it, or not. */
void snapshot_stored(struct catalog_request *request);
