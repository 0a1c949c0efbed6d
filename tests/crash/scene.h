/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one point of check_crash needs: a daemon of its own directory, a kind of job, ranks that
 * keep a diary in memory that outlives them (scene.c), and the questions that are asked at the end
 * (verdict.c).
 */
#pragma once

#include "tests/crash/kind.h"
#include "tests/crash/points.h"
#include "tests/harness/ranks.h"
#include "tests/harness/reference.h"

/* Longer than what is asked of the daemon, or given back when ranks have gone, takes on a loaded
 * machine. */
#define SCENE_PATIENCE_MS 60000u
#define SCENE_WORLD       KIND_WORLD_MAX
#define SCENE_STEPS       KIND_STEPS

/* What ranks note for the test, over all their lives; a rank writes its own column. */
struct scene_diary {
	struct point_counts counts[SCENE_WORLD];
	int64_t acknowledged[SCENE_WORLD]; /* newest step whose commit this rank was told of */
	int64_t told[SCENE_WORLD];         /* newest step that it was told is in force */
	double norms[SCENE_WORLD][SCENE_STEPS + 1];
	bool is_lost;        /* a job stood below what was acknowledged */
	bool is_ahead;       /* … or beyond the one step that may be under way */
	bool is_another;     /* a step that was made twice had another norm */
	int snapshot_result; /* of one that was refused without a reason */
};

struct scene {
	const struct kind *kind;
	struct harness harness;
	char backend[160]; /* lines of the configuration of its stores */
	struct scene_diary *diary;
	struct point_counts *daemon_counts; /* of the preloaded daemon; lies in a file */
	char environment[3][400];
	const char *environment_list[4];
	struct trainer_settings settings;
	struct ranks ranks;
	uint32_t verdict_count; /* with a snapshot that is there */
	struct reference_step expected[SCENE_STEPS + 1];
	uint64_t idle_cpu_bytes;
	/* of an undisturbed run */
	struct point_counts daemon_total, rank_total;
	uint64_t request_total; /* of the engine */
	uint64_t restart_ns;    /* the longest that a killed daemon took to be ready again */
	/* drawn for the run to come */
	const char *rank_point; /* NULL: nobody */
	uint32_t rank_victim;
	bool is_daemon_victim;
	enum trainer_point hook_point; /* 0: none; at this point of … */
	int64_t hook_step;
	pid_t hook_target; /* 0: itself */
};

/* Starts the daemon and runs the job once, undisturbed. False after saying why. */
bool scene_open(struct scene *scene, const struct kind *kind);
/* The daemon anew, dying at @point ("" only counts, NULL not preloaded), which is one of points.h
 * or a rule of the engine's fault injector ("kill=any@7"). 0, or it died at once. */
int scene_daemon_start(struct scene *scene, const char *point);
bool scene_says(bool is_right, const char *words);
/* The job stands as if nothing had happened, and when it is destroyed nothing is left. */
bool scene_is_right(struct scene *scene);
/* Forgets the run; the next one may begin. */
void scene_reset(struct scene *scene);
bool scene_close(struct scene *scene);
