/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of the layers (element/kernels.h). What they compute is in the element functions;
 * here is only which thread computes what. All work for grids of any size.
 */
#include "examples/gpt/element/kernels.h"

/* A piece of rows whose terms are made at once, and the columns of a block. A block has
 * COLUMNS * COLUMN_ROWS threads. */
#define COLUMNS     32u
#define COLUMN_ROWS 16u
#define TILE_ROWS   128u

__device__ static uint64_t thread_number()
{
	return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
}

__device__ static uint64_t thread_count()
{
	return gridDim.x * (uint64_t)blockDim.x;
}

#define ELEMENT_KERNEL(name)                                                              \
	extern "C" __global__ void gpt_kernel_##name(const struct gpt_##name##_args args) \
	{                                                                                 \
		for (uint64_t i = thread_number(); i < args.count; i += thread_count())   \
			gpt_##name##_item(&args, i);                                      \
	}
GPT_KERNELS_OF_ELEMENTS(ELEMENT_KERNEL)

/* The threads of a row leave the loop together. */
#define ROW_KERNEL(name)                                                                  \
	extern "C" __global__ void gpt_kernel_##name(const struct gpt_##name##_args args) \
	{                                                                                 \
		for (uint64_t row = thread_number() / GPT_LANES; row < args.count;        \
		     row += thread_count() / GPT_LANES)                                   \
			gpt_##name##_row(&args, row);                                     \
	}
GPT_KERNELS_OF_ROWS(ROW_KERNEL)

/* A block goes down COLUMNS columns. All threads make the terms of a tile, then the first
 * threads of it, one for each column, add them in the order of the rows. */
#define COLUMN_KERNEL(name)                                                                       \
	extern "C" __global__ void gpt_kernel_##name(const struct gpt_##name##_args args)         \
	{                                                                                         \
		__shared__ struct gpt_column tile[TILE_ROWS][COLUMNS];                            \
		const uint64_t column = blockIdx.x * (uint64_t)COLUMNS + threadIdx.x;             \
		const bool is_inside = column < args.count, is_adder = !threadIdx.y && is_inside; \
		struct gpt_column sums = { 0, 0 };                                                \
                                                                                                  \
		if (is_adder)                                                                     \
			sums = gpt_##name##_begin(&args, column);                                 \
		for (uint64_t first = 0; first < args.rows; first += TILE_ROWS) {                 \
			const uint64_t rest = args.rows - first;                                  \
			const unsigned rows = rest < TILE_ROWS ? (unsigned)rest : TILE_ROWS;      \
                                                                                                  \
			for (unsigned row = threadIdx.y; is_inside && row < rows;                 \
			     row += COLUMN_ROWS)                                                  \
				tile[row][threadIdx.x] =                                          \
					gpt_##name##_term(&args, first + row, column);            \
			__syncthreads();                                                          \
			for (unsigned row = 0; is_adder && row < rows; row++) {                   \
				sums.first += tile[row][threadIdx.x].first;                       \
				sums.second += tile[row][threadIdx.x].second;                     \
			}                                                                         \
			__syncthreads();                                                          \
		}                                                                                 \
		if (is_adder)                                                                     \
			gpt_##name##_end(&args, column, sums);                                    \
	}
GPT_KERNELS_OF_COLUMNS(COLUMN_KERNEL)
