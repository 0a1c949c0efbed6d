/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: elements of all ranks are joined along the tree of docs/ARITHMETIC.md by every operation on
 * every type, and written to every target, with the same bits on every instruction set.
 * Method: the reference against the recursive definition written down here; the other instruction
 * sets against the reference on all kinds of data, counts, alignments, in place, streaming or not.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "common/base/cleanup.h"
#include "kernels/combine.h"
#include "tests/kernels/data.h"

#define TARGETS_MAX 3u

/* ---- the definition ---- */

static uint32_t half_of(uint32_t count)
{
	uint32_t half = 1;

	while (half * 2 < count)
		half *= 2;
	return half;
}

static float join_f32(float a, float b, enum zi_reduce_op op)
{
	if (op == ZI_REDUCE_PROD)
		return a * b;
	if (op == ZI_REDUCE_MIN || op == ZI_REDUCE_MAX) {
		if (isnan(a) || isnan(b))
			return NAN;
		return op == ZI_REDUCE_MIN ? (a < b ? a : b) : (a > b ? a : b);
	}
	return a + b;
}

static float tree_f32(const float *values, uint32_t count, enum zi_reduce_op op)
{
	uint32_t half = half_of(count);

	if (count == 1)
		return values[0];
	return join_f32(tree_f32(values, half, op), tree_f32(values + half, count - half, op), op);
}

static double join_f64(double a, double b, enum zi_reduce_op op)
{
	if (op == ZI_REDUCE_PROD)
		return a * b;
	if (op == ZI_REDUCE_MIN || op == ZI_REDUCE_MAX)
		return op == ZI_REDUCE_MIN ? (a < b ? a : b) : (a > b ? a : b);
	return a + b;
}

static double tree_f64(const double *values, uint32_t count, enum zi_reduce_op op)
{
	uint32_t half = half_of(count);

	if (count == 1)
		return values[0];
	return join_f64(tree_f64(values, half, op), tree_f64(values + half, count - half, op), op);
}

static int8_t join_i8(int8_t a, int8_t b, enum zi_reduce_op op)
{
	switch (op) {
	case ZI_REDUCE_SUM:
		return (int8_t)(a + b);
	case ZI_REDUCE_PROD:
		return (int8_t)(a * b);
	case ZI_REDUCE_MIN:
		return a < b ? a : b;
	case ZI_REDUCE_MAX:
		return a > b ? a : b;
	case ZI_REDUCE_BAND:
		return a & b;
	case ZI_REDUCE_BOR:
		return a | b;
	default:
		return a ^ b;
	}
}

Test(combine, the_reference_is_the_recursive_tree_for_every_number_of_ranks)
{
	float values[ZI_WORLD_MAX];
	const void *sources[ZI_WORLD_MAX];
	uint64_t seed = 7;

	cr_assert_eq(kern_isa_force(KERN_ISA_REF), 0);
	for (uint32_t ranks = 1; ranks <= ZI_WORLD_MAX; ranks++) {
		for (enum zi_reduce_op op = ZI_REDUCE_SUM; op <= ZI_REDUCE_MAX; op++) {
			float result, expected, average = (float)(1.0 / ranks);
			void *target = &result;
			struct kern_combine_run run = { &target,      sources, 1,
				                        ranks,        1,       ZI_DTYPE_F32,
				                        ZI_DTYPE_F32, op,      average,
				                        false };

			for (uint32_t i = 0; i < ranks; i++) {
				values[i] = kern_f32_from_bits(data_f32_bits(&seed, DATA_ORDINARY));
				sources[i] = &values[i];
			}
			kern_combine(&run);
			expected = tree_f32(values, ranks, op);
			if (op == ZI_REDUCE_AVG)
				expected *= average;
			cr_assert_eq(result, expected, "%u ranks, %s", ranks,
			             zi_reduce_op_name(op));
		}
	}
}

