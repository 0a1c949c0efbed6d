/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of bf16 with sums in f32, by the CPU's own instruction (VDPBF16PS of
 * AVX512-BF16). Both factors are first packed into *strips*: 16 lines (rows of the first factor,
 * columns of the second one), of which each 32-bit word holds two neighbours along the depth.
 *
 *     strip   word [pair][line]: elements 2 pair and 2 pair + 1 of the line
 *     tile    8 rows by up to 3 strips of columns: its sums stay in registers over the whole depth
 *
 * A sum runs over the depth in one order, whatever the size of the matrices and whichever thread
 * computes the tile: the bits depend on the CPU's instruction only. That instruction takes
 * denormal numbers as zero.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "zinf/zinf.h"

#define GPT_STRIP_LINES  16u /* of a strip: f32 in a register */
#define GPT_TILE_ROWS    8u
#define GPT_PANEL_STRIPS 3u /* columns of a tile, in strips */

/* A factor, read as lines along the depth. One of the strides is 1. */
struct gpt_factor {
	const void *data;
	enum zinf_dtype dtype;              /* ZINF_F32 (rounded to bf16), ZINF_BF16 */
	uint64_t line_stride, depth_stride; /* elements */
};

/* Where a tile goes: (rows, columns), row-major. */
struct gpt_target {
	void *data;
	enum zinf_dtype dtype; /* ZINF_F32, ZINF_BF16 */
	uint64_t row_stride;   /* elements */
	bool is_adding;        /* to what is there; bf16: rounded once, behind the sum */
	const float *bias;     /* (columns,), NULL for none */
	float scale;           /* of the product */
};

static inline uint64_t gpt_strip_bytes(uint64_t depth)
{
	return (depth + 1) / 2 * GPT_STRIP_LINES * sizeof(uint32_t);
}

bool gpt_bf16_is_there(void);
void gpt_bf16_pack_rows(const struct gpt_factor *factor, uint64_t line_count, uint64_t depth,
                        uint32_t *ret_words);
void gpt_bf16_pack_columns(const struct gpt_factor *factor, uint64_t line_count, uint64_t depth,
                           uint32_t *ret_words);
void gpt_bf16_tiles(uint64_t row_count, uint64_t column_count, uint64_t depth_first,
                    uint64_t depth_end, uint64_t depth, const uint32_t *rows,
                    const uint32_t *columns, const struct gpt_target *target);
