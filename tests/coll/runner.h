/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a case: its ranks in processes of their own, so that whatever they do ends with them. */
#pragma once

#include "tests/coll/rank.h"
#include "tests/harness/harness.h"

struct runner {
	/* 0: all ranks say that all was right; else 1, with @reports. */
	int (*run)(struct runner *runner, const struct script *script);
	const char *name;
	struct rank_report *reports; /* (SCRIPT_RANKS_MAX,) shared with the ranks */
	uint32_t timeout_ms;         /* of each call */
	enum rank_lie lie;           /* of rank 0 */
	struct harness *harness;     /* processes.c */
	uint32_t incarnation;
};

/* Threads as ranks, over boards and arenas in plain memory: libclient/coll alone. */
void runner_init_threads(struct runner *runner);
void runner_deinit(struct runner *runner);

/* The smallest case found that fails as @script did, which it becomes. */
void runner_shrink(struct runner *runner, struct script *script);
