/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products. With bf16 parameters on a CPU that multiplies bf16, both factors are rounded to
 * bf16 (product_bf16.h); else 16-bit factors are widened, tile by tile, and OpenBLAS multiplies in
 * f32. Either cuts a product at places that depend on its shape only, so the number of threads
 * changes no bit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/product_bf16.h"
#include "examples/gpt/team.h"

/* Rows of attention's squares that are multiplied at a time: what lies beyond the diagonal is left
 * out in steps of so many. An even number of tiles. */
#define GPT_SQUARE_ROWS 64u

/* target (rows, columns) = left (rows, depth) · right (depth, columns) */
struct gpt_product {
	uint64_t row_count, column_count, depth;
	struct gpt_factor left;  /* lines: rows. Of f32 */
	struct gpt_factor right; /* lines: columns */
	struct gpt_target target;
	bool is_bf16; /* Factors may be rounded to bf16. */
};

/* Which of a square's elements count in attention: those up to the diagonal. */
enum gpt_triangle {
	GPT_WHOLE,
	GPT_TARGET_LOWER, /* columns beyond the row's own number are not wanted */
	GPT_LEFT_LOWER,   /* left is zero there */
	GPT_LEFT_UPPER,   /* left is zero before the row's own number */
};

/* What the products of a model take. */
struct gpt_product_bounds {
	uint64_t row_count, column_count, depth; /* the most of each */
	uint64_t square_count, square_width;     /* attention: (T, T) and (T, width) */
};

uint64_t gpt_product_shared_bytes(const struct gpt_product_bounds *bounds);
uint64_t gpt_product_scratch_bytes(const struct gpt_product_bounds *bounds);
void gpt_product(struct gpt_team *team, const struct gpt_product *product);
void gpt_product_square(const struct gpt_product *product, enum gpt_triangle triangle,
                        void *scratch);
uint64_t gpt_product_square_bytes(const struct gpt_product_bounds *bounds);
