/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers from a counter: a stream is named by what it is for (seed, purpose, indices), so
 * that every batch and every first value can be drawn again from its name alone, in any order.
 * Source of the mixing function: SplitMix64, Steele, Lea, Flood, OOPSLA 2014.
 */
#pragma once

#include <stdint.h>

enum gpt_rng_purpose { GPT_RNG_VALUES = 1, GPT_RNG_TRAIN = 2, GPT_RNG_EVAL = 3, GPT_RNG_TEXT = 4 };

struct gpt_rng {
	uint64_t state;
};

struct gpt_rng gpt_rng_init(uint64_t seed, enum gpt_rng_purpose purpose, uint64_t a, uint64_t b,
                            uint64_t c);
uint64_t gpt_rng_next(struct gpt_rng *rng);
uint64_t gpt_rng_below(struct gpt_rng *rng, uint64_t bound);
double gpt_rng_normal(struct gpt_rng *rng);
