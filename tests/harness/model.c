/* SPDX-License-Identifier: Apache-2.0 */
/* The made-up model (trainer.h): what the trainer and the plain reference have in common. */
#include "tests/harness/trainer.h"

#define BLOCK 4096u

const struct trainer_model trainer_small = {
	.unit_count = 4,
	.unit_params = { 2, 3, 1, 1 },
	.elements = { 270000, 1777,  /* two subgroups, the last one short */
	              1, 4095, 8193, /* a scalar, and what is just off a block */
	              40960,         /* whole blocks */
	              16385 },
};

uint64_t trainer_random_first(uint32_t rank)
{
	return 0x9e3779b97f4a7c15ull * (rank + 1);
}

uint64_t trainer_random_next(uint64_t random, uint32_t rank)
{
	return random * 6364136223846793005ull + 2 * rank + 1;
}

uint32_t trainer_seed(uint64_t random, uint32_t micro_batch, uint32_t param)
{
	uint64_t seed =
		random + micro_batch * 0xd1b54a32d192ed03ull + param * 0x8cb92ba72f3d8dd7ull;

	seed ^= seed >> 32;
	seed *= 0xd6e8feb86659fd93ull;
	return (uint32_t)(seed >> 32);
}

bool trainer_uses(const struct trainer_settings *settings, uint64_t random, uint32_t micro_batch,
                  uint32_t param)
{
	if (!settings->is_sparse)
		return true;
	return param != 2 && trainer_seed(~random, micro_batch, param) & 1;
}

static uint32_t param_count(const struct trainer_model *model)
{
	uint32_t count = 0;

	for (uint32_t unit = 0; unit < model->unit_count; unit++)
		count += model->unit_params[unit];
	return count;
}

uint64_t trainer_elements(const struct trainer_model *model)
{
	uint64_t count = 0;

	for (uint32_t param = 0; param < param_count(model); param++)
		count += model->elements[param];
	return count;
}

uint64_t trainer_padded_elements(const struct trainer_model *model)
{
	uint64_t total = 0;
	uint32_t param = 0;

	for (uint32_t unit = 0; unit < model->unit_count; unit++) {
		uint64_t count = 0;

		for (uint32_t end = param + model->unit_params[unit]; param < end; param++)
			count += model->elements[param];
		total += (count + BLOCK - 1) / BLOCK * BLOCK;
	}
	return total;
}

uint32_t trainer_dtype_bytes(enum zinf_dtype dtype)
{
	return dtype == ZINF_F32 ? 4 : 2;
}

uint64_t trainer_dump_bytes(const struct trainer_settings *settings)
{
	return trainer_elements(settings->model) *
	       trainer_dtype_bytes(settings->options.param_dtype);
}
