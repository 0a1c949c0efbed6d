/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A side of suite `coll`: ranks in processes of their own that live as long as the part that
 * measures them, are told what to do (coll_order.h) and sleep in between.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "bench/coll_order.h"

struct coll_side_options {
	const char *name;
	const char *const *argv; /* of each process, ended by NULL */
	unsigned process_count;  /* world, or 1 that starts the ranks itself (mpirun) */
	unsigned world;
	const char *directory; /* private: its socket lies there */
	/* In each process before its program starts; NULL: nothing. */
	void (*enter)(void *arg, unsigned process);
	void *enter_arg;
};

#define COLL_HELPERS_MAX 8u

struct coll_side {
	const char *name;
	unsigned world, process_count;
	pid_t pids[COLL_RANKS_MAX];
	int sockets[COLL_RANKS_MAX]; /* by rank */
	/* Other processes whose CPU time is this side's too. */
	pid_t helpers[COLL_HELPERS_MAX];
	unsigned helper_count;
	char words[COLL_PACKET_BYTES];
	bool is_ready;
	double cpu_seconds; /* of all its processes, for an iteration of the last order */
};

/*
 * Each process finds RANK, WORLD_SIZE, COLL_SOCKET and COLL_STORE (a name that no file has yet) in
 * its environment. Waits for all ranks; a side that is not ready then has printed why.
 */
void coll_side_start(struct coll_side *side, const struct coll_side_options *options);
/* Seconds for one iteration; 0: the side has no such operation; negative: a rank died or hangs. */
double coll_side_seconds(struct coll_side *side, const struct coll_order *order);
/* Ends and reaps the processes. */
void coll_side_stop(struct coll_side *side);
