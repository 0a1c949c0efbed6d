/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A subgroup's newest parameters or optimizer state from the store, verified. What
 * it says of device tasks runs on theirs. Floor 5, shard thread.
 */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/device/device.h"
#include "daemon/tier/move.h"

struct zero_job;
struct zero_subgroup;

#define STORED_TILES (ZI_SUBGROUP_ELEMENTS / ZI_TILE_ELEMENTS)

/* Embedded in its owner, who leaves it and the target alone until `done` ran. */
struct stored {
	struct zero_subgroup *subgroup;      /* this node has that plane of it on its store */
	uint32_t plane;                      /* ZERO_PLANE_PARAM: 0 */
	void *target;                        /* of its elements, aligned to ZI_STORE_ALIGN_BYTES */
	void (*done)(struct stored *stored); /* once, never from stored_read() */
	/* results */
	int error; /* 0; -EIO and the like, -EBADMSG damaged; then text says where */
	struct zi_text text;
	uint64_t read_bytes;
	/* private */
	bool is_stored;                /* no: never written, all zero */
	uint64_t hashes[STORED_TILES]; /* (tile_count,) that it must have: copied, as the job's
	                                * array may be written when this comes late */
	struct tier_move move;
	struct dev_task task;
};

/* Its extents must not be released before `done`. Counted in busy_count until then; the job is
 * settled after it. tier_move_kick() follows. */
void stored_read(struct stored *stored);
/* There is nothing to read: `done` tells @error and @text. */
void stored_fail(struct stored *stored, int error, const struct zi_text *text);
