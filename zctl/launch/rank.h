/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's process: the leader of a process group of its own, killed by the kernel when its
 * supervisor dies. Owner: the supervisor's thread.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/loop.h"
#include "zctl/launch/plan.h"
#include "zctl/launch/stream.h"

struct launch_rank {
	struct zi_source source; /* its end */
	uint32_t index;
	void *arg; /* of the place */
	pid_t pid; /* 0: not running */
	int pidfd;
	pid_t last_pid; /* of the newest start, for those who tell of it */
	uint64_t started_ns, ended_ns;
	int status; /* as of waitpid(), once it has ended */
	struct launch_stream out, err;
};

/* What a process is started into. */
struct launch_rank_place {
	const struct launch_plan *plan;
	uint32_t attempt;
	struct zi_loop *loop;
	struct launch_sink *out, *err;
	zi_source_fn ended;       /* told of a rank's end */
	void *arg;                /* for that */
	sigset_t signals;         /* blocked before us */
	void (*pipe_signal)(int); /* what SIGPIPE did before us */
};

/* What went wrong at the start, as a shell would say it. */
#define LAUNCH_EXIT_NOT_STARTED 126 /* it is there */
#define LAUNCH_EXIT_NOT_FOUND   127

void launch_rank_init(struct launch_rank *rank, uint32_t index);
/* Return: 0: its program runs; -errno with the reason, -ENOENT for a program that is not there. */
int launch_rank_start(struct launch_rank *rank, const struct launch_rank_place *place,
                      struct zi_text *text);
/* Not running: nothing. */
void launch_rank_signal(const struct launch_rank *rank, int number);
/* Also to what it started (its process group). */
void launch_rank_signal_all(const struct launch_rank *rank, int number);
/* Whether it has ended; its status is then there to look at, and it to be reaped. */
bool launch_rank_has_ended(struct launch_rank *rank);
void launch_rank_reap(struct launch_rank *rank);
