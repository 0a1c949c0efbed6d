/* SPDX-License-Identifier: Apache-2.0 */
/* Places of subgroups on the store: reserved, in force, given back. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/tier/tier.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_subgroup;

/* One of three arrays of checksums holds those of `extent`, one those of `kept`; a step writes
 * another. */
#define ZERO_HASHES 3u
enum { ZERO_PLANE_PARAM = 0, ZERO_PLANE_STATE = 1, _ZERO_PLANE_COUNT };

/* What lies in `kept` of a place. */
enum zero_kept {
	ZERO_KEPT_NONE,
	ZERO_KEPT_AHEAD,  /* what is committed: `extent` is of a step that is not (ahead.c) */
	ZERO_KEPT_FORMER, /* what the commit before had: `extent` is committed (former.c) */
};

struct zero_place {
	struct tier_extent extent; /* in force; no bytes: none (STATE: all zero) */
	struct tier_extent next;   /* reserved for the step under way */
	uint64_t step, kept_step;  /* that wrote `extent`, and `kept` */
	struct tier_extent kept;   /* beside it; no bytes: as there */
	uint8_t hash_index;        /* which array holds the checksums of `extent` */
	uint8_t kept_index;        /* and of `kept` */
	uint8_t kept_is;           /* enum zero_kept */
};

/* All or nothing. -ENOSPC with figures. */
enum extents_for {
	EXTENTS_STEP,  /* both planes of every subgroup */
	EXTENTS_AHEAD, /* of a step that is not committed: what is not resident */
	/* parameters that changed or were never written; all that is in memory alone */
	EXTENTS_COMMIT,
	EXTENTS_KEEP, /* of a snapshot of state in memory alone: both planes of every subgroup */
};
int extents_reserve(struct zero_job *job, enum extents_for purpose, struct zi_text *text);
uint64_t extents_wanted_bytes(const struct zero_job *job, enum extents_for purpose);
/* With a pool: where param_write_end() puts a unit, before the commit. */
int extents_reserve_unit(struct zero_job *job, uint32_t unit, struct zi_text *text);
/* Where zinf_state_write() puts a subgroup's state, before the commit; what it has already stays.
 * -ENOSPC with figures. */
int extents_reserve_state(struct zero_job *job, struct zero_subgroup *subgroup,
                          struct zi_text *text);
/* The array that holds the checksums of place->next. */
static inline uint32_t place_next_index(const struct zero_place *place)
{
	for (uint32_t i = 0;; i++)
		if (i != place->hash_index && !(place->kept_is && i == place->kept_index))
			return i;
}
/* `next`, if there is one, is in force; what was committed is kept. */
void place_advance(struct zero_job *job, struct zero_place *place, int64_t step);
/* What is kept takes the place of `extent`, which is given back. */
void place_fall_back(struct zero_job *job, struct zero_place *place);
/* FORMER: what is kept is given back. */
void place_let_go(struct zero_job *job, struct zero_place *place);
static inline const struct tier_extent *place_committed(const struct zero_place *place)
{
	return place->kept_is == ZERO_KEPT_AHEAD ? &place->kept : &place->extent;
}
/* A commit that moves what nodes hold is in force: `next`, written in @step, or nothing takes the
 * place of what was committed, which is kept where the former commit is. */
void place_move(struct zero_job *job, struct zero_place *place, uint64_t step);
bool extent_needs_write(const struct zero_job *job, const struct zero_subgroup *subgroup);
/* Another place for what could not be written: TIER_E_FULL. */
int extent_replace(struct zero_job *job, struct zero_place *place, uint32_t plane, bool is_tried);
/* What a step or commit has reserved; not what param_write_end() and state_write() have written. */
void extents_release_next(struct zero_job *job);
/* Where a write failed. */
void extents_release_abandoned(struct zero_job *job);
void extents_release_written(struct zero_job *job);
void extents_commit(struct zero_job *job);
void extents_release_all(struct zero_job *job);