Test(combine, doubles_are_joined_in_64_bits_and_averaged_so)
{
	double values[ZI_WORLD_MAX];
	const void *sources[ZI_WORLD_MAX];
	uint64_t seed = 11;

	cr_assert_eq(kern_isa_force(KERN_ISA_REF), 0);
	for (uint32_t ranks = 1; ranks <= ZI_WORLD_MAX; ranks++) {
		for (enum zi_reduce_op op = ZI_REDUCE_SUM; op <= ZI_REDUCE_MAX; op++) {
			double result, expected, average = 1.0 / ranks;
			void *target = &result;
			struct kern_combine_run run = { &target,      sources, 1,
				                        ranks,        1,       ZI_DTYPE_F64,
				                        ZI_DTYPE_F64, op,      average,
				                        false };

			for (uint32_t i = 0; i < ranks; i++) {
				uint64_t bits = data_f64_bits(&seed, DATA_ORDINARY);

				memcpy(&values[i], &bits, sizeof(bits));
				sources[i] = &values[i];
			}
			kern_combine(&run);
			expected = tree_f64(values, ranks, op);
			if (op == ZI_REDUCE_AVG)
				expected *= average;
			cr_assert_eq(result, expected, "%u ranks, %s", ranks,
			             zi_reduce_op_name(op));
		}
	}
}

Test(combine, a_double_that_is_nan_is_the_positive_quiet_one)
{
	const uint64_t a[3] = { 0xfff8000000000001, 0x3ff0000000000000, 0x8000000000000000 };
	const uint64_t b[3] = { 0x3ff0000000000000, 0x7ff0000000000001, 0x0000000000000000 };
	const void *const sources[] = { a, b };
	uint64_t target[3];
	void *targets[] = { target };

	for (enum zi_reduce_op op = ZI_REDUCE_SUM; op <= ZI_REDUCE_MAX; op++) {
		struct kern_combine_run run = { targets,      sources,      1,  2,   3,
			                        ZI_DTYPE_F64, ZI_DTYPE_F64, op, 0.5, false };

		cr_assert_eq(kern_isa_force(KERN_ISA_REF), 0);
		kern_combine(&run);
		cr_expect_eq(target[0], 0x7ff8000000000000);
		cr_expect_eq(target[1], 0x7ff8000000000000);
		cr_expect_eq(target[2], op == ZI_REDUCE_PROD ? 1ull << 63 : 0, "%s",
		             zi_reduce_op_name(op));
	}
}

Test(combine, integers_wrap_and_are_signed_or_not_as_their_type_says)
{
	int8_t a[256], b[256], target[256];
	uint8_t unsigned_min[2] = { 200, 100 };
	const void *sources[] = { a, b };
	const void *unsigned_sources[] = { &unsigned_min[0], &unsigned_min[1] };
	void *targets[] = { target };

	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		for (enum zi_reduce_op op = ZI_REDUCE_SUM; op < _ZI_REDUCE_COUNT; op++) {
			struct kern_combine_run run = { targets,     sources,     1,  2,    256,
				                        ZI_DTYPE_I8, ZI_DTYPE_I8, op, 1.0f, false };

			if (!zi_reduce_op_is_for(op, ZI_DTYPE_I8))
				continue;
			for (int shift = 0; shift < 256; shift++) {
				for (int i = 0; i < 256; i++) {
					a[i] = (int8_t)i;
					b[i] = (int8_t)(i + shift);
				}
				kern_combine(&run);
				for (int i = 0; i < 256; i++)
					cr_assert_eq(target[i], join_i8(a[i], b[i], op), "%s %d %d",
					             zi_reduce_op_name(op), a[i], b[i]);
			}
		}
		kern_combine(&(struct kern_combine_run){ targets, unsigned_sources, 1, 2, 1,
		                                         ZI_DTYPE_U8, ZI_DTYPE_U8, ZI_REDUCE_MAX,
		                                         1.0f, false });
		cr_assert_eq((uint8_t)target[0], 200);
	}
}

