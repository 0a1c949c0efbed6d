/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of gradients that have no room in memory: written as they are made, to extents that no
 * commit names, and read by the update. Floor 5, shard thread; device threads write their
 * subgroup's checksums.
 *
 *   sum wanted ─▶ waiting ─▶ a slot: computed ─▶ written ─▶ stored ─▶ read by its item (item.c)
 */
#pragma once

#include "common/base/list.h"
#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/grads.h"
#include "daemon/tier/move.h"

struct zero_job;
struct zero_subgroup;

/* Their turns among the paths (tier/stripe.h), beside those of the planes that are committed. */
#define ZERO_LANE_SUM 2u

/* A sum on its way to the store. */
struct zero_spill_slot {
	struct zero_subgroup *subgroup; /* NULL: free */
	void *memory;
	struct tier_move move;
};

struct zero_spill {
	struct zero_spill_slot slots[ZI_SPILL_SLOTS];
	uint32_t used_count;
	struct zi_list waiting; /* subgroups, by spill_link */
	uint64_t stored_bytes;  /* of all of them */
	uint64_t *hashes;       /* (tile_count,) */
};

/* Of a job with subgroups whose is_sum_stored. -ENOMEM. */
int spill_new(struct zero_job *job);
void spill_free(struct zero_job *job);
/* Of the longest subgroup. */
uint64_t spill_slot_bytes(const struct zero_job *job);
/* @memory: ZI_SPILL_SLOTS slots. */
void spill_place(struct zero_job *job, void *memory);
/* Its sum is to be made, and goes to the store. */
bool spill_is_due(const struct zero_subgroup *subgroup);
/* Where: subgroup->sum. False: it waits, and reduce_start() follows. */
bool spill_take(struct zero_subgroup *subgroup);
/* Device thread: its checksums. */
void spill_hash(const struct zero_subgroup *subgroup, const void *sum);
/* Device thread: is a tile of it what was written? -EBADMSG with where it lies. */
int spill_verify(const struct zero_subgroup *subgroup, const void *sum, uint32_t tile,
                 struct zi_text *text);
/* It is made; reduce_end() follows when it is written, or will not be. */
void spill_write(struct zero_subgroup *subgroup);
/* It is made in vain. */
void spill_drop(struct zero_subgroup *subgroup);
/* The step is over: what waits is not made any more. */
void spill_abort(struct zero_job *job);
/* Nothing is on its way to an extent. */
bool spill_is_idle(const struct zero_job *job);
/* Bytes of what is reserved, on each path. */
void spill_add_due(const struct zero_job *job, uint64_t *bytes, uint64_t *sum);
/* Room for all sums of a step. All or nothing. -ENOSPC with figures. */
int spill_reserve(struct zero_job *job, struct zi_text *text);
/* Nothing is in flight there. */
void spill_release(struct zero_job *job);
uint64_t spill_bytes(const struct zero_job *job);
