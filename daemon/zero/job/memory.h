/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of a job: what is missing is charged, built and handed out. Floor 5, shard thread.
 */
#pragma once

#include "common/base/types.h"
#include "daemon/device/device.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/zero.h"

struct zero_job;

/* A step's pipeline needs one slot to read, one to compute and one to write. */
#define ZERO_STAGING_SLOTS_MIN 3u
#define ZERO_STAGING_SLOTS_MAX 4096u

/* A segment that is being built on a device thread. */
struct zero_build {
	struct zero_job *job;
	struct tier_segment *segment;
	struct dev_task task;
	int error;
	struct zi_text text;
};

/* Charges what is missing and fills job->builds. On failure nothing is left behind. */
int memory_plan(struct zero_job *job, struct zi_text *text);
/* One of them: charged, to be built, then in *@ret_place, which is NULL. -ENOSPC, -EDQUOT with
 * figures, and what would fit. */
int memory_plan_segment(struct zero_job *job, const char *name, uint64_t bytes,
                        enum tier_pages pages, struct tier_segment **ret_place,
                        struct zi_text *text);
enum tier_pages memory_pages(uint64_t bytes);
/* After every segment was built. */
int memory_finish(struct zero_job *job, struct zi_text *text);
int memory_hand_out(struct zero_job *job);
/* The pipeline's items, of a job that has given back what serves an incarnation. -ENOMEM. */
int memory_plan_items(struct zero_job *job);
