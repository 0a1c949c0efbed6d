/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a case: makes its calls in their order over whatever gives it collectives, and
 * compares what each has left with the plain model.
 */
#pragma once

#include "tests/coll/script.h"

#define RANK_PENDING_MAX 4u

/* Where the buffers of a call are. */
struct rank_buffers {
	void *source, *target; /* NULL: none */
	/* Uneven operations: (members,) to and from each member. */
	uint64_t source_counts[SCRIPT_RANKS_MAX], target_counts[SCRIPT_RANKS_MAX];
};

/* Test doubles of an engine that is wrong, each of which must be caught. */
enum rank_lie {
	RANK_HONEST,
	RANK_FLIPS,  /* one bit of a target */
	RANK_SPILLS, /* one byte beyond a buffer */
	RANK_SPOILS, /* one bit of a source */
	RANK_LEAVES, /* the last element of a target is not written */
	_RANK_LIE_COUNT,
};

/* What gives a rank collectives: threads.c, processes.c. */
struct rank_link {
	uint32_t rank;
	enum rank_lie lie;
	char *arena; /* what other ranks reach without a copy */
	uint64_t arena_bytes;
	/* Groups that may break (bitmap), and by what error. This rank makes none of their calls
	 * from number @absent_from of the script on. */
	uint32_t breakable_groups, absent_from;
	int ends_with;
	/* Makes a call; with is_async only begins it, as @slot. 0 or -errno. */
	int (*call)(struct rank_link *link, const struct script *script,
	            const struct script_call *call, const struct rank_buffers *buffers,
	            uint32_t slot);
	/* Until the call that was begun as @slot is over. 0 or -errno. */
	int (*wait)(struct rank_link *link, uint32_t slot);
	/* Why the last of the two failed. */
	const char *(*words)(const struct rank_link *link);
};

/* What became of a rank; in memory that the test shares. */
struct rank_report {
	uint32_t broken_groups; /* bitmap: of those that may break */
	uint32_t progress;      /* calls begun; atomic */
	int32_t call;           /* that went wrong; -1: none */
	char words[400];        /* of that call; else of the first that found its group broken */
};

/* Makes all calls of @script; those of groups that broke as they may fail. 0: all was right; else
 * 1, and @report says what was not. */
int rank_run(struct rank_link *link, const struct script *script, struct rank_report *report);
/* How many calls of @script @rank makes. */
uint32_t rank_call_count(const struct script *script, uint32_t rank);
