/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a team computes each part once, and what its parts wrote is there when it returns. Method:
 * calls in a row, short and long, on teams of several sizes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/team.h"

enum { PARTS = 97, CALLS = 500 };

static void count_part(void *arg, uint64_t part, void *scratch)
{
	unsigned *counts = arg;

	memset(scratch, (int)part, 64); /* Of this thread alone. */
	counts[part]++;
	for (unsigned i = 0; i < 64; i++)
		cr_assert_eq(((unsigned char *)scratch)[i], (unsigned char)part);
}

Test(team, computes_each_part_of_each_call_once)
{
	static unsigned counts[PARTS];

	for (uint32_t threads = 1; threads <= 4; threads++) {
		struct gpt_team *team = gpt_team_new(threads, 64, 64);

		cr_assert(team);
		memset(counts, 0, sizeof(counts));
		for (unsigned call = 0; call < CALLS; call++) {
			uint64_t part_count = call % (PARTS + 1);

			gpt_team_run(team, part_count, count_part, counts);
			/* Of call n the first n parts; each was there when it returned. */
			for (uint64_t part = 0; part < PARTS; part++)
				cr_assert_eq(counts[part], part < part_count,
				             "%u threads, %lu of %lu", threads, part, part_count);
			memset(counts, 0, sizeof(counts));
		}
		cr_assert_null(gpt_team_free(team));
	}
	cr_assert_null(gpt_team_free(NULL));
}

Test(team, has_a_thread_for_each_cpu_that_its_rank_gets)
{
	uint32_t all = gpt_team_default_threads(1);

	cr_assert_geq(all, 1);
	cr_expect_eq(gpt_team_default_threads(all), 1);
	cr_expect_eq(gpt_team_default_threads(2 * all), 1);
}
