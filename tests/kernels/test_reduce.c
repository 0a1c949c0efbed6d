/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the sum over ranks follows the tree of docs/ARITHMETIC.md, is averaged and rounded once, in
 * both schedules, with the same bits on every instruction set.
 * Method: the reference against the recursive definition written down here, for every number of
 * ranks; the other instruction sets against the reference on all kinds of data, counts, alignments.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/reduce.h"
#include "tests/kernels/data.h"

#define ELEMENTS 37u

/* The definition, word for word. */
static float tree(const float *values, uint32_t low, uint32_t high)
{
	uint32_t half = 1;

	if (high - low == 1)
		return values[low];
	while (half * 2 < high - low)
		half *= 2;
	return tree(values, low, low + half) + tree(values, low + half, high);
}

struct fixture {
	void *sources[ZI_WORLD_MAX];
	uint64_t offset;
};

static void fixture_init(struct fixture *fixture, uint32_t rank_count, uint64_t count,
                         enum zi_dtype dtype, enum data_kind kind, uint64_t offset_elements)
{
	fixture->offset = offset_elements * zi_dtype_bytes(dtype);
	for (uint32_t rank = 0; rank < rank_count; rank++) {
		fixture->sources[rank] = data_new(count * zi_dtype_bytes(dtype), fixture->offset);
		data_fill(fixture->sources[rank], count, dtype, kind, rank * 1000 + count);
	}
}

static void fixture_deinit(struct fixture *fixture, uint32_t rank_count)
{
	for (uint32_t rank = 0; rank < rank_count; rank++)
		data_free(fixture->sources[rank], fixture->offset);
}

Test(reduce, the_reference_is_the_recursive_tree_for_every_number_of_ranks)
{
	float target[ELEMENTS];

	cr_assert_eq(kern_isa_force(KERN_ISA_REF), 0);
	for (uint32_t rank_count = 1; rank_count <= ZI_WORLD_MAX; rank_count++) {
		const struct kern_reduce_options options = { ZI_DTYPE_F32,
			                                     (float)(1.0 / rank_count) };
		struct fixture fixture;

		fixture_init(&fixture, rank_count, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 0);
		kern_reduce(target, (const void *const *)fixture.sources, rank_count, ELEMENTS,
		            &options);
		for (unsigned i = 0; i < ELEMENTS; i++) {
			float values[ZI_WORLD_MAX];

			for (uint32_t rank = 0; rank < rank_count; rank++)
				values[rank] = ((const float *)fixture.sources[rank])[i];
			cr_assert_eq(target[i], tree(values, 0, rank_count) * options.average,
			             "%u ranks", rank_count);
		}
		fixture_deinit(&fixture, rank_count);
	}
}

Test(reduce, the_tree_is_not_the_sum_in_rank_order)
{
	/* (1 + 2^-24) + 2^-24 loses both small terms, 1 + (2^-24 + 2^-24) keeps them. */
	const float one = 1.0f, zero = 0.0f, small = 0x1p-24f;
	const void *const sources[] = { &one, &zero, &small, &small };
	const struct kern_reduce_options options = { ZI_DTYPE_F32, 1.0f };
	float sum;

	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		kern_reduce(&sum, sources, 4, 1, &options);
		cr_assert_eq(sum, 1.0f + 0x1p-23f);
	}
}

Test(reduce, bf16_is_averaged_in_fp32_and_rounded_once)
{
	/* 1 + 2^-7 and 1: their sum needs one bit more than bf16 has; half of it ties to even. */
	const uint16_t a = 0x3f81, b = 0x3f80;
	const void *const sources[] = { &a, &b };
	const struct kern_reduce_options sum = { ZI_DTYPE_BF16, 1.0f };
	const struct kern_reduce_options mean = { ZI_DTYPE_BF16, 0.5f };
	uint16_t target;

	kern_reduce(&target, sources, 2, 1, &sum);
	cr_assert_eq(target, 0x4000, "2 + 2^-7 ties to 2");
	kern_reduce(&target, sources, 2, 1, &mean);
	cr_assert_eq(target, 0x3f80, "1 + 2^-8 ties to 1");
}

Test(reduce, nan_comes_out_canonical_and_opposite_infinities_become_nan)
{
	const uint32_t inputs[2][3] = { { 0xffc12345u, 0x7f800000u, 0x7f800001u },
		                        { 0x3f800000u, 0xff800000u, 0xffffffffu } };
	const void *const sources[] = { inputs[0], inputs[1] };
	const struct kern_reduce_options options = { ZI_DTYPE_F32, 1.0f };
	uint32_t target[3];

	kern_reduce(target, sources, 2, 3, &options);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(target[i], 0x7fc00000u, "%u", i);
	kern_reduce_accumulate((float *)target, sources, 1, 3, true, ZI_DTYPE_F32);
	cr_assert_eq(target[0], 0x7fc00000u);
	cr_assert_eq(target[1], 0x7f800000u);
}

Test(reduce, the_target_may_be_any_of_the_sources)
{
	const struct kern_reduce_options options = { ZI_DTYPE_BF16, 1.0f / 3.0f };
	uint16_t expected[ELEMENTS];

	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++)
		for (uint32_t own = 0; own < 3 && kern_isa_force(isa) == 0; own++) {
			struct fixture fixture;

			fixture_init(&fixture, 3, ELEMENTS, ZI_DTYPE_BF16, DATA_ORDINARY, 0);
			kern_reduce(expected, (const void *const *)fixture.sources, 3, ELEMENTS,
			            &options);
			kern_reduce(fixture.sources[own], (const void *const *)fixture.sources, 3,
			            ELEMENTS, &options);
			cr_assert_eq(memcmp(expected, fixture.sources[own], sizeof expected), 0);
			fixture_deinit(&fixture, 3);
		}
}

