/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: masters of a checkpoint become the state that a step would have left, and one that is not
 * its parameter's is found. Method: masters of any size beside kernels/cast.h, tile by tile; then
 * one of them spoilt.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/cast.h"
#include "tests/kernels/data.h"
#include "zctl/load.h"

#define TOTAL (ZI_TILE_ELEMENTS + 4096u)

static uint32_t bits[TOTAL];
static float master[TOTAL], first[TOTAL], second[TOTAL];
static uint16_t param[TOTAL];
static uint8_t state[12 * TOTAL];

static struct model model_of(enum zi_dtype dtype)
{
	return (struct model){
		.dtype = dtype,
		.state_width = zi_state_element_bytes(ZI_OPTIMIZER_ADAMW, dtype),
	};
}

static uint16_t round_to(enum zi_dtype dtype, float value)
{
	uint16_t high;
	int16_t low;

	if (dtype == ZI_DTYPE_F16)
		return kern_f32_to_f16(value);
	kern_split(value, &high, &low);
	return high;
}

static float join_at(enum zi_dtype dtype, uint64_t index, const uint8_t *remainder)
{
	int32_t wide;
	int16_t narrow;

	memcpy(&wide, remainder, dtype == ZI_DTYPE_F16 ? sizeof wide : 0);
	memcpy(&narrow, remainder, sizeof narrow);
	return dtype == ZI_DTYPE_F16 ? kern_join_f16(param[index], wide)
	                             : kern_join(param[index], narrow);
}

static void begin(enum zi_dtype dtype, enum data_kind kind)
{
	data_fill(bits, TOTAL, ZI_DTYPE_F32, kind, 1);
	for (uint64_t i = 0; i < TOTAL; i++) {
		master[i] = kern_f32_from_bits(bits[i]);
		param[i] = round_to(dtype, master[i]);
		first[i] = (float)i;
		second[i] = (float)i * 0.5f;
	}
}

static void check_fold(enum zi_dtype dtype, enum data_kind kind)
{
	const uint32_t narrow = zi_remainder_bytes(dtype);
	const struct model model = model_of(dtype);
	const uint8_t *tile = state;

	begin(dtype, kind);
	cr_assert_eq(fold_state(&model, TOTAL, param, master, first, second, state), TOTAL);
	for (uint64_t begin = 0; begin < TOTAL; begin += ZI_TILE_ELEMENTS) {
		uint64_t count =
			TOTAL - begin < ZI_TILE_ELEMENTS ? TOTAL - begin : ZI_TILE_ELEMENTS;

		for (uint64_t i = 0; i < count; i++)
			cr_assert_eq(kern_f32_bits(join_at(dtype, begin + i, tile + narrow * i)),
			             bits[begin + i], "%s, %u", zi_dtype_name(dtype),
			             (unsigned)(begin + i));
		tile += narrow * count;
		cr_assert_eq(memcmp(tile, first + begin, 4 * count), 0);
		cr_assert_eq(memcmp(tile + 4 * count, second + begin, 4 * count), 0);
		tile += 8 * count;
	}
}

Test(fold, masters_come_back_with_all_bits)
{
	for (enum data_kind kind = DATA_ORDINARY; kind <= DATA_EXTREME; kind++) {
		check_fold(ZI_DTYPE_BF16, kind);
		check_fold(ZI_DTYPE_F16, kind);
	}
}

Test(fold, a_master_that_does_not_round_to_its_parameter_is_found)
{
	static const enum zi_dtype dtypes[] = { ZI_DTYPE_BF16, ZI_DTYPE_F16 };

	for (unsigned i = 0; i < 2; i++) {
		const struct model model = model_of(dtypes[i]);

		begin(dtypes[i], DATA_ORDINARY);
		param[ZI_TILE_ELEMENTS + 7]++;
		cr_expect_eq(fold_state(&model, TOTAL, param, master, first, second, state),
		             ZI_TILE_ELEMENTS + 7);
	}
}

/* A trainer may have written one with a payload, and the master is the same widened. */
Test(fold, a_parameter_that_is_no_number_is_its_own_master)
{
	const struct model model = model_of(ZI_DTYPE_F16);

	begin(ZI_DTYPE_F16, DATA_ORDINARY);
	param[5] = 0xfd01;
	master[5] = kern_f16_to_f32(param[5]);
	cr_expect_eq(fold_state(&model, TOTAL, param, master, first, second, state), TOTAL);
}
