/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of columns over the rows, in the order of the rows. A kernel over columns has three
 * functions: what a column's sums begin with, the terms of a row, and where the sums go. On a GPU
 * many threads make the terms of a piece of rows at once, and one thread for each column adds them
 * in order.
 */
#pragma once

#include <stdint.h>

#include "examples/gpt/element/element.h"

/* Two sums of a column, or the terms that one row adds to them. */
struct gpt_column {
	float first, second;
};

/* first: the sum of x. second: not used. */
struct gpt_column_sums_args {
	uint64_t count; /* columns */
	uint64_t rows;
	const float *x; /* (rows, columns) */
	float *sums;    /* (columns,) */
	uint32_t is_adding;
	uint32_t reserved;
};

GPT_ELEMENT struct gpt_column gpt_column_sums_begin(const struct gpt_column_sums_args *args,
                                                    uint64_t column)
{
	struct gpt_column sums = { 0, 0 };

	if (args->is_adding)
		sums.first = args->sums[column];
	return sums;
}

GPT_ELEMENT struct gpt_column gpt_column_sums_term(const struct gpt_column_sums_args *args,
                                                   uint64_t row, uint64_t column)
{
	struct gpt_column term = { 0, 0 };

	term.first = args->x[row * args->count + column];
	return term;
}

GPT_ELEMENT void gpt_column_sums_end(const struct gpt_column_sums_args *args, uint64_t column,
                                     struct gpt_column sums)
{
	args->sums[column] = sums.first;
}
