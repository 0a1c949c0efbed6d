/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters written by a rank. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/device/device.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/param/fetch.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_rank;

/* A rank's writable copy of a unit. Outlives its rank while the device fills it. */
struct zero_write {
	struct zero_job *job;
	struct zero_rank *rank; /* NULL: has left */
	struct zero_op *op;     /* param_write_begin; NULL: done, or timed out */
	uint32_t unit;
	bool is_busy, is_loading;
	struct tier_segment *segment;
	struct dev_task task;
	struct zero_load load; /* with a pool: from the store into the segment */
	int error;
	struct zi_text text;
};

/* The rank that has a unit open for writing, or NULL. */
const struct zero_rank *write_pending(const struct zero_job *job);
void write_drop(struct zero_rank *rank);
void write_over(struct zero_rank *rank); /* the unit is written */
void write_forget(struct zero_rank *rank);
