/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gradients take on a node: a whole plane for each rank, or, where a strategy divides them,
 * *buckets*, memory of each rank for a few units, and their sums once. Pure, so that daemon and
 * estimates say the same. Floor 1, any thread.
 *
 *                          each rank       beside them
 *   whole                  all units       nothing: the sum lies in the first rank's
 *   buckets                two units       the sums of all units
 * With state on NVMe a budget bounds both: what of the sums it has no room for beside two units of
 * each rank goes to the store, and what is summed for other nodes alone passes through. Tables of
 * who has which bucket come on top, whatever the budget: for each rank a few bytes a unit, and a
 * run for each bucket that there can be at a time. Buckets are taken where they are less: in one
 * node never with one rank; with two from five equal units on.
 */
#pragma once

#include "common/wire/control.h"
#include "common/wire/training.h"

/* Of the model, in bytes of grad_dtype. */
struct zi_grads_model {
	uint64_t plane_bytes;   /* each unit in whole slots */
	uint64_t whole_bytes;   /* of all ranks of this node: of each the units that it trains */
	uint64_t largest_bytes; /* of the longest unit, in whole slots */
	uint64_t sum_bytes;     /* of all elements with padding */
	uint64_t spill_bytes; /* of ZI_SPILL_SLOTS slots; twice that where sums come from others */
	uint64_t slot_bytes;
	uint32_t rank_count; /* of this node */
	uint32_t unit_count;
};

/* Sums on their way to the store at a time: while one is written the next is made. */
#define ZI_SPILL_SLOTS 2u

/* Of the daemon's tables: a slot's number, and a struct zero_run. */
#define ZI_BUCKET_SLOT_BYTES 4u
#define ZI_BUCKET_RUN_BYTES  32u

struct zi_grads {
	bool is_pooled;      /* buckets */
	uint64_t rank_bytes; /* of each rank, with buckets: whole slots */
	uint64_t sum_bytes;  /* with buckets: memory for sums, at most. The first ones lie there, */
	bool is_stored;      /* the others go to the store, through slots beside it */
	uint64_t table_bytes; /* with buckets: of all ranks */
};

/* Which parameters got a gradient, with ZI_TRAINING_FIND_UNUSED: where each unit's begin, a bit of
 * each for each rank and for all together, and a stretch each. */
#define ZI_UNUSED_STRETCH_BYTES 16u
uint64_t zi_unused_bytes(uint32_t unit_count, uint32_t param_count, uint32_t world_size);

/* 0; -ENOSPC grad_budget_bytes is less than model->largest_bytes. */
int zi_grads_plan(const struct zi_grads_model *model, const struct zi_job_config *config,
                  const struct zi_job_training *training, struct zi_grads *ret_grads);
