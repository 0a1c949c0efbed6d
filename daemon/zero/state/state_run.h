/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range of one unit's optimizer state between a rank's window and where the state lies, subgroup
 * by subgroup: in memory, or on the store. Floor 5, shard thread, but for what state_run.c says of
 * device tasks.
 *
 * A subgroup on the store is read into scratch memory, verified, changed, hashed and written to the
 * extent of the commit to come. So a range never needs more scratch than one subgroup takes.
 */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/state.h"
#include "daemon/device/device.h"
#include "daemon/tier/move.h"
#include "daemon/zero/param/stored.h"

struct tier_segment;
struct zero_job;
struct zero_subgroup;

enum state_action {
	STATE_GET,    /* state → window */
	STATE_PUT,    /* window → state */
	STATE_FOLLOW, /* the master follows written parameters: its remainder becomes zero */
};

/* Embedded in its owner, who leaves it alone until `done` ran. */
struct state_run {
	struct zero_job *job;
	enum state_action action;
	uint32_t unit;
	enum zi_state_kind kind; /* GET, PUT: the job has it (state_has_kind()) */
	uint64_t first, count;   /* elements of the unit; count > 0 */
	/* (count,) 32 bits each: of moments f32, of remainders int32. NULL: FOLLOW. The run holds a
	 * reference until it ends. */
	struct tier_segment *window;
	void (*done)(struct state_run *run); /* once, never from state_run_start() */
	bool is_void;                        /* nobody wants it any more: it ends soon */
	/* results */
	int error; /* -EBADMSG, -EIO and the like; then text says where */
	struct zi_text text;
	/* private */
	uint32_t generation;          /* of the group that asked */
	struct tier_segment *scratch; /* NULL: all of it lies in memory */
	uint32_t next_index, end_index;
	struct zero_subgroup *subgroup;
	uint32_t hash_index; /* of what is written */
	bool is_zero;        /* nothing is stored of the subgroup: its state is zero */
	struct stored stored;
	struct tier_move move;
	struct dev_task task;
};

/* Does the job's optimizer have it? */
bool state_has_kind(const struct zero_job *job, enum zi_state_kind kind);
/* Its state of the commit to come lies in the extent of that: a commit only names it. */
bool state_is_stored(const struct zero_subgroup *subgroup);
/* What was written of the subgroup's state and not committed is void. */
void state_void(struct zero_subgroup *subgroup);
/* PUT and FOLLOW: no step may be under way, nor steps be uncommitted; all of the unit is here. GET:
 * the job's state may not change before the end. -ENOSPC, -EDQUOT with figures: nothing has
 * changed. A PUT or FOLLOW that fails later has changed a part. */
int state_run_start(struct state_run *run, struct zi_text *text);
