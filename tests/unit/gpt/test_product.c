/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: products are right for every shape, layout and element type, by either way of multiplying,
 * and their bits do not depend on the number of threads.
 * Method: each product is held against plain loops in f64 over the same factors. ZINF_ISA chooses
 * the way; where the CPU does not multiply bf16, both ways are the same one.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/f16.h"
#include "examples/gpt/product.h"
#include "tests/unit/gpt/difference.h"

/* Odd, so that strips, panels and pairs have remainders; the larger ones have several parts. */
static const struct gpt_product_bounds shapes[] = {
	{ 1, 1, 1, 1, 1 },     { 5, 7, 3, 1, 1 },       { 16, 48, 32, 1, 1 },
	{ 67, 201, 45, 1, 1 }, { 130, 387, 129, 1, 1 }, { 33, 49, 64, 1, 1 },
	{ 9, 5, 1, 1, 1 },     { 1, 7, 5, 1, 1 },       { 7, 1, 5, 1, 1 },
};

enum { SIDE = 400 }; /* at least the largest of the above */

struct matrices {
	float left[SIDE * SIDE], right[SIDE * SIDE], bias[SIDE];
	uint16_t narrow[SIDE * SIDE]; /* right, rounded */
	float target[SIDE * SIDE];
	uint16_t narrow_target[SIDE * SIDE];
};

static struct matrices *new_matrices(enum zinf_dtype dtype)
{
	struct matrices *m = calloc(1, sizeof(*m));

	cr_assert(m);
	fill_normal(m->left, SIDE * SIDE, 1, 1.0);
	fill_normal(m->right, SIDE * SIDE, 2, 1.0);
	fill_normal(m->bias, SIDE, 3, 1.0);
	for (unsigned i = 0; dtype != ZINF_F32 && i < SIDE * SIDE; i++)
		m->narrow[i] = gpt_half_round(m->right[i], dtype);
	return m;
}

static struct gpt_team *team_for(const struct gpt_product_bounds *bounds, uint32_t thread_count)
{
	struct gpt_team *team = gpt_team_new(thread_count, gpt_product_shared_bytes(bounds),
	                                     gpt_product_scratch_bytes(bounds));

	cr_assert(team);
	return team;
}

static double element(const struct gpt_factor *factor, uint64_t line, uint64_t depth)
{
	uint64_t at = line * factor->line_stride + depth * factor->depth_stride;

	return factor->dtype == ZINF_F32
	               ? (double)((const float *)factor->data)[at]
	               : (double)gpt_half_widen(((const uint16_t *)factor->data)[at],
	                                        factor->dtype);
}

/* The product in f64, and what its factors' roundings to bf16 may change. */
static double want(const struct gpt_product *product, uint64_t row, uint64_t column,
                   double *ret_slack)
{
	double sum = 0, size = 0;

	for (uint64_t k = 0; k < product->depth; k++) {
		double term = element(&product->left, row, k) * element(&product->right, column, k);

		sum += term;
		size += fabs(term);
	}
	/* Two roundings of 2^-8 each; in f32 half a unit of each partial sum. */
	*ret_slack = size * (product->is_bf16 ? 1.0 / 127 : 1e-5) + 1e-6;
	return sum * (double)product->target.scale;
}

static struct gpt_product product_of(const struct gpt_product_bounds *shape, struct matrices *m,
                                     enum zinf_dtype dtype, bool is_turned)
{
	const void *right = dtype == ZINF_F32 ? (const void *)m->right : m->narrow;
	struct gpt_product product = {
		.row_count = shape->row_count,
		.column_count = shape->column_count,
		.depth = shape->depth,
		.left = { m->left, ZINF_F32, SIDE, 1 },
		.right = { right, dtype, SIDE, 1 },
		.target = { .data = m->target, .row_stride = SIDE, .scale = 1 },
		.is_bf16 = dtype == ZINF_BF16,
	};

	product.target.dtype = ZINF_F32;
	if (is_turned) {
		product.left.line_stride = product.right.line_stride = 1;
		product.left.depth_stride = product.right.depth_stride = SIDE;
	}
	return product;
}

static void expect_product(const struct gpt_product *product, const struct matrices *m)
{
	for (uint64_t row = 0; row < product->row_count; row++)
		for (uint64_t column = 0; column < product->column_count; column++) {
			double slack, value = want(product, row, column, &slack);

			if (product->target.bias)
				value += (double)m->bias[column];
			cr_assert_float_eq((double)m->target[row * SIDE + column], value, slack,
			                   "%lu x %lu x %lu at %lu, %lu: %g, not %g",
			                   product->row_count, product->column_count,
			                   product->depth, row, column,
			                   (double)m->target[row * SIDE + column], value);
		}
}

static void expect_all(enum zinf_dtype dtype)
{
	struct matrices *m = new_matrices(dtype);

	for (unsigned i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]); i++) {
		const struct gpt_product_bounds *shape = &shapes[i / 2];
		struct gpt_product product = product_of(shape, m, dtype, i % 2);
		struct gpt_team *team = team_for(shape, 3);

		product.target.bias = i % 3 ? NULL : m->bias;
		m->target[product.row_count * SIDE] = 77; /* behind it */
		m->target[product.column_count] = 78;
		gpt_product(team, &product);
		expect_product(&product, m);
		cr_expect_eq(m->target[product.row_count * SIDE], 77.0f);
		cr_expect_eq(m->target[product.column_count], 78.0f);
		(void)gpt_team_free(team);
	}
	free(m);
}

