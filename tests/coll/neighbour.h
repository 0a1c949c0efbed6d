/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of two ranks that adds numbers beside the one under test, which must not be felt there: its
 * sums are right, and go on, until it is told that it is enough. Both ranks on one zinfd, or each
 * on one of its own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NEIGHBOUR_RANKS 2u

struct neighbour_shared;

struct neighbour {
	const char *program; /* whose output it is in */
	const char *socket_paths[NEIGHBOUR_RANKS];
	uint32_t port; /* where its nodes meet; 0: both ranks are on one */
	struct neighbour_shared *shared;
	pid_t pids[NEIGHBOUR_RANKS];
};

/* @program, @socket_paths: kept; the paths are the same where both ranks are on one zinfd. It ends
 * with neighbour_stop(). Return: false, no memory. */
bool neighbour_start(struct neighbour *neighbour, const char *program,
                     const char *const socket_paths[NEIGHBOUR_RANKS]);
/* Whether it makes another sum from now on; where not, it is said. */
bool neighbour_goes_on(const struct neighbour *neighbour);
uint32_t neighbour_call_count(const struct neighbour *neighbour);
/* Whether all of it was right; where not, it is said. */
bool neighbour_stop(struct neighbour *neighbour);
