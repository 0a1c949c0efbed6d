/* SPDX-License-Identifier: Apache-2.0 */
/* Packing, and the tiles of a panel, by AVX512-BF16. Empty on other machines. */
#include "examples/gpt/product_bf16.h"

#if defined(__x86_64__)
#include <assert.h>
#include <immintrin.h>

#define LINES 16u

/* ---- packing ---- */

/* 16 x 16 words of 32 bits: rows become columns. */
static inline void transpose(__m512i v[LINES])
{
	__m512i t[LINES];

	for (unsigned i = 0; i < LINES; i += 2) {
		t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
		t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
	}
	for (unsigned i = 0; i < LINES; i += 4) {
		v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
		v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
		v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
		v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
	}
	for (unsigned i = 0; i < 4; i++) {
		t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
		t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
		t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
		t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
	}
	for (unsigned i = 0; i < 4; i++) {
		v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
		v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
		v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
		v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
	}
}

static inline __mmask16 low_mask(uint64_t count)
{
	return (__mmask16)(count >= LINES ? 0xffffu : (1u << count) - 1);
}

/* 32 neighbours along the depth of one line, as 16 words; zeros beyond @count. */
static inline __m512i load_along(const struct gpt_factor *factor, uint64_t line, uint64_t depth,
                                 uint64_t count)
{
	uint64_t at = line * factor->line_stride + depth;

	if (factor->dtype == ZINF_BF16) {
		const uint16_t *source = (const uint16_t *)factor->data + at;
		__mmask32 mask = count >= 32 ? 0xffffffffu : (1u << count) - 1;

		return _mm512_maskz_loadu_epi16(mask, source);
	}
	const float *source = (const float *)factor->data + at;
	__m512 low = _mm512_maskz_loadu_ps(low_mask(count), source);
	__m512 high = _mm512_maskz_loadu_ps(low_mask(count > LINES ? count - LINES : 0),
	                                    count > LINES ? source + LINES : source);

	return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* 16 lines at one place of the depth, as bf16 in the lower halves of words; zeros beyond. */
static inline __m512i load_across(const struct gpt_factor *factor, uint64_t line, uint64_t depth,
                                  __mmask16 mask)
{
	uint64_t at = depth * factor->depth_stride + line;

	if (factor->dtype == ZINF_BF16)
		return _mm512_cvtepu16_epi32(
			_mm256_maskz_loadu_epi16(mask, (const uint16_t *)factor->data + at));
	return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(
		_mm512_maskz_loadu_ps(mask, (const float *)factor->data + at)));
}

/* Words of one pair. @is_rows: a strip of rows is two halves, one for each tile of 8 rows. */
static inline void store(uint32_t *strip, uint64_t pair, uint64_t pair_count, bool is_rows,
                         __m512i words)
{
	if (!is_rows) {
		_mm512_storeu_si512(strip + pair * LINES, words);
		return;
	}
	_mm256_storeu_si256((__m256i *)(strip + pair * GPT_TILE_ROWS),
	                    _mm512_castsi512_si256(words));
	_mm256_storeu_si256((__m256i *)(strip + (pair_count + pair) * GPT_TILE_ROWS),
	                    _mm512_extracti64x4_epi64(words, 1));
}

static inline void pack_strip(const struct gpt_factor *factor, uint64_t line, uint64_t count,
                              uint64_t depth, bool is_rows, uint32_t *strip)
{
	uint64_t pair_count = (depth + 1) / 2;

	if (factor->depth_stride == 1) {
		for (uint64_t pair = 0; pair < pair_count; pair += LINES) {
			uint64_t rest = depth - 2 * pair;
			__m512i v[LINES];

			for (unsigned i = 0; i < LINES; i++)
				v[i] = i < count ? load_along(factor, line + i, 2 * pair, rest)
				                 : _mm512_setzero_si512();
			transpose(v);
			for (unsigned i = 0; i < LINES && pair + i < pair_count; i++)
				store(strip, pair + i, pair_count, is_rows, v[i]);
		}
		return;
	}
	for (uint64_t pair = 0; pair < pair_count; pair++) {
		__mmask16 mask = low_mask(count);
		__mmask16 next = 2 * pair + 1 < depth ? mask : 0;
		uint64_t other = next ? 2 * pair + 1 : 2 * pair;
		__m512i low = load_across(factor, line, 2 * pair, mask);
		__m512i high = load_across(factor, line, other, next);

		store(strip, pair, pair_count, is_rows,
		      _mm512_or_si512(low, _mm512_slli_epi32(high, LINES)));
	}
}

static inline void pack(const struct gpt_factor *factor, uint64_t line_count, uint64_t depth,
                        bool is_rows, uint32_t *words)
{
	assert(factor->line_stride == 1 || factor->depth_stride == 1);
	for (uint64_t line = 0; line < line_count; line += LINES) {
		uint64_t count = line_count - line < LINES ? line_count - line : LINES;

		pack_strip(factor, line, count, depth, is_rows, words);
		words += gpt_strip_bytes(depth) / sizeof(*words);
	}
}

/* The first factor. ret_words: gpt_strip_bytes() for each begun 16 lines. */
void gpt_bf16_pack_rows(const struct gpt_factor *factor, uint64_t line_count, uint64_t depth,
                        uint32_t *ret_words)
{
	pack(factor, line_count, depth, true, ret_words);
}

/* The second factor, likewise. */
void gpt_bf16_pack_columns(const struct gpt_factor *factor, uint64_t line_count, uint64_t depth,
                           uint32_t *ret_words)
{
	pack(factor, line_count, depth, false, ret_words);
}

/* ---- tiles ---- */

static inline __m512 load_bf16(const uint16_t *source, __mmask16 mask)
{
	__m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, source));

	return _mm512_castsi512_ps(_mm512_slli_epi32(words, LINES));
}

