/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planes of a checkpoint into the tiles of a store, the reverse of what export does. The remainder
 * is the master's distance from its parameter in units of its last place (docs/ARITHMETIC.md,
 * "Element types"): exact, so the same bits come back.
 */
#include <string.h>

#include "common/base/cleanup.h"
#include "kernels/cast.h"
#include "zctl/load.h"

/* Return: whether @master rounds to @param. */
static bool split(uint16_t param, float master, uint8_t *ret_remainder)
{
	uint32_t bits = kern_f32_bits(master);
	int16_t remainder = (int16_t)(uint16_t)bits;

	memcpy(ret_remainder, &remainder, sizeof remainder);
	return kern_f32_bits(kern_join(param, remainder)) == bits;
}

/* As split(). A NaN that was written into a parameter is widened as it is, and does not round. */
static bool split_f16(uint16_t param, float master, uint8_t *ret_remainder)
{
	uint32_t remainder = kern_f32_bits(master) - kern_f32_bits(kern_f16_to_f32(param));

	memcpy(ret_remainder, &remainder, sizeof remainder);
	return !remainder || kern_f32_to_f16(master) == param;
}

uint64_t fold_state(const struct model *model, uint64_t total, const uint16_t *param,
                    const float *master, const float *exp_avg, const float *exp_avg_sq,
                    uint8_t *state)
{
	const uint32_t remainder_bytes = zi_remainder_bytes(model->dtype);

	for (uint64_t first = 0; first < total; first += ZI_TILE_ELEMENTS) {
		uint64_t count = ZI_MIN((uint64_t)ZI_TILE_ELEMENTS, total - first);
		uint8_t *tile = state + first * model->state_width;

		for (uint64_t i = first; master && i < first + count; i++, tile += remainder_bytes)
			if (!(model->dtype == ZI_DTYPE_F16 ? split_f16(param[i], master[i], tile)
			                                   : split(param[i], master[i], tile)))
				return i;
		memcpy(tile, exp_avg + first, count * sizeof *exp_avg);
		if (exp_avg_sq)
			memcpy(tile + count * sizeof *exp_avg, exp_avg_sq + first,
			       count * sizeof *exp_avg_sq);
	}
	return total;
}