Test(reduce, one_micro_batch_sharded_equals_local)
{
	const struct kern_reduce_options options = { ZI_DTYPE_BF16, 0.2f };
	uint16_t local[ELEMENTS], sharded[ELEMENTS];
	float accum[ELEMENTS];
	struct fixture fixture;

	fixture_init(&fixture, 5, ELEMENTS, ZI_DTYPE_BF16, DATA_ORDINARY, 0);
	kern_reduce(local, (const void *const *)fixture.sources, 5, ELEMENTS, &options);
	kern_reduce_accumulate(accum, (const void *const *)fixture.sources, 5, ELEMENTS, true,
	                       ZI_DTYPE_BF16);
	kern_reduce_finish(sharded, accum, ELEMENTS, &options);
	cr_assert_eq(memcmp(local, sharded, sizeof local), 0);
	fixture_deinit(&fixture, 5);
}

Test(reduce, the_accumulator_is_not_rounded_between_micro_batches)
{
	/* Each 2^-9 is lost beside a bf16 1; four of them together are kept. */
	const uint16_t one = 0x3f80, small = 0x3b00;
	const void *sources[] = { &one };
	const struct kern_reduce_options options = { ZI_DTYPE_BF16, 1.0f };
	float accum;
	uint16_t target;

	kern_reduce_accumulate(&accum, sources, 1, 1, true, ZI_DTYPE_BF16);
	sources[0] = &small;
	for (unsigned i = 0; i < 4; i++)
		kern_reduce_accumulate(&accum, sources, 1, 1, false, ZI_DTYPE_BF16);
	kern_reduce_finish(&target, &accum, 1, &options);
	cr_assert_eq(target, 0x3f81);
}

/* All three functions on @isa into @memory: reduced, accumulated, finished. */
static void run_all(enum kern_isa isa, void *reduced, float *accum, void *finished,
                    const struct fixture *fixture, uint32_t rank_count, uint64_t count,
                    const struct kern_reduce_options *options)
{
	const void *const *sources = (const void *const *)fixture->sources;

	cr_assert_eq(kern_isa_force(isa), 0);
	kern_reduce(reduced, sources, rank_count, count, options);
	kern_reduce_accumulate(accum, sources, rank_count, count, true, options->dtype);
	kern_reduce_accumulate(accum, sources, rank_count, count, false, options->dtype);
	kern_reduce_finish(finished, accum, count, options);
}

static void check_isa(enum kern_isa isa, enum zi_dtype dtype, enum data_kind kind,
                      uint32_t rank_count, uint64_t count, uint64_t offset)
{
	const struct kern_reduce_options options = { dtype, (float)(1.0 / rank_count) };
	const uint64_t bytes = count * zi_dtype_bytes(dtype), wide = count * sizeof(float);
	const uint64_t shift = offset * sizeof(float);
	void *reduced[2], *finished[2], *accum[2];
	struct fixture fixture;

	fixture_init(&fixture, rank_count, count, dtype, kind, offset);
	for (unsigned side = 0; side < 2; side++) {
		reduced[side] = data_new(bytes, shift);
		finished[side] = data_new(bytes, shift);
		accum[side] = data_new(wide, shift);
		run_all(side ? isa : KERN_ISA_REF, reduced[side], accum[side], finished[side],
		        &fixture, rank_count, count, &options);
	}
	cr_assert_eq(data_difference(reduced[0], reduced[1], bytes + DATA_GUARD_BYTES), -1,
	             "reduce: %s, dtype %d, kind %d, %u ranks, %llu elements", kern_isa_name(isa),
	             dtype, kind, rank_count, (unsigned long long)count);
	cr_assert_eq(data_difference(accum[0], accum[1], wide + DATA_GUARD_BYTES), -1,
	             "accumulate: %s, dtype %d, kind %d, %u ranks", kern_isa_name(isa), dtype, kind,
	             rank_count);
	cr_assert_eq(data_difference(finished[0], finished[1], bytes + DATA_GUARD_BYTES), -1,
	             "finish: %s, dtype %d, kind %d", kern_isa_name(isa), dtype, kind);
	cr_assert(data_guard_holds(reduced[1], bytes));
	cr_assert(data_guard_holds(accum[1], wide));
	cr_assert(data_guard_holds(finished[1], bytes));
	for (unsigned side = 0; side < 2; side++) {
		data_free(reduced[side], shift);
		data_free(finished[side], shift);
		data_free(accum[side], shift);
	}
	fixture_deinit(&fixture, rank_count);
}

static void check_counts(enum kern_isa isa, uint32_t rank_count)
{
	static const uint64_t counts[] = { 1, 7, 8, 15, 16, 17, 33, 133 };

	for (enum zi_dtype dtype = ZI_DTYPE_F32; dtype < _ZI_DTYPE_FLOAT_COUNT; dtype++)
		for (enum data_kind kind = 0; kind < _DATA_COUNT; kind++)
			for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
				check_isa(isa, dtype, kind, rank_count, counts[i], i % 3);
}

Test(reduce, all_instruction_sets_agree_for_every_number_of_ranks)
{
	for (enum kern_isa isa = KERN_ISA_AVX2; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		for (uint32_t rank_count = 1; rank_count <= ZI_WORLD_MAX; rank_count++)
			check_counts(isa, rank_count);
	}
}
