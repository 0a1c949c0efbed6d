/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trainer.h must end with, computed plainly in one process: docs/ARITHMETIC.md written down
 * once more, without any of the project's own kernels (not even its conversions), so that a mistake
 * there cannot hide here.
 */
#pragma once

#include <stdint.h>
#include <string.h>

#include "tests/harness/trainer.h"

static inline float reference_from_bf16(uint16_t value)
{
	uint32_t bits = (uint32_t)value << 16;
	float result;

	memcpy(&result, &bits, sizeof(result));
	return result;
}

/* Nearest, ties to even; the values here are finite or infinite, never NaN. */
static inline uint16_t reference_to_bf16(float value)
{
	uint32_t bits, dropped;
	uint16_t kept;

	memcpy(&bits, &value, sizeof(bits));
	kept = (uint16_t)(bits >> 16);
	dropped = bits & 0xffffu;
	if (dropped > 0x8000u || (dropped == 0x8000u && (kept & 1)))
		kept++;
	return kept;
}

/* Of one step. */
struct reference_step {
	bool is_skipped;
	double norm; /* NaN when it was not computed */
	double clip;
};

/* Trains settings->steps steps of options.world_size ranks. @parameters: (trainer_dump_bytes(),).
 * @steps: (settings->steps + 1,), by step; may be NULL. False: no memory. */
bool reference_train(const struct trainer_settings *settings, unsigned char *parameters,
                     struct reference_step *steps);
/* NULL when @dump equals the reference at settings->steps; else where it first differs (static). */
const char *reference_difference(const struct trainer_settings *settings,
                                 const unsigned char *dump);
