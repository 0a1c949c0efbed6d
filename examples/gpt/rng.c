/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers from a counter. */
#include "examples/gpt/rng.h"

#include <assert.h>
#include <math.h>

#define RNG_GAMMA 0x9e3779b97f4a7c15ull /* SplitMix64: 2^64 / golden ratio, odd */

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* A stream of its own for each combination of arguments. */
struct gpt_rng gpt_rng_init(uint64_t seed, enum gpt_rng_purpose purpose, uint64_t a, uint64_t b,
                            uint64_t c)
{
	const uint64_t words[] = { seed, (uint64_t)purpose, a, b, c };
	struct gpt_rng rng = { .state = 0 };

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		rng.state = mix(rng.state + RNG_GAMMA + words[i]);
	return rng;
}

/* 64 uniform bits. */
uint64_t gpt_rng_next(struct gpt_rng *rng)
{
	rng->state += RNG_GAMMA;
	return mix(rng->state);
}

/* Uniform in [0, bound), by the high half of a product; its bias (bound / 2^64) is nothing here. */
uint64_t gpt_rng_below(struct gpt_rng *rng, uint64_t bound)
{
	assert(bound > 0);
	return (uint64_t)(((unsigned __int128)gpt_rng_next(rng) * bound) >> 64);
}

/* Standard normal: Box and Muller, the cosine half. */
double gpt_rng_normal(struct gpt_rng *rng)
{
	double u = ((double)(gpt_rng_next(rng) >> 11) + 0.5) * 0x1p-53; /* in (0, 1) */
	double w = (double)(gpt_rng_next(rng) >> 11) * 0x1p-53;

	return sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * w);
}
