/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every bench program prints and writes: a table name · value · unit · peer · ratio · target,
 * and the same as a list of objects in build/bench/SUITE.json. Not linked into anything shipped.
 *
 * How to measure: own figure and peer alternately, at least BENCH_RUNS_MIN pairs, one ratio per
 * pair; bench_report_add_turns() them. A ratio is always the better the larger.
 */
#pragma once

#include <stdbool.h>

#define BENCH_RUNS_MIN 9u
#define BENCH_RUNS_MAX 64u
#define BENCH_ROWS_MAX 512u

struct bench_row {
	const char *name;      /* unique in the suite */
	double value;          /* median, in @unit */
	const char *unit;      /* "GB/s", "us", … */
	double peer;           /* median, in @unit; 0: no peer */
	const char *peer_name; /* what the peer is; NULL without one */
	double ratio;          /* median of the ratios; 0: none */
	double ratio_low;      /* first and third quartile of the ratios */
	double ratio_high;
	double target; /* what the ratio is to reach; 0: shown only */
	unsigned runs; /* pairs measured */
	/* Processor seconds for each 1e9 bytes moved, own and the peer; 0: not measured. */
	double cpu_s_per_gb, peer_cpu_s_per_gb;
};

struct bench_report {
	const char *suite;
	struct bench_row rows[BENCH_ROWS_MAX]; /* texts stay the caller's */
	unsigned row_count;
};

/* Sorts @samples in place; count > 0. */
double bench_median(double *samples, unsigned count);
void bench_report_init(struct bench_report *report, const char *suite);
void bench_report_add(struct bench_report *report, const struct bench_row *row);
/* What a ratio is of. */
enum bench_kind {
	BENCH_TIME, /* peer over own */
	BENCH_RATE, /* own over peer */
};
/* A row of figures that were measured in turns, (@row->runs,) in its unit; fills in its value, peer
 * and ratios. Return: the report's own. */
const struct bench_row *bench_report_add_turns(struct bench_report *report,
                                               const struct bench_row *row, enum bench_kind kind,
                                               const double *own, const double *peer);
/* Prints the table to stdout and writes @directory/SUITE.json (the directory is made). */
int bench_report_write(const struct bench_report *report, const char *directory);
