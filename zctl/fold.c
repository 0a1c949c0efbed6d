/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planes of a checkpoint into the tiles of a store, the reverse of what export does. The remainder
 * is the master's distance from its parameter in units of its last place (docs/ARITHMETIC.md,
 * "Master split"): exact, so the same bits come back.
 */
#include <string.h>

#include "common/base/cleanup.h"
#include "zctl/load.h"

/* Return: whether @master rounds to @param. */
static bool split(uint16_t param, float master, int16_t *ret_remainder)
{
	uint32_t bits, joined;

	memcpy(&bits, &master, sizeof bits);
	*ret_remainder = (int16_t)(uint16_t)bits;
	joined = ((uint32_t)param << 16) + (uint32_t)(int32_t)*ret_remainder;
	return joined == bits;
}

uint64_t fold_state(const struct model *model, uint64_t total, const uint16_t *param,
                    const float *master, const float *exp_avg, const float *exp_avg_sq,
                    uint8_t *state)
{
	for (uint64_t first = 0; first < total; first += ZI_TILE_ELEMENTS) {
		uint64_t count = ZI_MIN((uint64_t)ZI_TILE_ELEMENTS, total - first);
		uint8_t *tile = state + first * model->state_width;

		for (uint64_t i = 0; master && i < count; i++, tile += sizeof(int16_t)) {
			int16_t remainder;

			if (!split(param[first + i], master[first + i], &remainder))
				return first + i;
			memcpy(tile, &remainder, sizeof remainder);
		}
		memcpy(tile, exp_avg + first, count * sizeof *exp_avg);
		if (exp_avg_sq)
			memcpy(tile + count * sizeof *exp_avg, exp_avg_sq + first,
			       count * sizeof *exp_avg_sq);
	}
	return total;
}