Test(combine, a_minimum_with_nan_is_nan_and_of_equal_zeros_the_later_ranks)
{
	const uint32_t a[4] = { 0xffc00001u, 0x3f800000u, 0x80000000u, 0x00000000u };
	const uint32_t b[4] = { 0x3f800000u, 0x7f800001u, 0x00000000u, 0x80000000u };
	const void *const sources[] = { a, b };
	const enum zi_reduce_op ops[] = { ZI_REDUCE_MIN, ZI_REDUCE_MAX };
	uint32_t target[4];
	void *targets[] = { target };

	for (size_t i = 0; i < ZI_COUNT_OF(ops); i++) {
		struct kern_combine_run run = { targets,      sources,      1,      2,    4,
			                        ZI_DTYPE_F32, ZI_DTYPE_F32, ops[i], 1.0f, false };

		cr_assert_eq(kern_isa_force(KERN_ISA_REF), 0);
		kern_combine(&run);
		cr_assert_eq(target[0], 0x7fc00000u);
		cr_assert_eq(target[1], 0x7fc00000u);
		cr_assert_eq(target[2], 0x00000000u);
		cr_assert_eq(target[3], 0x80000000u);
	}
}

/* ---- all versions ---- */

struct trial {
	struct kern_combine_run run;
	enum data_kind kind;
	uint64_t offset_elements;
	bool is_in_place;
};

/* Integers are any bits. */
static void fill(void *data, uint64_t count, enum zi_dtype dtype, enum data_kind kind,
                 uint64_t seed)
{
	uint64_t state = seed * 2 + 1;

	if (zi_dtype_is_float(dtype)) {
		data_fill(data, count, dtype, kind, seed);
		return;
	}
	for (uint64_t i = 0; i < count * zi_dtype_bytes(dtype); i++)
		((uint8_t *)data)[i] = (uint8_t)(data_random(&state) >> 40);
}

/* The results of one instruction set, in new buffers of the caller's. */
static void run_on(enum kern_isa isa, const struct trial *trial, void **ret_targets)
{
	struct kern_combine_run run = trial->run;
	uint64_t source_bytes = run.element_count * zi_dtype_bytes(run.source_dtype);
	uint64_t target_bytes = run.element_count * zi_dtype_bytes(run.target_dtype);
	uint64_t source_offset = trial->offset_elements * zi_dtype_bytes(run.source_dtype);
	uint64_t target_offset = trial->offset_elements * zi_dtype_bytes(run.target_dtype);
	void *sources[ZI_WORLD_MAX];

	cr_assert_eq(kern_isa_force(isa), 0);
	for (uint32_t i = 0; i < run.source_count; i++) {
		sources[i] = data_new(source_bytes, source_offset);
		fill(sources[i], run.element_count, run.source_dtype, trial->kind, i + 1);
	}
	for (uint32_t t = 0; t < run.target_count; t++)
		ret_targets[t] = trial->is_in_place && t < run.source_count
		                         ? sources[t]
		                         : data_new(target_bytes, target_offset);
	run.sources = (const void *const *)sources;
	run.targets = ret_targets;
	kern_combine(&run);
	for (uint32_t t = 0; t < run.target_count; t++)
		cr_assert(data_guard_holds(ret_targets[t], target_bytes));
	for (uint32_t i = 0; i < run.source_count; i++)
		if (!trial->is_in_place || i >= run.target_count)
			data_free(sources[i], source_offset);
}

static void compare(const struct trial *trial)
{
	const struct kern_combine_run *run = &trial->run;
	uint64_t target_bytes = run->element_count * zi_dtype_bytes(run->target_dtype);
	uint64_t target_offset = trial->offset_elements * zi_dtype_bytes(run->target_dtype);
	void *expected[TARGETS_MAX], *targets[TARGETS_MAX];

	run_on(KERN_ISA_REF, trial, expected);
	for (enum kern_isa isa = KERN_ISA_AVX2; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		run_on(isa, trial, targets);
		for (uint32_t t = 0; t < run->target_count; t++) {
			int64_t at = data_difference(targets[t], expected[t], target_bytes);

			cr_assert_eq(at, -1,
			             "%s: %s of %u ranks, %s to %s, %llu elements: byte %lld of "
			             "target %u",
			             kern_isa_name(isa), zi_reduce_op_name(run->op),
			             run->source_count, zi_dtype_name(run->source_dtype),
			             zi_dtype_name(run->target_dtype),
			             (unsigned long long)run->element_count, (long long)at, t);
			data_free(targets[t], target_offset);
		}
	}
	for (uint32_t t = 0; t < run->target_count; t++)
		data_free(expected[t], target_offset);
}

