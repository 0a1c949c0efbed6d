/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bare round trips between two processes pinned to two CPUs: what a request through the daemon is
 * measured against. Each function forks a partner, runs @rounds round trips and waits for the
 * partner; the result is the median of the single round trips in nanoseconds, or a negative errno.
 */
#pragma once

#include <stdint.h>

enum pingpong_kind {
	PINGPONG_SPIN,    /* a shared word each way, spinning */
	PINGPONG_FUTEX,   /* a shared word each way, futex wait and wake */
	PINGPONG_EVENTFD, /* two eventfds, blocking reads */
};

int64_t pingpong_run(enum pingpong_kind kind, uint32_t rounds, int cpu_here, int cpu_there);
/* Pins the calling thread. 0 or -errno. */
int pingpong_pin(int pid_or_tid, int cpu);