Test(product, of_f32_is_right)
{
	expect_all(ZINF_F32);
}

Test(product, of_bf16_is_right)
{
	expect_all(ZINF_BF16);
}

Test(product, of_bf16_is_right_without_the_instruction)
{
	cr_assert_eq(setenv("ZINF_ISA", "avx2", 1), 0);
	expect_all(ZINF_BF16);
}

Test(product, of_f16_is_right)
{
	expect_all(ZINF_F16);
}

/* Of the largest shape, with every number of threads. */
static void expect_same_bits(enum zinf_dtype dtype)
{
	const struct gpt_product_bounds *shape = &shapes[4];
	struct matrices *m = new_matrices(dtype);
	struct gpt_product product = product_of(shape, m, dtype, false);
	float *first = calloc(SIDE * SIDE, sizeof(*first));

	cr_assert(first);
	for (uint32_t threads = 1; threads <= 5; threads++) {
		struct gpt_team *team = team_for(shape, threads);

		gpt_product(team, &product);
		if (threads == 1)
			memcpy(first, m->target, SIDE * SIDE * sizeof(*first));
		cr_expect_eq(memcmp(first, m->target, SIDE * SIDE * sizeof(*first)), 0,
		             "%u threads", threads);
		(void)gpt_team_free(team);
	}
	free(first);
	free(m);
}

Test(product, has_the_same_bits_whatever_the_number_of_threads)
{
	expect_same_bits(ZINF_F32);
	expect_same_bits(ZINF_BF16);
}

/* A target of 16 bits: one rounding of the sum, and of the sum with what was there. */
static void expect_narrow_target(enum zinf_dtype dtype)
{
	const struct gpt_product_bounds *shape = &shapes[3];
	struct matrices *m = new_matrices(dtype);
	struct gpt_product product = product_of(shape, m, dtype, false);
	struct gpt_team *team = team_for(shape, 2);

	gpt_product(team, &product);
	product.target.data = m->narrow_target;
	product.target.dtype = dtype;
	gpt_product(team, &product);
	for (uint64_t i = 0; i < shape->row_count * SIDE; i++)
		if (i % SIDE < shape->column_count)
			cr_assert_eq(m->narrow_target[i], gpt_half_round(m->target[i], dtype));
	product.target.is_adding = true;
	gpt_product(team, &product);
	for (uint64_t i = 0; i < shape->row_count * SIDE; i++) {
		float once = gpt_half_widen(gpt_half_round(m->target[i], dtype), dtype);

		if (i % SIDE < shape->column_count)
			cr_assert_eq(m->narrow_target[i],
			             gpt_half_round(once + m->target[i], dtype));
	}
	(void)gpt_team_free(team);
	free(m);
}

Test(product, rounds_into_a_narrow_target_once)
{
	expect_narrow_target(ZINF_BF16);
	expect_narrow_target(ZINF_F16);
}

/* What is beyond the diagonal of @left: zeros, as attention's weights have there. */
static void clear_upper(struct matrices *m, uint64_t side)
{
	for (uint64_t row = 0; row < side; row++)
		for (uint64_t column = row + 1; column < side; column++)
			m->left[row * SIDE + column] = 0;
}

static void expect_square(uint64_t tokens, uint64_t width, bool is_bf16)
{
	const struct gpt_product_bounds bounds = { tokens, tokens, tokens, tokens, width };
	struct matrices *m = new_matrices(ZINF_F32);
	void *scratch = aligned_alloc(64, (gpt_product_square_bytes(&bounds) + 63) / 64 * 64);
	struct gpt_product product = product_of(&bounds, m, ZINF_F32, false);
	double slack;

	cr_assert(scratch);
	product.is_bf16 = is_bf16;
	product.depth = width;
	product.target.scale = 0.25f;
	gpt_product_square(&product, GPT_TARGET_LOWER, scratch);
	for (uint64_t row = 0; row < tokens; row++)
		for (uint64_t column = 0; column <= row; column++)
			cr_assert_float_eq((double)m->target[row * SIDE + column],
			                   want(&product, row, column, &slack), slack);

	clear_upper(m, tokens);
	product = product_of(&bounds, m, ZINF_F32, false);
	product.is_bf16 = is_bf16;
	product.column_count = width;
	product.right.line_stride = 1;
	product.right.depth_stride = SIDE;
	gpt_product_square(&product, GPT_LEFT_LOWER, scratch);
	expect_product(&product, m);

	product.left.line_stride = 1;
	product.left.depth_stride = SIDE;
	gpt_product_square(&product, GPT_LEFT_UPPER, scratch);
	expect_product(&product, m);
	free(scratch);
	free(m);
}

Test(product, of_a_square_leaves_out_what_the_diagonal_excludes)
{
	for (unsigned is_bf16 = 0; is_bf16 < 2; is_bf16++) {
		expect_square(1, 1, is_bf16);
		expect_square(31, 8, is_bf16);
		expect_square(64, 64, is_bf16);
		expect_square(131, 24, is_bf16);
		expect_square(200, 5, is_bf16);
	}
}
