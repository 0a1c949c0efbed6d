/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a node that the test records: three starts of the daemon, the second with a larger
 * store; two jobs whose commits run into each other, one of which is deleted and made anew; a
 * snapshot of the other, which is removed in the end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/power/job.h"

#define LIFE_JOBS          2u
#define LIFE_SNAPSHOT      2u /* the name behind those of jobs */
#define LIFE_NAMES         3u
#define LIFE_SNAPSHOT_NAME "kept"
#define LIFE_STORE_BYTES   (3ull << 20) /* of the later starts */
#define LIFE_KINDS         3u
#define LIFE_POINTS_MAX    32u

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

/* Fills hashes and steps, in @directory, which is empty before and after. */
void life_reference(struct life *life, const char *directory);
/* Lives in @directory, which is empty, while the recorder runs. */
void life_run(struct life *life, const char *directory);

/* The lives of jobs, and which name each had. */
extern const struct job_kind life_kinds[LIFE_KINDS];
extern const uint32_t life_name_of_kind[LIFE_KINDS];
/* Whether @name asks for `power`. */
bool life_is_power(const struct life *life, uint32_t name);
uint32_t life_durability_of(const struct life *life, uint32_t kind);
