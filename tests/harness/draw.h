/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that draw many cases: `make check` takes four of eleven, `make check-slow` (.ci/run) all of
 * them. Eleven shares no factor with the kinds that tests take by turns (seed % 3, seed % 4): each
 * kind comes either way.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline bool draws_all(void)
{
	const char *draws = getenv("ZINF_TEST_DRAWS");

	return draws && strcmp(draws, "all") == 0;
}

/* The seed after @seed; before the first one: 0. */
static inline uint64_t draw_next(uint64_t seed)
{
	seed++;
	while (!draws_all() && seed % 11 != 1 && seed % 11 != 4 && seed % 11 != 6 &&
	       seed % 11 != 10)
		seed++;
	return seed;
}

/* Of @count things that all draws must show: how many those must show that are made. */
static inline uint32_t draw_share(uint32_t count)
{
	return draws_all() ? count : count / 4;
}

#define each_draw(seed, last) \
	for (uint64_t seed = draw_next(0); seed <= (last); seed = draw_next(seed))
