/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What check_crash_nodes plays with: a few daemons on the loopback interface, each a node to one
 * job, with ranks as processes, of a kind that is drawn (crew_kind.c); and what is asked when all
 * is over (crew_verdict.c). Nodes may have unlike numbers of ranks.
 */
#pragma once

#include "tests/crash/kind.h"
#include "tests/harness/ranks.h"

#define CREW_NODES 4u
#define CREW_WORLD 5u
#define CREW_STEPS 6u
/* Of each waiting call of a rank; and of a rank that must have heard of a loss, on a busy machine.
 */
#define CREW_CALL_MS     60000u
#define CREW_PATIENCE_MS 180000u

struct crew_kind {
	char words[256]; /* for people */
	uint32_t node_count, world;
	uint32_t counts[CREW_NODES]; /* ranks of each node */
	enum zinf_strategy strategy;
	enum zinf_dtype dtype;
	enum zinf_offload offload, offload_param;
	enum zinf_grad_reduction grad_reduction;
	uint32_t commit_interval, accumulate, infinite_step;
	double max_norm, unscale;
	bool is_eager;
};

/* Lies in memory that ranks share with the test. */
struct crew_diary {
	int64_t acknowledged[CREW_WORLD]; /* newest step whose commit this rank was told of */
	int64_t resumed[CREW_WORLD];      /* where the last start began; -2: it has not */
	uint32_t is_struck;               /* atomic: the blow has fallen, whoever waits goes on */
};

struct crew {
	struct crew_kind kind;
	struct harness harness[CREW_NODES];
	uint64_t idle_cpu_bytes[CREW_NODES];
	uint32_t node_order[CREW_NODES]; /* which daemon is node n of this start */
	uint32_t port;
	uint32_t start_count;
	char incarnation[32];
	struct crew_diary *diary;
	struct trainer_settings settings;
	struct ranks ranks;
	int tell_fds[2];
	/* The moment: one rank says that it has come to a point, and may wait there. */
	enum trainer_point point; /* 0: none */
	uint32_t point_rank;
	int64_t point_step;
	bool is_waiting;     /* it goes on when the blow has fallen */
	bool is_leaving;     /* it detaches there and ends well */
	bool is_memory_lost; /* of a daemon that has ended, with state in memory alone */
};

struct crew_kind crew_kind_draw(uint64_t seed, uint32_t index);
/* The node of a rank, by ->kind's counts. */
uint32_t crew_node_of(const struct crew *crew, uint32_t rank);

/* Starts the daemons. False after saying why. */
bool crew_open(struct crew *crew, const struct crew_kind *kind);
bool crew_close(struct crew *crew);
bool crew_says(bool is_right, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* All ranks of a new start; each must be ended by crew_await() or ranks_wait(). */
bool crew_start(struct crew *crew);
/* Waits for all. False when one was not over in time, or ended by a signal that nobody sent. */
bool crew_await(struct crew *crew, int codes[CREW_WORLD]);
/* A new start, which must end well, at the step it was to. */
bool crew_train(struct crew *crew);
/* Every rank is refused with one of these errors (up to 0), in words with figures. */
bool crew_is_refused(struct crew *crew, const char *what, const int *errors);
/* Daemons that have ended are started again. */
bool crew_restart(struct crew *crew);
/* The job goes on at what was acknowledged, or where that was lost is refused by name, and ends in
 * the bits of the plain computation. */
bool crew_goes_on(struct crew *crew);
/* The job is removed from all nodes, and nothing of it is left. */
bool crew_clears(struct crew *crew);
/* The newest step whose commit a rank was told of; -1: none. */
int64_t crew_acknowledged(const struct crew *crew);
/* Processes called zinf-net of a daemon, into @pids. How many. */
uint32_t crew_workers(const struct crew *crew, uint32_t node, pid_t *pids, uint32_t capacity);
/* Each of a job that is refused, at rest (refusals.c). */
bool crew_refusals(struct crew *crew, uint32_t *count);
