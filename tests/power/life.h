/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a node that the test records: three starts of the daemon, the second with a larger
 * store; two jobs whose commits run into each other, one of which is deleted and made anew. And the
 * judge of what is found on a disk after that.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/power/job.h"

#define LIFE_NAMES      2u
#define LIFE_KINDS      3u
#define LIFE_POINTS_MAX 32u

/* What the jobs ask for. */
enum life_durability { LIFE_POWER, LIFE_PROCESS, LIFE_MIXED, _LIFE_DURABILITY_COUNT };

/* What was true of a name, one after the other. */
struct life_point {
	uint64_t begun, acknowledged; /* places of the record; UINT64_MAX: not yet */
	int32_t kind;                 /* in life_kinds; -1: there is no such job */
	uint32_t serial;
};

struct life {
	enum life_durability durability;
	uint64_t made; /* the place at which the first start was over */
	struct life_point points[LIFE_NAMES][LIFE_POINTS_MAX];
	uint32_t point_count[LIFE_NAMES];
	/* Of each commit: parameters and step, from a run that nothing disturbed. */
	uint64_t hashes[LIFE_KINDS][JOB_SERIALS_MAX];
	int64_t steps[LIFE_KINDS][JOB_SERIALS_MAX];
};

/* What may have happened to the disk, beside the power. */
enum life_trial {
	LIFE_HONEST,
	LIFE_DAMAGED,     /* something is not what was written: to be named, never used */
	LIFE_LOG_DAMAGED, /* as above in the catalog's log: what it said last may not be known */
};

enum life_verdict {
	LIFE_WHOLE, /* every job as it was promised */
	LIFE_NAMED, /* something is lost or damaged and said so, as `process` allows */
	LIFE_WRONG, /* a promise is broken */
};

/* Fills hashes and steps, in @directory, which is empty before and after. */
void life_reference(struct life *life, const char *directory);
/* Lives in @directory, which is empty, while the recorder runs. */
void life_run(struct life *life, const char *directory);
/* Starts a daemon on @directory, as it may be after a power failure at place @cut, and carries each
 * job on by a step. @text: what is wrong, or lost. */
enum life_verdict life_judge(const struct life *life, enum life_trial trial, const char *directory,
                             uint64_t cut, struct zi_text *text);
