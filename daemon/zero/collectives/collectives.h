/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of a job's incarnation: opened together by all ranks, with or without a model. The
 * memory is charged and made here; what goes on in it is daemon/coll's. Floor 5, shard thread.
 *
 *   NONE ──all opened──▶ BUILDING ──────one node──────▶ OPEN
 *    ▲                      │  └──▶ JOINING ──all met──▶ │
 *    │                      │          │                 │
 *    └──an error, or the incarnation is over◀────────────┘
 *
 *   collectives.c   memory, the end; collectives_open.c   opening; collectives_group.c   groups
 *   named.c         groups that their members make by name
 *
 *   arenas     one segment, a part for each rank (arenas.h); ranks read and write all of it
 *   boards     one per group, of as many parts as the job has ranks: a number that is used again
 *              has its board again, zeroed, since processes hold what they received until they end
 *   verdicts   the daemon writes them, ranks read
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/wire/control.h"
#include "common/wire/verdict.h"
#include "daemon/device/device.h"
#include "daemon/zero/collectives/named.h"

struct coll;
struct far;
struct tier_segment;
struct zero_job;
struct zero_rank;

struct zero_collectives {
	bool is_building;
	bool is_joining;             /* building, and the arenas are there: other nodes are not */
	uint32_t generation;         /* of the group they are for */
	struct coll *coll;           /* NULL: not open */
	uint64_t arena_bytes;        /* of a rank */
	uint64_t asked_bytes;        /* of them by a rank's program, for people */
	uint8_t tiers[ZI_WORLD_MAX]; /* on which each rank's lies; of those that are here */
	bool is_told;                /* to the ranks: all of them know what to do with it */
	uint64_t timeout_ns;         /* of opening, and of making groups that give none */
	/* Of calls, for people: of groups that give none; of the group that is being made. */
	uint64_t call_timeout_ns, made_timeout_ns;
	struct tier_segment *verdicts, *arenas;
	struct tier_segment *boards[ZI_GROUPS_MAX]; /* NULL: never used */
	/* Where the job spans nodes: */
	uint64_t group_count;                      /* asked for so far, alike on all nodes */
	struct tier_segment *slabs[ZI_GROUPS_MAX]; /* NULL: never used */
	struct far *fars[ZI_GROUPS_MAX];           /* NULL: none, or it does not span nodes */
	struct far *making;                        /* the next group, while nodes agree */
	struct named named;                        /* groups that members make by name */
	struct dev_task task;                      /* building the arenas */
	int build_error;
	struct zi_text build_text;
};

bool collectives_is_on(const struct zero_job *job); /* open, or about to be */
bool collectives_is_building(const struct zero_job *job);
/* A member of the present group is gone: groups that it is in break. */
void collectives_rank_gone(struct zero_rank *rank, const struct zi_text *text);
/* All groups break. */
void collectives_break(struct zero_job *job, int error, const struct zi_text *text);
/* The incarnation is over. What processes hold stays theirs. */
void collectives_drop(struct zero_job *job);
/* A rank has waited long enough for a group: none of this node waits any more, nor do the other
 * nodes, which hear @text. */
void collectives_group_expired(struct zero_job *job, const struct zi_text *text);
/* A rank has waited long enough for collectives: nodes meet for nothing, and the others hear @text.
 * Before the ranks of this node do. */
void collectives_open_expired(struct zero_job *job, const struct zi_text *text);
/* Charged for them. */
uint64_t collectives_held_bytes(const struct zero_job *job);
/* A slab for group @group: made, or the one that was there. */
int collectives_slab(struct zero_job *job, uint32_t group, struct zi_text *text);
/* A board for group @group, zeroed: made, or the one that was there. */
int collectives_board(struct zero_job *job, uint32_t group, struct zi_text *text);
/* "0, 1, 5", for messages. */
struct zi_text collectives_say_ranks(const uint64_t members[ZI_GROUP_MASK_WORDS]);
