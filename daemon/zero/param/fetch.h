/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit's parameters into memory, subgroup by subgroup, each from where it is: the store
 * (stored.h), the slot from which it goes there (step/item_lend.h), this node's shard
 * (job/shard.h), another node (across/bytes/fetch_far.h). What it says of device tasks runs on
 * theirs. Floor 5, shard thread.
 */
#pragma once

#include "common/base/types.h"
#include "daemon/device/device.h"
#include "daemon/zero/across/bytes/fetch_far.h"
#include "daemon/zero/param/stored.h"
#include "daemon/zero/zero.h"

struct zero_item;
struct zero_job;
struct zero_subgroup;

/* Subgroups that are on their way at once: enough for a disk's depth, few enough that a demand need
 * not wait long behind what was prefetched. */
#define ZERO_FETCH_MAX 32u

/* A unit on its way to @target. Embedded in its owner, who leaves it and the target
 * alone until `done` ran. */
struct zero_load {
	struct zero_job *job;
	uint32_t unit;
	void *target; /* (padded_count,) of param_dtype, aligned to ZI_STORE_ALIGN_BYTES */
	void (*done)(struct zero_load *load);
	/* results */
	int error; /* 0; -EIO and the like, -EBADMSG damaged; then text says where */
	struct zi_text text;
	/* private */
	struct zi_list link;
	bool is_urgent;
	uint32_t next_index; /* subgroups handed out */
	uint32_t fetch_count;
};

/* One subgroup of a load. */
struct zero_fetch {
	struct zero_load *load; /* NULL: free */
	struct zero_subgroup *subgroup;
	void *target;
	/* one of these */
	struct stored stored;
	struct fetch_far far;
	struct dev_task task;   /* a copy, */
	const void *source;     /* from there */
	struct zero_item *item; /* whose slot that is */
};

struct zero_fetches {
	struct zero_fetch fetches[ZERO_FETCH_MAX];
	uint32_t busy_count;
	struct zi_list urgent, waiting; /* struct zero_load, by link: not all handed out */
	uint64_t read_bytes, pulled_bytes;
};

/* Nothing is under way. */
void fetches_init(struct zero_fetches *fetches);
bool fetches_have_room(const struct zero_fetches *fetches);
/* Nothing is on its way, or waits to be. */
bool fetches_are_idle(const struct zero_fetches *fetches);
/* Which node has not sent a part of @unit, or of any with UINT32_MAX. Return: false, none;
 * @ret_text is untouched. */
bool fetches_say_late(const struct zero_job *job, uint32_t unit, struct zi_text *ret_text);
void fetch_load(struct zero_load *load, bool is_urgent);
void fetch_urge(struct zero_load *load);
bool fetch_drop(struct zero_load *load);