/* Round to nearest even with integers, as bf16.h: gradients keep denormal numbers. */
static inline __m256i round_bf16(__m512 x)
{
	__m512i bits = _mm512_castps_si512(x);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
	__mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
	__m512i quiet = _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32((int)0x80000000u)),
	                                _mm512_set1_epi32(0x7fc00000));

	return _mm512_cvtepi32_epi16(
		_mm512_srli_epi32(_mm512_mask_blend_epi32(is_nan, up, quiet), 16));
}

/* One register of sums: 16 columns of a row. */
static inline void put(const struct gpt_target *target, uint64_t row, uint64_t column,
                       __mmask16 mask, __m512 sum)
{
	uint64_t at = row * target->row_stride + column;

	if (target->scale != 1.0f)
		sum = _mm512_mul_ps(sum, _mm512_set1_ps(target->scale));
	if (target->bias)
		sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, target->bias + column));
	if (target->dtype == ZINF_BF16) {
		uint16_t *place = (uint16_t *)target->data + at;

		if (target->is_adding)
			sum = _mm512_add_ps(load_bf16(place, mask), sum);
		_mm256_mask_storeu_epi16(place, mask, round_bf16(sum));
		return;
	}
	float *place = (float *)target->data + at;

	if (target->is_adding)
		sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, place), sum);
	_mm512_mask_storeu_ps(place, mask, sum);
}

/* A tile: 8 rows, @width strips of columns. @rows, @columns: at the first pair. @strip_words: from
 * a strip of columns to the next one. */
__attribute__((always_inline)) static inline void
tile(unsigned width, uint64_t pair_count, const uint32_t *rows, const uint32_t *columns,
     uint64_t strip_words, __m512 sums[GPT_TILE_ROWS][GPT_PANEL_STRIPS])
{
	__m512 s[GPT_TILE_ROWS][GPT_PANEL_STRIPS];

	for (unsigned i = 0; i < GPT_TILE_ROWS; i++)
		for (unsigned j = 0; j < width; j++)
			s[i][j] = _mm512_setzero_ps();
	for (uint64_t pair = 0; pair < pair_count; pair++) {
		__m512bh c[GPT_PANEL_STRIPS];

#pragma GCC unroll 3
		for (unsigned j = 0; j < width; j++)
			c[j] = (__m512bh)_mm512_loadu_si512(columns + j * strip_words +
			                                    pair * LINES);
#pragma GCC unroll 8
		for (unsigned i = 0; i < GPT_TILE_ROWS; i++) {
			__m512bh r =
				(__m512bh)_mm512_set1_epi32((int)rows[pair * GPT_TILE_ROWS + i]);

#pragma GCC unroll 3
			for (unsigned j = 0; j < width; j++)
				s[i][j] = _mm512_dpbf16_ps(s[i][j], r, c[j]);
		}
	}
	for (unsigned i = 0; i < GPT_TILE_ROWS; i++)
		for (unsigned j = 0; j < width; j++)
			sums[i][j] = s[i][j];
}

static void tile_1(uint64_t pair_count, const uint32_t *rows, const uint32_t *columns,
                   uint64_t strip_words, __m512 sums[GPT_TILE_ROWS][GPT_PANEL_STRIPS])
{
	tile(1, pair_count, rows, columns, strip_words, sums);
}

static void tile_2(uint64_t pair_count, const uint32_t *rows, const uint32_t *columns,
                   uint64_t strip_words, __m512 sums[GPT_TILE_ROWS][GPT_PANEL_STRIPS])
{
	tile(2, pair_count, rows, columns, strip_words, sums);
}

static void tile_3(uint64_t pair_count, const uint32_t *rows, const uint32_t *columns,
                   uint64_t strip_words, __m512 sums[GPT_TILE_ROWS][GPT_PANEL_STRIPS])
{
	tile(3, pair_count, rows, columns, strip_words, sums);
}

/*
 * Rows times columns, over a part of the depth: from @depth_first (even) to before @depth_end.
 * @rows, @columns: packed over the whole @depth. @column_count: at most 48.
 */
void gpt_bf16_tiles(uint64_t row_count, uint64_t column_count, uint64_t depth_first,
                    uint64_t depth_end, uint64_t depth, const uint32_t *rows,
                    const uint32_t *columns, const struct gpt_target *target)
{
	uint64_t pair_first = depth_first / 2, pair_count = (depth_end + 1) / 2 - pair_first;
	uint64_t strip_words = gpt_strip_bytes(depth) / sizeof(*rows);
	uint64_t half_words = strip_words / 2;
	__m512 sums[GPT_TILE_ROWS][GPT_PANEL_STRIPS];

	assert(column_count <= GPT_PANEL_STRIPS * LINES);
	assert(depth_first % 2 == 0);
	columns += pair_first * LINES;
	rows += pair_first * GPT_TILE_ROWS;
	for (uint64_t row = 0; row < row_count; row += GPT_TILE_ROWS) {
		uint64_t count = row_count - row < GPT_TILE_ROWS ? row_count - row : GPT_TILE_ROWS;

		if (column_count > 2 * LINES)
			tile_3(pair_count, rows, columns, strip_words, sums);
		else if (column_count > LINES)
			tile_2(pair_count, rows, columns, strip_words, sums);
		else
			tile_1(pair_count, rows, columns, strip_words, sums);
		rows += half_words;
		for (unsigned i = 0; i < count; i++)
			for (unsigned j = 0; j * LINES < column_count; j++)
				put(target, row + i, j * LINES, low_mask(column_count - j * LINES),
				    sums[i][j]);
	}
}

/* Whether this CPU has it. */
bool gpt_bf16_is_there(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif
