/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of trainer.h as processes, their reports in memory that the test shares. */
#pragma once

#include <sys/types.h>

#include "tests/harness/harness.h"
#include "tests/harness/trainer.h"

struct ranks {
	struct trainer_settings settings;
	uint32_t world;
	struct trainer_report *reports[ZINF_WORLD_MAX]; /* shared mappings */
	pid_t pids[ZINF_WORLD_MAX];                     /* 0: not running */
};

/* Defaults for tests: the small model, AdamW, 3 steps, 20 s of patience. */
struct trainer_settings ranks_settings(const struct harness *harness, const char *job,
                                       uint32_t world);
/* Starts every rank. 0 or -errno. */
int ranks_start(struct ranks *ranks, const struct trainer_settings *settings);
/* Starts one more (or again); its report is cleared. */
int ranks_start_one(struct ranks *ranks, uint32_t rank);
/* Waits for one: exit code as harness_wait(): 0, 1 (its report says why), 1000 + signal. */
int ranks_wait(struct ranks *ranks, uint32_t rank);
/* Waits for all. 0 when every one ended well; else 1 after printing their reports. */
int ranks_join(struct ranks *ranks);
/* Kills what still runs, unmaps. */
void ranks_free(struct ranks *ranks);
/* Starts and joins. 0 when all ended well. */
int ranks_train(struct ranks *ranks, const struct trainer_settings *settings);
/* Every rank's final parameters equal the reference; else false after saying where not. */
bool ranks_are_right(const struct ranks *ranks);

/* ---- a well-behaved neighbour: one rank that does a step when asked, in the same session ---- */

struct neighbour {
	struct trainer_settings settings;
	struct trainer_report *report;
	pid_t pid;
	int ask_fd, answer_fd;
	uint32_t step_count;
};

int neighbour_start(struct neighbour *neighbour, const struct trainer_settings *settings);
/* True when the step was made, within 20 s. */
bool neighbour_steps(struct neighbour *neighbour);
/* Ends it; true when its parameters equal the reference after all its steps. */
bool neighbour_stop(struct neighbour *neighbour);
