/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of several nodes on state in memory alone: it is made in place, so there is no way back
 * from it, and yet all nodes shall make it, or none. Floor 5, shard thread.
 *
 *   all sums are here ─▶ said to all (agree/summed.h) ─▶ all have said it: the update, to its end,
 *                           │                     whoever dies
 *                           │ the group breaks: have others heard all?
 *                           ▼
 *                        IN DOUBT: sums, options, scalars stay, whatever becomes of the ranks
 *                           ├─ another node has made it: it is made here too ─▶ committed
 *                           └─ no node has: it is dropped
 * A node that has made it has heard that all nodes can; so no node is further than that one step
 * ahead of one that is in doubt of it, and those that are neither are behind it on no node's word:
 * then none has made it. Who knows which holds are the nodes together, when ranks come again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/catalog/catalog.h"
#include "daemon/zero/step/step.h"

struct zero_job;

/* 0, or it is as it was, in doubt, with @text. The job may end with it. */
typedef void (*doubt_settled_fn)(struct zero_job *job, int error, const struct zi_text *text);

struct zero_doubt {
	bool is_on;
	struct zero_step step; /* as it was when its outcome was lost */
	struct catalog_placement placement;
	uint64_t number;          /* as which it would be committed */
	doubt_settled_fn settled; /* while it is being made */
};

/* As what a step is committed, or would be: alike on all nodes that have made it. */
struct doubt_name {
	int64_t step;
	uint64_t number, line;
};

/* What this node offers when nodes ask each other: true, it is in doubt of @ret_name. Else it has
 * made what it has committed, and no more. */
bool step_doubt(const struct zero_job *job, struct doubt_name *ret_name);
/* @is_updated: some node has committed what this one is in doubt of. @settled comes in any case,
 * possibly before this returns. Precondition: step_doubt(); nothing is in flight. */
void step_doubt_settle(struct zero_job *job, bool is_updated, doubt_settled_fn settled);

/* ---- for the step ---- */

/* The step under way ends here, and others may make it. */
void doubt_keep(struct zero_job *job);
/* It was made: as of now it is a step like others. */
void doubt_over(struct zero_job *job);
/* Nobody asks any more. No-op where there is no doubt. */
void doubt_forget(struct zero_job *job);
