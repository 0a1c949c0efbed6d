/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of suite `coll` share: the sides that take turns, and one case (an operation of a
 * size) measured on all of them. Each adds its rows to the report and prints what it does.
 */
#pragma once

#include "bench/coll_bound.h"
#include "bench/coll_side.h"
#include "bench/coll_stream.h"
#include "bench/report.h"

#define COLL_TRANSPORTS 2u

struct coll_match {
	unsigned world;
	unsigned rounds;
	double sample_seconds; /* how long a side is to repeat a call for one figure */
	struct coll_side own;
	struct coll_side mpi[COLL_TRANSPORTS];
	struct coll_side gloo;
	struct coll_side deepspeed; /* all_reduce only */
	struct coll_bound *bound;   /* NULL: not wanted */
	struct coll_stream *stream; /* the ranks are on two nodes: what is between them; or NULL */
	bool is_over_nodes;
	struct bench_report *report;
};

/* 0; -1 after saying which side failed. */
int coll_match_case(struct coll_match *match, enum coll_operation operation, uint64_t bytes);
