/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the norm is summed in the lanes and the tree that docs/ARITHMETIC.md fixes, detects what is
 * not finite, and has the same bits on every instruction set.
 * Method: the reference against the definition written down here and against long double within a
 * bound; the other instruction sets against the reference.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "kernels/norm.h"
#include "tests/kernels/data.h"

#define BLOCKS   5u
#define ELEMENTS (BLOCKS * ZI_BLOCK_ELEMENTS)

static uint32_t memory[ELEMENTS + 16];

/* The definition: 16 lanes in order, then pairwise. */
static double block_sum(const float *values, float unscale)
{
	double lane[16] = { 0 };

	for (unsigned i = 0; i < ZI_BLOCK_ELEMENTS; i++) {
		float x = values[i] * unscale;

		lane[i % 16] = lane[i % 16] + (double)x * (double)x;
	}
	for (unsigned j = 0; j < 8; j++)
		lane[j] += lane[j + 8];
	for (unsigned j = 0; j < 4; j++)
		lane[j] += lane[j + 4];
	return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static double tree(const double *values, uint64_t low, uint64_t high)
{
	uint64_t half = 1;

	if (high - low == 1)
		return values[low];
	while (half * 2 < high - low)
		half *= 2;
	return tree(values, low, low + half) + tree(values, low + half, high);
}

Test(norm, the_reference_sums_in_sixteen_lanes)
{
	double sums[BLOCKS];

	cr_assert_eq(kern_isa_force(KERN_ISA_REF), 0);
	data_fill(memory, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 1);
	kern_norm_blocks(sums, memory, ELEMENTS, 0.3f, ZI_DTYPE_F32);
	for (unsigned block = 0; block < BLOCKS; block++)
		cr_assert_eq(sums[block],
		             block_sum((float *)memory + block * ZI_BLOCK_ELEMENTS, 0.3f));
}

Test(norm, is_within_its_bound_of_long_double)
{
	double sums[BLOCKS];
	long double exact = 0;
	double joined;

	data_fill(memory, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 2);
	for (unsigned i = 0; i < ELEMENTS; i++) {
		long double x = ((float *)memory)[i];

		exact += x * x;
	}
	kern_norm_blocks(sums, memory, ELEMENTS, 1.0f, ZI_DTYPE_F32);
	joined = kern_norm_join(sums, BLOCKS);
	/* 256 additions in a lane, 4 to join lanes, 3 to join blocks, each half an ulp. */
	cr_assert_leq(fabsl(joined - exact), 264 * (long double)DBL_EPSILON / 2 * exact);
}

Test(norm, known_values)
{
	double sums[BLOCKS];

	for (unsigned i = 0; i < ELEMENTS; i++)
		((float *)memory)[i] = i % 2 ? 3.0f : -4.0f;
	kern_norm_blocks(sums, memory, ELEMENTS, 0.5f, ZI_DTYPE_F32);
	for (unsigned block = 0; block < BLOCKS; block++)
		cr_assert_eq(sums[block], 2048 * (1.5 * 1.5 + 2.0 * 2.0));
	cr_assert_eq(kern_norm_join(sums, BLOCKS), 5 * 12800.0);
}

Test(norm, join_is_the_recursive_tree_for_every_number_of_blocks)
{
	double values[300], copy[300];
	uint64_t state = 1;

	for (uint64_t count = 1; count <= 300; count++) {
		for (uint64_t i = 0; i < count; i++)
			values[i] = copy[i] =
				ldexp((double)data_random(&state), (int)(data_random(&state) % 40));
		cr_assert_eq(kern_norm_join(copy, count), tree(values, 0, count), "%llu blocks",
		             (unsigned long long)count);
	}
}

Test(norm, no_blocks_join_to_zero)
{
	cr_assert_eq(kern_norm_join(NULL, 0), 0.0);
}

Test(norm, the_largest_and_smallest_values_stay_finite_and_count)
{
	double sums[BLOCKS];

	for (unsigned i = 0; i < ELEMENTS; i++)
		((float *)memory)[i] = FLT_MAX;
	kern_norm_blocks(sums, memory, ELEMENTS, 1.0f, ZI_DTYPE_F32);
	cr_assert(isfinite(kern_norm_join(sums, BLOCKS)));
	for (unsigned i = 0; i < ELEMENTS; i++)
		((float *)memory)[i] = 0x1p-149f;
	kern_norm_blocks(sums, memory, ELEMENTS, 1.0f, ZI_DTYPE_F32);
	cr_assert_eq(kern_norm_join(sums, BLOCKS), ELEMENTS * 0x1p-298);
}

Test(norm, one_nan_or_infinity_anywhere_makes_its_block_and_the_total_not_finite)
{
	static const uint32_t bad[] = { 0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u };
	double sums[BLOCKS];

	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		for (unsigned i = 0; i < ELEMENTS; i += 1237) {
			data_fill(memory, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, i);
			memory[i] = bad[i % 4];
			kern_norm_blocks(sums, memory, ELEMENTS, 1.0f, ZI_DTYPE_F32);
			for (unsigned block = 0; block < BLOCKS; block++)
				cr_assert_eq(!!isfinite(sums[block]),
				             block != i / ZI_BLOCK_ELEMENTS);
			cr_assert_not(isfinite(kern_norm_join(sums, BLOCKS)));
		}
	}
}

Test(norm, unscale_that_overflows_is_found)
{
	double sums[BLOCKS];

	data_fill(memory, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 3);
	((float *)memory)[77] = 0x1p100f;
	kern_norm_blocks(sums, memory, ELEMENTS, 0x1p60f, ZI_DTYPE_F32);
	cr_assert(isinf(sums[0]));
	cr_assert(isfinite(sums[1]));
}

Test(norm, all_instruction_sets_agree)
{
	for (enum zi_dtype dtype = ZI_DTYPE_F32; dtype < _ZI_DTYPE_FLOAT_COUNT; dtype++)
		for (unsigned trial = 0; trial < 8 * _DATA_COUNT; trial++) {
			enum data_kind kind = trial % _DATA_COUNT;
			/* Some blocks end in NaN and infinity, others must stay comparable. */
			char *source = (char *)memory + trial % 3 * zi_dtype_bytes(dtype);
			float unscale = trial % 2 ? 1.0f : 0.37f;
			double sums[2][BLOCKS];

			data_fill(source, ELEMENTS, dtype, kind, trial);
			data_fill(source, ZI_BLOCK_ELEMENTS, dtype, DATA_ORDINARY, trial);
			for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
				if (kern_isa_force(isa) < 0)
					continue;
				kern_norm_blocks(sums[isa != KERN_ISA_REF], source, ELEMENTS,
				                 unscale, dtype);
				if (isa == KERN_ISA_REF)
					continue;
				cr_assert_eq(memcmp(sums[0], sums[1], sizeof *sums), 0,
				             "%s, dtype %d, kind %d", kern_isa_name(isa), dtype,
				             kind);
			}
		}
}
