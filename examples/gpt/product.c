/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts products into parts for the team, and multiplies a part by bf16 or by OpenBLAS. */
#include "examples/gpt/product.h"

#include <assert.h>
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/f16.h"
#include "examples/gpt/vector.h"

/* Columns of a part with OpenBLAS: it packs the left factor anew for each, which takes 2 % of the
 * time of so many columns. */
#define BLAS_COLUMNS 192u
/* Columns of a part with bf16: one panel. */
#define PANEL_COLUMNS (GPT_PANEL_STRIPS * GPT_STRIP_LINES)
/* Strips of rows that one part packs. */
#define PACK_STRIPS 4u

static uint64_t least(uint64_t x, uint64_t y)
{
	return x < y ? x : y;
}

static uint64_t pieces(uint64_t count, uint64_t piece)
{
	return (count + piece - 1) / piece;
}

static uint64_t strips_bytes(uint64_t line_count, uint64_t depth)
{
	return pieces(line_count, GPT_STRIP_LINES) * gpt_strip_bytes(depth);
}

static uint64_t most(uint64_t x, uint64_t y)
{
	return x > y ? x : y;
}

/* Of all threads together: a packed left factor. Either of rows and depth may be the larger one. */
uint64_t gpt_product_shared_bytes(const struct gpt_product_bounds *bounds)
{
	return strips_bytes(bounds->row_count, bounds->depth);
}

/* Of each thread. */
uint64_t gpt_product_scratch_bytes(const struct gpt_product_bounds *bounds)
{
	uint64_t panel = strips_bytes(PANEL_COLUMNS, bounds->depth);
	uint64_t blas = (bounds->depth + bounds->row_count) * BLAS_COLUMNS * sizeof(float);

	return most(most(panel, blas), gpt_product_square_bytes(bounds));
}

/* Of gpt_product_square(): both factors, packed. */
uint64_t gpt_product_square_bytes(const struct gpt_product_bounds *bounds)
{
	uint64_t side = most(bounds->square_count, bounds->square_width);

	return strips_bytes(bounds->square_count, side) + strips_bytes(side, side);
}

/* By the CPU's instruction, unless ZINF_ISA asks for an older one. */
static bool is_by_bf16(const struct gpt_product *product)
{
#if defined(__x86_64__)
	const char *isa = getenv("ZINF_ISA");

	return product->is_bf16 && gpt_bf16_is_there() && (!isa || !strcmp(isa, "avx512"));
#else
	(void)product;
	return false;
#endif
}

