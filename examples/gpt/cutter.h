/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts arrays of f32 from one allocation, each beginning on a cache line. Without an allocation it
 * only counts, so that one function says both how much is needed and where it lies. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GPT_CUT_ALIGN_FLOATS 16u

struct gpt_cutter {
	float *arena; /* NULL: count */
	uint64_t used_count;
};

static inline float *gpt_cut(struct gpt_cutter *cutter, uint64_t count)
{
	float *array = cutter->arena ? cutter->arena + cutter->used_count : NULL;

	cutter->used_count +=
		(count + GPT_CUT_ALIGN_FLOATS - 1) / GPT_CUT_ALIGN_FLOATS * GPT_CUT_ALIGN_FLOATS;
	return array;
}