static void compare_all(enum zi_dtype source, enum zi_dtype target)
{
	static const uint32_t ranks[] = { 1, 2, 3, 4, 5, 7, 8, 9, 64 };
	static const uint64_t counts[] = { 0, 1, 15, 64, 257, 1030 };

	for (enum zi_reduce_op op = ZI_REDUCE_SUM; op < _ZI_REDUCE_COUNT; op++)
		for (size_t r = 0; r < ZI_COUNT_OF(ranks); r++)
			for (size_t c = 0; c < ZI_COUNT_OF(counts); c++)
				for (unsigned kind = 0; kind < _DATA_COUNT; kind++) {
					uint32_t targets = 1 + (uint32_t)(r + c) % TARGETS_MAX;
					struct trial trial = {
						.run = { .target_count = targets,
						         .source_count = ranks[r],
						         .element_count = counts[c],
						         .source_dtype = source,
						         .target_dtype = target,
						         .op = op,
						         .average = (float)(1.0 / ranks[r]),
						         .is_streaming = (r + kind) % 2 },
						.kind = kind,
						.offset_elements = (c + kind) % 3,
						.is_in_place = source == target && c % 2,
					};

					if (zi_reduce_op_is_for(op, source))
						compare(&trial);
				}
}

Test(combine, all_versions_agree_on_every_type_and_operation)
{
	for (enum zi_dtype dtype = ZI_DTYPE_F32; dtype < _ZI_DTYPE_COUNT; dtype++)
		compare_all(dtype, dtype);
}

Test(combine, all_versions_agree_on_partial_results_in_fp32)
{
	compare_all(ZI_DTYPE_BF16, ZI_DTYPE_F32);
	compare_all(ZI_DTYPE_F16, ZI_DTYPE_F32);
	compare_all(ZI_DTYPE_F32, ZI_DTYPE_BF16);
	compare_all(ZI_DTYPE_F32, ZI_DTYPE_F16);
}

Test(combine, subtrees_in_fp32_joined_are_the_whole_tree)
{
	uint16_t values[6], whole, split;
	float partial[2];
	const void *sources[6], *partials[] = { &partial[0], &partial[1] };
	void *whole_target = &whole, *split_target = &split;
	uint64_t seed = 99;

	for (unsigned round = 0; round < 1000; round++) {
		void *low = &partial[0], *high = &partial[1];
		struct kern_combine_run run = { .target_count = 1,
			                        .element_count = 1,
			                        .op = ZI_REDUCE_SUM,
			                        .source_dtype = ZI_DTYPE_BF16 };

		for (unsigned i = 0; i < 6; i++) {
			values[i] = (uint16_t)(data_f32_bits(&seed, DATA_ORDINARY) >> 16);
			sources[i] = &values[i];
		}
		run.targets = &whole_target, run.sources = sources, run.source_count = 6;
		run.target_dtype = ZI_DTYPE_BF16;
		kern_combine(&run);
		run.target_dtype = ZI_DTYPE_F32;
		run.targets = &low, run.source_count = 4;
		kern_combine(&run);
		run.targets = &high, run.sources = sources + 4, run.source_count = 2;
		kern_combine(&run);
		run.source_dtype = ZI_DTYPE_F32, run.target_dtype = ZI_DTYPE_BF16;
		run.targets = &split_target, run.sources = partials;
		kern_combine(&run);
		cr_assert_eq(split, whole);
	}
}
