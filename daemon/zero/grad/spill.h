/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of gradients that have no room in memory: a few slots, through which they go to the store as
 * they are made (spill_write.h), to extents that no commit names (spill_space.h), and from there to
 * the update. Floor 5, shard thread.
 *
 *   sum wanted ─▶ waiting ─▶ a slot: computed ─▶ written ─▶ stored ─▶ read by its item (item.c)
 *
 * Over nodes a sum lies in its slot until it is made of all its pieces, written where the state is
 * here, and given to all who need it (across/sums/grads_spill.h). Sums that come from other nodes
 * have slots of their own: those that are made here may be held until others have taken them, who
 * need a slot for that.
 */
#pragma once

#include "common/base/list.h"
#include "common/wire/grads.h"
#include "daemon/device/device.h"
#include "daemon/tier/move.h"

struct zero_job;
struct zero_subgroup;

#define ZERO_SPILL_SLOTS_MAX (2 * ZI_SPILL_SLOTS)

/* It is written, or will not be: job->pipeline.error, or the step is no more. The job may end. */
typedef void (*spill_ended_fn)(struct zero_subgroup *subgroup);

/* A sum on its way to the store. */
struct zero_spill_slot {
	struct zero_subgroup *subgroup; /* NULL: free */
	void *memory;
	bool is_busy; /* somebody works on it, who ends by himself */
	spill_ended_fn ended;
	struct dev_task task; /* its checksums, where they were not made with it */
	struct tier_move move;
};

struct zero_spill {
	/* of what is made here, and behind them of what comes from other nodes */
	struct zero_spill_slot slots[ZERO_SPILL_SLOTS_MAX];
	uint32_t slot_count; /* of both: the latter are there, or are not */
	uint32_t used_count;
	struct zi_list waiting; /* subgroups, by spill_link */
	uint64_t stored_bytes;  /* of all that are written in a step */
	uint64_t *hashes;       /* (tile_count,) */
};

/* Slots of a job: more where sums come from other nodes. */
uint32_t spill_slot_count(const struct zero_job *job);
/* Of the longest subgroup whose sum may be in one. */
uint64_t spill_slot_bytes(const struct zero_job *job);
/* Of a job with subgroups whose is_sum_stored. -ENOMEM. */
int spill_new(struct zero_job *job);
void spill_free(struct zero_job *job);
/* @memory: all slots. */
void spill_place(struct zero_job *job, void *memory);
/* Its sum is to be made, and goes through a slot. */
bool spill_is_due(const struct zero_subgroup *subgroup);
/* Where: subgroup->sum. False: there is none; over nodes grads_spill_more() follows. */
bool spill_have(struct zero_subgroup *subgroup);
/* The same, of one that is made in one go, and is busy from now on. False: it waits, and
 * reduce_start() follows. */
bool spill_take(struct zero_subgroup *subgroup);
/* Its slot is the next one's, which begins at once. */
void spill_give(struct zero_subgroup *subgroup);
/* The step will not be: what waits is not made any more. */
void spill_abort(struct zero_job *job);
/* The step is over: nor does anybody wait for what is in a slot. What is busy is given back when it
 * has ended. */
void spill_lose(struct zero_job *job);
/* Nothing is in a slot, or on its way to an extent. */
bool spill_is_idle(const struct zero_job *job);
