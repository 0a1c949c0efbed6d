/* SPDX-License-Identifier: Apache-2.0 */
/* A subgroup on its way through a pipeline: read, computed, written. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/device/device.h"
#include "daemon/tier/move.h"
#include "daemon/zero/across/bytes/fetch_far.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_subgroup;

enum zero_item_stage {
	ZERO_ITEM_FREE,
	ZERO_ITEM_READING,
	ZERO_ITEM_LOADED,
	ZERO_ITEM_COMPUTING,
	ZERO_ITEM_WRITING
};

/* One subgroup on its way through the pipeline. */
struct zero_item {
	struct zero_job *job;
	struct zero_subgroup *subgroup;
	enum zero_item_stage stage;
	void *slot;          /* of staging; NULL: none */
	void *state;         /* where the state is now; NULL: not needed */
	void *param;         /* where the parameters are; NULL: not here yet */
	bool is_staged;      /* the state is in the slot */
	bool is_warm;        /* it was there from the step before: nothing to read */
	bool is_pooled;      /* the parameters are in the pool, which holds them for it */
	bool is_copy;        /* of parameters that another node updates: job_keeps_copy() */
	bool is_param_read;  /* the parameters came from the store, into the slot */
	void *sum;           /* of gradients, where the update wants one; NULL: not here yet */
	bool is_sum_read;    /* it came from the store, into the slot */
	bool is_state_zero;  /* there is nothing to read: all zero */
	uint32_t move_count; /* in flight */
	struct tier_move moves[_ZERO_PLANE_COUNT], sum_move;
	struct fetch_far far; /* of a copy (job_keeps_copy()): from who has updated it */
	struct dev_task task;
	int error;
	struct zi_text text;
};

/* False when it must wait for a staging slot. */
bool item_begin(struct zero_item *item, struct zero_subgroup *subgroup);
bool item_is_ready(const struct zero_item *item); /* may be computed once it is LOADED */
void item_go_on(struct zero_item *item);          /* LOADED and ready */
void item_moved(struct zero_item *item);          /* one move less in move_count */
void item_finish(struct zero_item *item);         /* to FREE; nothing of it is in flight */