static uint64_t element_bytes(enum zinf_dtype dtype)
{
	return dtype == ZINF_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* The same matrix from another line on. */
static struct gpt_factor factor_from(struct gpt_factor factor, uint64_t line)
{
	factor.data =
		(const char *)factor.data + line * factor.line_stride * element_bytes(factor.dtype);
	return factor;
}

static struct gpt_target target_from(struct gpt_target target, uint64_t row, uint64_t column)
{
	target.data = (char *)target.data +
	              (row * target.row_stride + column) * element_bytes(target.dtype);
	target.bias = target.bias ? target.bias + column : NULL;
	return target;
}

/* ---- by bf16 ---- */

#if defined(__x86_64__)
struct packed {
	const struct gpt_product *product;
	uint32_t *rows;
};

static void pack_part(void *arg, uint64_t part, void *scratch)
{
	const struct packed *packed = arg;
	const struct gpt_product *product = packed->product;
	uint64_t row = part * PACK_STRIPS * GPT_STRIP_LINES;
	struct gpt_factor factor = factor_from(product->left, row);
	uint64_t strip_words = gpt_strip_bytes(product->depth) / sizeof(uint32_t);

	(void)scratch;
	gpt_bf16_pack_rows(&factor, least(product->row_count - row, PACK_STRIPS * GPT_STRIP_LINES),
	                   product->depth, packed->rows + part * PACK_STRIPS * strip_words);
}

static void panel_part(void *arg, uint64_t part, void *scratch)
{
	const struct packed *packed = arg;
	const struct gpt_product *product = packed->product;
	uint64_t column = part * PANEL_COLUMNS;
	uint64_t column_count = least(product->column_count - column, PANEL_COLUMNS);
	struct gpt_factor factor = factor_from(product->right, column);
	struct gpt_target target = target_from(product->target, 0, column);

	gpt_bf16_pack_columns(&factor, column_count, product->depth, scratch);
	gpt_bf16_tiles(product->row_count, column_count, 0, product->depth, product->depth,
	               packed->rows, scratch, &target);
}

static void run_bf16(struct gpt_team *team, const struct gpt_product *product)
{
	struct packed packed = { .product = product, .rows = gpt_team_shared(team) };

	gpt_team_run(team, pieces(product->row_count, PACK_STRIPS * GPT_STRIP_LINES), pack_part,
	             &packed);
	gpt_team_run(team, pieces(product->column_count, PANEL_COLUMNS), panel_part, &packed);
}

/* Rows [row, row + count) of a square's product, over the part of the depth that is not zero. */
static void square_rows_bf16(const struct gpt_product *product, enum gpt_triangle triangle,
                             uint64_t row, uint64_t count, const uint32_t *rows,
                             const uint32_t *columns)
{
	uint64_t strip_words = gpt_strip_bytes(product->depth) / sizeof(uint32_t);
	uint64_t first = triangle == GPT_LEFT_UPPER ? row : 0;
	uint64_t end = triangle == GPT_LEFT_LOWER ? row + count : product->depth;
	uint64_t column_end = triangle == GPT_TARGET_LOWER ? row + count : product->column_count;

	for (uint64_t column = 0; column < column_end; column += PANEL_COLUMNS) {
		struct gpt_target target = target_from(product->target, row, column);

		gpt_bf16_tiles(count, least(column_end - column, PANEL_COLUMNS), first, end,
		               product->depth, rows + row / GPT_STRIP_LINES * strip_words,
		               columns + column / GPT_STRIP_LINES * strip_words, &target);
	}
}

static void square_bf16(const struct gpt_product *product, enum gpt_triangle triangle,
                        void *scratch)
{
	uint32_t *rows = scratch;
	uint32_t *columns = rows + strips_bytes(product->row_count, product->depth) / sizeof(*rows);

	gpt_bf16_pack_rows(&product->left, product->row_count, product->depth, rows);
	gpt_bf16_pack_columns(&product->right, product->column_count, product->depth, columns);
	for (uint64_t row = 0; row < product->row_count; row += GPT_SQUARE_ROWS)
		square_rows_bf16(product, triangle, row,
		                 least(product->row_count - row, GPT_SQUARE_ROWS), rows, columns);
}
#else
static void run_bf16(struct gpt_team *team, const struct gpt_product *product)
{
	(void)team;
	(void)product;
	assert(!"There is no product of bf16 for this CPU.");
}

static void square_bf16(const struct gpt_product *product, enum gpt_triangle triangle,
                        void *scratch)
{
	(void)triangle;
	(void)scratch;
	run_bf16(NULL, product);
}
#endif

/* ---- by OpenBLAS ---- */

GPT_CLONES static void widen(uint64_t count, const uint16_t *source, enum zinf_dtype dtype,
                             float *target)
{
	for (uint64_t i = 0; i < count; i++)
		target[i] = gpt_half_widen(source[i], dtype);
}

/* (depth, columns) or (columns, depth), as it lies. Return: the same in f32. */
static struct gpt_factor widened(const struct gpt_factor *factor, uint64_t line_count,
                                 uint64_t depth, float *scratch)
{
	bool is_by_lines = factor->depth_stride == 1;
	uint64_t outer = is_by_lines ? line_count : depth, inner = is_by_lines ? depth : line_count;
	uint64_t stride = is_by_lines ? factor->line_stride : factor->depth_stride;

	if (factor->dtype == ZINF_F32)
		return *factor;
	for (uint64_t i = 0; i < outer; i++)
		widen(inner, (const uint16_t *)factor->data + i * stride, factor->dtype,
		      scratch + i * inner);
	return (struct gpt_factor){
		.data = scratch,
		.dtype = ZINF_F32,
		.line_stride = is_by_lines ? depth : 1,
		.depth_stride = is_by_lines ? 1 : line_count,
	};
}

/* f32 factors and target. Bias: the target begins as it. */
static void multiply(uint64_t rows, uint64_t columns, uint64_t depth, const struct gpt_factor *left,
                     const struct gpt_factor *right, const struct gpt_target *target)
{
	/* One element a line has strides of 1 both ways: BLAS takes only the wide enough one. */
	bool is_left_plain = left->depth_stride == 1 && left->line_stride >= depth;
	bool is_right_plain = right->line_stride == 1 && right->depth_stride >= columns;
	uint64_t left_stride = is_left_plain ? left->line_stride : left->depth_stride;
	uint64_t right_stride = is_right_plain ? right->depth_stride : right->line_stride;
	float *data = target->data;

	for (uint64_t row = 0; target->bias && row < rows; row++)
		memcpy(data + row * target->row_stride, target->bias, columns * sizeof(*data));
	cblas_sgemm(CblasRowMajor, is_left_plain ? CblasNoTrans : CblasTrans,
	            is_right_plain ? CblasNoTrans : CblasTrans, (int)rows, (int)columns, (int)depth,
	            target->scale, left->data, (int)left_stride, right->data, (int)right_stride,
	            target->is_adding || target->bias ? 1.0f : 0.0f, data, (int)target->row_stride);
}

/* sums: (rows, columns). */
GPT_CLONES static void round_into(uint64_t rows, uint64_t columns, const float *sums,
                                  const struct gpt_target *target)
{
	for (uint64_t row = 0; row < rows; row++) {
		uint16_t *place = (uint16_t *)target->data + row * target->row_stride;
		const float *source = sums + row * columns;

		for (uint64_t i = 0; i < columns; i++) {
			float x = target->is_adding
			                  ? gpt_half_widen(place[i], target->dtype) + source[i]
			                  : source[i];

			place[i] = gpt_half_round(x, target->dtype);
		}
	}
}

static void blas_part(void *arg, uint64_t part, void *scratch)
{
	const struct gpt_product *product = arg;
	uint64_t column = part * BLAS_COLUMNS;
	uint64_t count = least(product->column_count - column, BLAS_COLUMNS);
	struct gpt_factor right = factor_from(product->right, column);
	struct gpt_target target = target_from(product->target, 0, column);
	float *sums = (float *)scratch + product->depth * BLAS_COLUMNS;
	struct gpt_target plain = { .data = sums,
		                    .dtype = ZINF_F32,
		                    .row_stride = count,
		                    .bias = target.bias,
		                    .scale = target.scale };

	right = widened(&right, count, product->depth, scratch);
	if (target.dtype == ZINF_F32) {
		multiply(product->row_count, count, product->depth, &product->left, &right,
		         &target);
		return;
	}
	multiply(product->row_count, count, product->depth, &product->left, &right, &plain);
	round_into(product->row_count, count, sums, &target);
}

static void square_blas(const struct gpt_product *product, enum gpt_triangle triangle)
{
	for (uint64_t row = 0; row < product->row_count; row += GPT_SQUARE_ROWS) {
		uint64_t count = least(product->row_count - row, GPT_SQUARE_ROWS);
		uint64_t first = triangle == GPT_LEFT_UPPER ? row : 0;
		uint64_t end = triangle == GPT_LEFT_LOWER ? row + count : product->depth;
		struct gpt_factor left = factor_from(product->left, row);
		struct gpt_factor right = product->right;
		struct gpt_target target = target_from(product->target, row, 0);

		left.data = (const float *)left.data + first * left.depth_stride;
		right.data = (const float *)right.data + first * right.depth_stride;
		multiply(count, triangle == GPT_TARGET_LOWER ? row + count : product->column_count,
		         end - first, &left, &right, &target);
	}
}

/* ---- either ---- */

/* Context: the rank's own thread. */
void gpt_product(struct gpt_team *team, const struct gpt_product *product)
{
	struct gpt_product words = *product;

	assert(product->left.dtype == ZINF_F32);
	if (is_by_bf16(product) && product->target.dtype != ZINF_F16)
		run_bf16(team, product);
	else
		gpt_team_run(team, pieces(product->column_count, BLAS_COLUMNS), blas_part, &words);
}

/*
 * A product of one head, of f32 throughout. Of rows and columns or depth at least one pair is the
 * sequence. @scratch: gpt_product_square_bytes().
 * Context: a part of the team's.
 */
void gpt_product_square(const struct gpt_product *product, enum gpt_triangle triangle,
                        void *scratch)
{
	assert(product->right.dtype == ZINF_F32);
	assert(product->target.dtype == ZINF_F32);
	if (is_by_bf16(product))
		square_bf16(product, triangle, scratch);
	else
		square_blas(product, triangle);
}
