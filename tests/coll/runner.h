/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a case: its ranks in processes of their own, so that whatever they do ends with them. */
#pragma once

#include "tests/coll/rank.h"
#include "tests/harness/harness.h"

struct runner;
/* 0: all ranks say that all was right; else 1, with the runner's reports. */
typedef int (*runner_run_fn)(struct runner *runner, const struct script *script);

struct runner {
	runner_run_fn run;
	const char *name;
	struct rank_report *reports; /* (SCRIPT_RANKS_MAX,) shared with the ranks */
	uint32_t timeout_ms;         /* of each call */
	uint32_t past;               /* tests/unit/node/past.h; 0: none */
	enum rank_lie lie;           /* of rank 0 */
	bool has_verdict;            /* a group of each case is declared broken at some moment */
	bool has_absence;            /* a rank of each case stops to make the calls of a group */
	struct harness *harness;     /* processes.c: (harness_count,) a daemon each */
	uint32_t harness_count;
	uint32_t incarnation;
};

/* Threads as ranks, over boards and arenas in plain memory: libclient/coll/node alone. */
void runner_init_threads(struct runner *runner);
/* Processes as ranks, over zinf.h and zinfd. @node_count daemons: more than one of them are nodes
 * that share this machine, over which ranks are spread. 0 or -errno. */
int runner_init_processes(struct runner *runner, uint32_t node_count);
void runner_init(struct runner *runner, runner_run_fn run, const char *name);
/* Of ranks that ended otherwise than by saying whether all was right: what harness_wait() said. */
void runner_note_end(struct rank_report *report, int end);
/* 0; 1 after saying what the daemon has left behind. */
int runner_deinit(struct runner *runner);

/* The smallest case found that fails as @script did, which it becomes. */
void runner_shrink(struct runner *runner, struct script *script);
