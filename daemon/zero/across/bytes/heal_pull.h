/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this node shall hold and does not, from nodes that held it: pulled into a few buffers,
 * verified by the checksums that come with it, and written to new extents, `next` of their places,
 * which its owner reserves before and takes, or gives back, after. Then blobs of ranks that are
 * here now. Floor 5, shard thread.
 */
#pragma once

#include "daemon/tier/move.h"
#include "daemon/zero/across/bytes/heal_serve.h"
#include "daemon/zero/across/bytes/pieces.h"

struct heal;
struct heal_pull;

/* Pieces on their way at a time. */
#define HEAL_TAKES 4u

typedef void (*heal_pulled_fn)(struct heal *heal, int error, const struct zi_text *text);

/* One subgroup's plane, or a rank's blob. */
struct heal_take {
	struct heal_pull *pulls;
	bool is_active;
	enum heal_what what;
	struct zero_subgroup *subgroup;
	uint32_t rank;   /* HEAL_BLOB */
	uint32_t source; /* node */
	uint64_t record_bytes, bytes;
	struct heal_record record;
	char *buffer, *data; /* its own; where its bytes go */
	int error;
	struct zi_text text;
	struct pieces pieces;
	struct tier_move move;
};

struct heal_pull {
	struct heal *heal;
	struct across *across;
	heal_pulled_fn done;
	uint32_t subgroup, plane, rank; /* the next to begin with */
	uint32_t active_count;
	uint32_t blob_index; /* where blobs go */
	int error;           /* the first */
	struct zi_text text;
	struct zi_post post; /* tells of it */
	uint64_t came_bytes;
	uint64_t *steps[2]; /* (subgroup_count,) that wrote what has come, by plane */
	struct heal_take takes[HEAL_TAKES];
};

/* The node that this one has that plane from: of those that have it one after the other. */
uint32_t heal_source(const struct heal *heal, uint32_t subgroup, uint32_t plane);

/* (HEAL_TAKES × buffer_bytes,) at @memory. -ENOMEM. */
int heal_pull_begin(struct heal_pull *pulls, struct heal *heal, char *memory,
                    uint64_t buffer_bytes);
void heal_pull_end(struct heal_pull *pulls);
/* @done: from the loop, or before this returns where there is nothing; nothing of it is in flight
 * then. Blobs lie in job->blobs[@blob_index]. */
void heal_pull_start(struct heal_pull *pulls, uint32_t blob_index, heal_pulled_fn done);
