/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one point of check_crash needs: a daemon of its own directory, a kind of job, ranks that
 * keep a diary in memory that outlives them, and the questions that are asked at the end.
 */
#pragma once

#include "tests/crash/points.h"
#include "tests/harness/ranks.h"
#include "tests/harness/reference.h"

#define SCENE_STEPS 5u
#define SCENE_WORLD 2u

/* A kind of job: what the protocol's ways depend on. */
struct scene_kind {
	const char *words; /* for people */
	uint32_t world;
	enum zinf_dtype dtype;
	enum zinf_offload offload;
	enum zinf_durability durability;
	enum zinf_schedule schedule;
	const char *backend;
	uint64_t resident_bytes;
	double max_norm;
	uint32_t accumulate, infinite_step;
	bool is_eager;
};

extern const struct scene_kind scene_kinds[];
extern const uint32_t scene_kind_count;

/* What ranks note for the test, over all their lives; a rank writes its own column. */
struct scene_diary {
	struct point_counts counts[SCENE_WORLD];
	int64_t acknowledged[SCENE_WORLD]; /* newest step whose commit this rank was told of */
	double norms[SCENE_WORLD][SCENE_STEPS + 1];
	bool is_lost;    /* a job stood below what was acknowledged */
	bool is_ahead;   /* … or beyond the one step that may be under way */
	bool is_another; /* a step that was made twice had another norm */
};

struct scene {
	const struct scene_kind *kind;
	struct harness harness;
	struct scene_diary *diary;
	struct point_counts *daemon_counts; /* of the preloaded daemon; lies in a file */
	char environment[3][400];
	const char *environment_list[4];
	struct trainer_settings settings;
	struct ranks ranks;
	struct reference_step expected[SCENE_STEPS + 1];
	uint64_t idle_cpu_bytes;
	/* of an undisturbed run */
	struct point_counts daemon_total, rank_total;
	/* drawn for the run to come */
	const char *rank_point; /* NULL: nobody */
	uint32_t rank_victim;
	enum trainer_point hook_point; /* 0: none; at this point of … */
	int64_t hook_step;
	pid_t hook_target; /* 0: itself */
};

/* Starts the daemon and runs the job once, undisturbed. False after saying why. */
bool scene_open(struct scene *scene, const struct scene_kind *kind);
/* The daemon anew, dying at @point ("" only counts, NULL not preloaded). 0, or it died at once. */
int scene_daemon_start(struct scene *scene, const char *point);
/* The job stands as if nothing had happened, and when it is destroyed nothing is left. */
bool scene_is_right(struct scene *scene);
/* Forgets the run; the next one may begin. */
void scene_reset(struct scene *scene);
bool scene_close(struct scene *scene);
