/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the constants at which collectives change from one way to the other lie where the ways
 * are equally fast on this machine. Each row is the slower side of a constant over the faster one:
 * what it should be stands beside what is built in.
 */
#pragma once

#include "bench/coll_suite.h"

/* Calls of as many bytes as posts take, and of a line more, which go through the arenas: above 1
 * posts may take more. Return: 0; -1 after saying which rank failed. */
int coll_cross_posts(struct coll_match *match);
/* The longest block of those. */
#define COLL_CROSS_CMA_MAX (4ull << 20)
/* Calls with buffers in private memory by ranks of @match, which read each other's, over the same
 * by those of @staged, which stage it. Return: as above. */
int coll_cross_cma(struct coll_match *match, struct coll_side *staged);
/* Copies with plain stores over the same with streaming ones, by threads on all CPUs, of sizes
 * around the built-in threshold. Return: 0; -1 after saying what is missing. */
int coll_cross_streaming(struct bench_report *report, unsigned rounds);
