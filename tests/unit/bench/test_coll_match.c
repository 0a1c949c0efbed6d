/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a peer takes part in suite `coll` as the fastest of it that lives, also when ranks of one
 * of its transports fail while the others are tried. Method: sides are doubles here, that take as
 * long as a table says, or fail.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bench/coll_suite.h"

TestSuite(coll_match, .timeout = 20);

/* Seconds for a call; -1: a rank fails. */
static double seconds_of_mpi[COLL_TRANSPORTS][_COLL_VARIANT_COUNT];
static struct coll_match match;

/* Double: of a side that is driven. */
double coll_side_seconds(struct coll_side *side, const struct coll_order *order)
{
	for (unsigned i = 0; i < COLL_TRANSPORTS; i++)
		if (side == &match.mpi[i])
			return seconds_of_mpi[i][order->variant];
	return 1e-3;
}

/* Double. */
void coll_side_stop(struct coll_side *side)
{
	*side = (struct coll_side){ 0 };
}

/* Who of Open MPI took part in a case in which ours and both of its transports are ready. */
static const char *play(double vader, double vader_apart, double ucx, double ucx_apart)
{
	static struct bench_report report;
	const char *peer;

	bench_report_init(&report, "coll");
	match = (struct coll_match){
		.world = 2,
		.rounds = BENCH_RUNS_MIN,
		.sample_seconds = 1e-3,
		.own = { .name = "ours", .is_ready = true },
		.mpi = { { .name = "vader", .is_ready = true },
		         { .name = "ucx", .is_ready = true } },
		.report = &report,
	};
	seconds_of_mpi[0][COLL_IN_PLACE] = vader;
	seconds_of_mpi[0][COLL_APART] = vader_apart;
	seconds_of_mpi[1][COLL_IN_PLACE] = ucx;
	seconds_of_mpi[1][COLL_APART] = ucx_apart;
	cr_assert_eq(coll_match_case(&match, COLL_ALL_REDUCE, 4096), 0);
	peer = report.row_count ? report.rows[0].peer_name : "nobody";
	for (unsigned i = 0; i < report.row_count; i++)
		free((char *)report.rows[i].name); /* else the program's, to its end */
	return peer;
}

Test(coll_match, the_fastest_takes_part)
{
	cr_expect_str_eq(play(3, 4, 5, 6), "Open MPI, vader, in place");
	cr_expect_str_eq(play(3, 2, 5, 6), "Open MPI, vader");
	cr_expect_str_eq(play(3, 4, 5, 1), "Open MPI, ucx");
}

Test(coll_match, of_those_that_live)
{
	cr_expect_str_eq(play(1, -1, 3, 2), "Open MPI, ucx", "slower than the dead one was");
	cr_expect_str_eq(play(-1, 9, 3, 4), "Open MPI, ucx, in place");
	cr_expect_str_eq(play(3, 2, 1, -1), "Open MPI, vader", "the dead one had been the best");
	cr_expect_str_eq(play(1, -1, 1, -1), "nobody");
}
