/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: element conversions round as docs/ARITHMETIC.md says, the master split is exactly
 * invertible, and all instruction sets give the same bits.
 * Method: exhaustive over 16-bit types against values computed with ldexp(), midpoints and their
 * neighbours for rounding; split and join over all upper halves × many lower halves.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "kernels/cast.h"
#include "tests/kernels/data.h"

#define COUNTS_MAX 133u

/* The value of an f16 that is not NaN, by its definition. */
static double f16_value(uint16_t bits)
{
	int exponent = bits >> 10 & 31;
	int fraction = bits & 1023;
	double sign = bits & 0x8000 ? -1.0 : 1.0;

	if (exponent == 31)
		return sign * INFINITY;
	if (exponent == 0)
		return sign * ldexp(fraction, -24);
	return sign * ldexp(1024 + fraction, exponent - 25);
}

static bool f16_is_nan(uint16_t bits)
{
	return (bits & 0x7fff) > 0x7c00;
}

Test(cast, every_f16_widens_to_its_value_and_back)
{
	for (uint32_t bits = 0; bits <= 0xffff; bits++) {
		float wide = kern_f16_to_f32((uint16_t)bits);

		if (f16_is_nan((uint16_t)bits)) {
			cr_assert(isnan(wide));
			cr_assert_eq(kern_f32_to_f16(wide), bits | 0x200, "quiet, payload kept");
			continue;
		}
		cr_assert_eq((double)wide, f16_value((uint16_t)bits), "f16 %#x", bits);
		cr_assert_eq(!!signbit(wide), bits >> 15);
		cr_assert_eq(kern_f32_to_f16(wide), bits);
	}
}

Test(cast, f16_rounds_midpoints_to_even_and_others_to_the_nearest)
{
	for (uint32_t bits = 0; bits < 0x7bff; bits++) {
		double low = f16_value((uint16_t)bits);
		double high = f16_value((uint16_t)(bits + 1));
		float middle = (float)((low + high) / 2);

		cr_assert_eq((double)middle, (low + high) / 2, "exact in fp32");
		cr_assert_eq(kern_f32_to_f16(middle), bits + (bits & 1), "%#x", bits);
		cr_assert_eq(kern_f32_to_f16(-middle), 0x8000 | (bits + (bits & 1)));
		cr_assert_eq(kern_f32_to_f16(nextafterf(middle, 0.0f)), bits);
		cr_assert_eq(kern_f32_to_f16(nextafterf(middle, INFINITY)), bits + 1);
	}
}

Test(cast, f16_overflows_to_infinity_at_the_midpoint_beyond_its_maximum)
{
	cr_assert_eq(kern_f32_to_f16(65504.0f), 0x7bff);
	cr_assert_eq(kern_f32_to_f16(nextafterf(65520.0f, 0.0f)), 0x7bff);
	cr_assert_eq(kern_f32_to_f16(65520.0f), 0x7c00);
	cr_assert_eq(kern_f32_to_f16(FLT_MAX), 0x7c00);
	cr_assert_eq(kern_f32_to_f16(-INFINITY), 0xfc00);
	cr_assert_eq(kern_f32_to_f16(0x1p-149f), 0);
}

Test(cast, bf16_rounds_midpoints_to_even_and_others_to_the_nearest)
{
	for (uint32_t high = 0; high < 0x7f80; high++)
		for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
			uint32_t bits = (sign | high) << 16;
			uint32_t even = high + (high & 1);

			cr_assert_eq(kern_f32_to_bf16(kern_f32_from_bits(bits)), sign | high);
			cr_assert_eq(kern_f32_to_bf16(kern_f32_from_bits(bits + 0x7fff)),
			             sign | high);
			cr_assert_eq(kern_f32_to_bf16(kern_f32_from_bits(bits + 0x8000)),
			             sign | even);
			cr_assert_eq(kern_f32_to_bf16(kern_f32_from_bits(bits + 0x8001)),
			             sign | (high + 1));
		}
	cr_assert_eq(kern_f32_to_bf16(FLT_MAX), 0x7f80);
}

