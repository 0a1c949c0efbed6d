/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulls, and then a task on a pool thread that has the memory of all of them. Floor 5, shard
 * thread.
 */
#pragma once

#include "daemon/device/device.h"
#include "daemon/zero/across/bytes/pull.h"

struct across;
struct fetch;
struct zero_job;

/* On a device thread, while all of fetch->pulls are there. */
typedef void (*fetch_run_fn)(struct fetch *fetch);
/* Nothing of it is in flight any more. @is_whole: it has run, and nodes talk yet: the job may end
 * with this; else nothing may begin any more. */
typedef void (*fetch_ended_fn)(struct fetch *fetch, bool is_whole);

/* Embedded in its owner. */
struct fetch {
	struct across *across;
	fetch_run_fn run;
	fetch_ended_fn ended;
	struct pull *pulls; /* (pull_count,) what they are of is filled in by the owner */
	uint32_t pull_count;
	/* private */
	struct zero_job *job;
	bool is_active, has_failed;
	uint32_t pending;
	struct dev_task task;
};

/* Precondition: the job's nodes talk; it is not active. At least one pull. Ends from the loop. */
void fetch_start(struct fetch *fetch);
static inline bool fetch_is_active(const struct fetch *fetch)
{
	return fetch->is_active;
}
