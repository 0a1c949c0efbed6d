/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A subgroup's parameters from the node that holds them, where nodes divide them (params.h has
 * that node's side): pulled in pieces, each copied by a pool thread. Floor 5, shard thread.
 */
#pragma once

#include "daemon/device/device.h"
#include "daemon/zero/across/bytes/pull.h"

struct across;
struct zero_job;
struct zero_subgroup;

/* Embedded in its owner, who leaves it and the target alone until `done` ran. */
struct fetch_far {
	struct zero_subgroup *subgroup;
	void *target;                        /* of its elements */
	void (*done)(struct fetch_far *far); /* once, never from fetch_far_begin() */
	/* results */
	int error; /* 0; else the group has broken, or is about to, or nobody has them any more */
	struct zi_text text;
	/* private */
	struct across *across; /* NULL: there was none any more */
	uint32_t piece;
	struct pull pull;
	struct dev_task task;
};

/* Counted in busy_count until `done`; the job is settled after it. */
void fetch_far_begin(struct fetch_far *far);