Test(cast, bf16_makes_each_nan_the_quiet_one_of_its_sign)
{
	for (uint32_t bits = 0x7f800001u; bits <= 0x7fffffffu - 0x1fff; bits += 0x1fff) {
		cr_assert_eq(kern_f32_to_bf16(kern_f32_from_bits(bits)), 0x7fc0);
		cr_assert_eq(kern_f32_to_bf16(kern_f32_from_bits(bits | 0x80000000u)), 0xffc0);
	}
	cr_assert_eq(kern_f32_to_bf16(kern_f32_from_bits(0x7fffffffu)), 0x7fc0);
}

static bool bits_are_nan(uint32_t bits)
{
	return (bits & 0x7fffffffu) > 0x7f800000u;
}

Test(cast, join_undoes_split_for_every_upper_half)
{
	uint64_t state = 1;

	for (uint32_t high = 0; high <= 0xffff; high++)
		for (unsigned i = 0; i < 64; i++) {
			static const uint16_t borders[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
			uint16_t low = i < 6 ? borders[i] : (uint16_t)data_random(&state);
			uint32_t bits = high << 16 | low;
			uint32_t joined;
			uint16_t param;
			int16_t remainder;

			kern_split(kern_f32_from_bits(bits), &param, &remainder);
			joined = kern_f32_bits(kern_join(param, remainder));
			if (bits_are_nan(bits)) {
				cr_assert_eq(joined, 0x7fc00000u);
				continue;
			}
			cr_assert_eq(joined, bits, "%#x", bits);
			cr_assert_eq((uint16_t)(param - high), low >= 0x8000, "%#x", bits);
		}
}

Test(cast, join_undoes_split_of_f16_for_every_upper_half)
{
	uint64_t state = 3;

	for (uint32_t high = 0; high <= 0xffff; high++)
		for (unsigned i = 0; i < 64; i++) {
			static const uint16_t borders[] = { 0, 1, 0xe000, 0xf000, 0xf001, 0xffff };
			uint16_t low = i < 6 ? borders[i] : (uint16_t)data_random(&state);
			float master = kern_f32_from_bits(high << 16 | low);
			uint32_t joined;
			uint16_t param;
			int32_t remainder;

			kern_split_f16(master, &param, &remainder);
			joined = kern_f32_bits(kern_join_f16(param, remainder));
			if (isnan(master)) {
				cr_assert_eq(joined, 0x7fc00000u);
				cr_assert_eq(param, 0x7e00);
				cr_assert_eq(remainder, 0);
				continue;
			}
			cr_assert_eq(joined, kern_f32_bits(master), "%a", (double)master);
			cr_assert_eq(param, kern_f32_to_f16(master), "%a", (double)master);
		}
}

/* So state that was never written is that of a master equal to its parameter. */
Test(cast, without_a_remainder_the_master_is_the_f16)
{
	for (uint32_t bits = 0; bits <= 0xffff; bits++) {
		float wide = kern_f16_to_f32((uint16_t)bits);
		uint16_t param;
		int32_t remainder;

		cr_assert_eq(kern_f32_bits(kern_join_f16((uint16_t)bits, 0)), kern_f32_bits(wide));
		if (f16_is_nan((uint16_t)bits))
			continue;
		kern_split_f16(wide, &param, &remainder);
		cr_assert_eq(param, bits);
		cr_assert_eq(remainder, 0);
	}
}

Test(cast, split_keeps_param_within_half_a_step_of_the_master)
{
	uint64_t state = 2;

	for (unsigned i = 0; i < 100000; i++) {
		float master = kern_f32_from_bits(data_f32_bits(&state, DATA_ORDINARY));
		float step = ldexpf(1.0f, ilogbf(master) - 7);
		uint16_t param;
		int16_t remainder;

		kern_split(master, &param, &remainder);
		cr_assert_leq(fabsf(kern_bf16_to_f32(param) - master), step / 2);
	}
}

/* @is_narrow: narrow f32 to @dtype, otherwise widen. */
static void check_isa(enum kern_isa isa, bool is_narrow, enum zi_dtype dtype, enum data_kind kind,
                      uint64_t count, uint64_t offset)
{
	uint64_t wide_offset = offset * sizeof(float);
	uint64_t slim_offset = offset * zi_dtype_bytes(dtype);
	uint64_t source_bytes = count * (is_narrow ? sizeof(float) : zi_dtype_bytes(dtype));
	uint64_t target_bytes = count * (is_narrow ? zi_dtype_bytes(dtype) : sizeof(float));
	uint64_t source_offset = is_narrow ? wide_offset : slim_offset;
	uint64_t target_offset = is_narrow ? slim_offset : wide_offset;
	void *source = data_new(source_bytes, source_offset);
	void *expected = data_new(target_bytes, target_offset);
	void *target = data_new(target_bytes, target_offset);

	data_fill(source, count, is_narrow ? ZI_DTYPE_F32 : dtype, kind, count + offset);
	for (unsigned pass = 0; pass < 2; pass++) {
		void *result = pass ? target : expected;

		cr_assert_eq(kern_isa_force(pass ? isa : KERN_ISA_REF), 0);
		if (is_narrow)
			kern_narrow(result, source, count, dtype);
		else
			kern_widen(result, source, count, dtype);
	}
	cr_assert_eq(data_difference(expected, target, target_bytes), -1,
	             "%s, narrow %d, dtype %d, kind %d, count %llu", kern_isa_name(isa), is_narrow,
	             dtype, kind, (unsigned long long)count);
	cr_assert(data_guard_holds(expected, target_bytes));
	cr_assert(data_guard_holds(target, target_bytes));
	data_free(source, source_offset);
	data_free(expected, target_offset);
	data_free(target, target_offset);
}

Test(cast, all_instruction_sets_agree_on_any_count_and_alignment)
{
	for (enum kern_isa isa = KERN_ISA_AVX2; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		for (enum zi_dtype dtype = ZI_DTYPE_F32; dtype < _ZI_DTYPE_FLOAT_COUNT; dtype++)
			for (enum data_kind kind = 0; kind < _DATA_COUNT; kind++)
				for (uint64_t count = 0; count < COUNTS_MAX; count += 1 + count / 9)
					for (uint64_t offset = 0; offset < 4; offset += 3) {
						check_isa(isa, true, dtype, kind, count, offset);
						check_isa(isa, false, dtype, kind, count, offset);
					}
	}
}

Test(cast, all_instruction_sets_agree_on_every_16_bit_pattern)
{
	static uint16_t all[1 << 16], narrowed[2][1 << 16];
	static float widened[2][1 << 16];

	for (uint32_t i = 0; i <= 0xffff; i++)
		all[i] = (uint16_t)i;
	for (enum zi_dtype dtype = ZI_DTYPE_F16; dtype < _ZI_DTYPE_FLOAT_COUNT; dtype++)
		for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
			unsigned side = isa != KERN_ISA_REF;

			if (kern_isa_force(isa) < 0)
				continue;
			kern_widen(widened[side], all, 1 << 16, dtype);
			kern_narrow(narrowed[side], widened[side], 1 << 16, dtype);
			cr_assert_eq(data_difference(widened[0], widened[side], sizeof *widened),
			             -1);
			cr_assert_eq(data_difference(narrowed[0], narrowed[side], sizeof *narrowed),
			             -1);
		}
}

Test(cast, f32_to_f32_in_place_is_the_identity)
{
	uint32_t bits[37], before[37];

	data_fill(bits, 37, ZI_DTYPE_F32, DATA_WILD, 9);
	memcpy(before, bits, sizeof before);
	kern_widen((float *)bits, bits, 37, ZI_DTYPE_F32);
	kern_narrow(bits, (float *)bits, 37, ZI_DTYPE_F32);
	cr_assert_eq(memcmp(bits, before, sizeof bits), 0);
}
