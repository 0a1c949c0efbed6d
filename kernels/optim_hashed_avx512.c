/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step and its checksums in one loop, in AVX-512. Floor 1.
 *
 * A step is bound by its divisions and its square root, for which one of the vector units works
 * while the others wait; XXH3 is a handful of integer instructions for each line, and finds the
 * lines in registers. With one thread on Zen 5 a tile of bf16 with two ranks' gradients takes 0.75
 * ns an element, where hash, step and hash one after the other take 1.05 and the step alone 0.61;
 * fusing but the hashes of what is written gains nothing (medians of 21 alternating runs).
 *
 * Adam and AdamW. What has one moment, and runs of a few blocks, are computed apart.
 */
#if defined(__x86_64__)
#include "kernels/simd_avx512.h"

#include "common/base/assert.h"
#include "kernels/hash_stripe_avx512.h"
#include "kernels/optim_apart.h"
#include "kernels/optim_simd.h"

#define PAIR_ELEMENTS  (2 * VEC_LANES) /* a stripe of 16-bit values, two of fp32 */
#define BLOCK_PAIRS    8u              /* a block of fp32, half of one of 16-bit values */
#define TURN_ELEMENTS  (2 * BLOCK_PAIRS * PAIR_ELEMENTS) /* whole blocks of both */
#define FUSED_ELEMENTS (2 * TURN_ELEMENTS)               /* less is not worth a loop */

static_assert(BLOCK_PAIRS * PAIR_ELEMENTS * sizeof(float) == HASH_BLOCK_BYTES, "blocks of fp32");
static_assert(TURN_ELEMENTS * sizeof(int16_t) == HASH_BLOCK_BYTES, "blocks of 16-bit values");

/* The accumulators of each section of a run. */
struct sections {
	hash_stripe remainder, exp_avg, exp_avg_sq, param;
};

/* Both sides of a step. Nothing hashes parameters before it. */
struct sides {
	struct sections before, after;
};

/* Of which nothing has been hashed. */
VEC_INLINE struct sections sections_begin(void)
{
	const hash_stripe accum = hash_begin();

	return (struct sections){ accum, accum, accum, accum };
}

/* A register of numbers is a stripe as it is. */
VEC_INLINE hash_stripe bits_of(vec x)
{
	return _mm512_castps_si512(x);
}

/* The lower (0) or upper (1) 16 bits of 32 lanes: words 0, 2, 4 … or 1, 3, 5 … of both. */
VEC_INLINE hash_stripe halves(hash_stripe first, hash_stripe second, unsigned upper)
{
	const hash_stripe lane =
		_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const hash_stripe fours = _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x00040004));
	const hash_stripe words = _mm512_add_epi32(fours, _mm512_set1_epi32(0x00020000));
	const hash_stripe from = _mm512_add_epi16(words, _mm512_set1_epi16((short)upper));

	return _mm512_permutex2var_epi16(first, from, second);
}

/* Of 16 bits, as its parameter. */
VEC_INLINE bool has_narrow_remainder(struct optim_shape shape)
{
	return shape.param_dtype == ZI_DTYPE_BF16;
}

/* Of 32 bits, as the moments. */
VEC_INLINE bool has_wide_remainder(struct optim_shape shape)
{
	return shape.param_dtype == ZI_DTYPE_F16;
}

/* The step of one vector. Return: the new parameter, canonical. */
VEC_INLINE vec vec_step(const struct kern_optim_run *run, const struct optim_lanes *lanes,
                        struct optim_shape shape, uint64_t index, const unsigned char *key,
                        struct sides *sides)
{
	vec g = optim_gradient(run, lanes, shape, index);
	vec p = optim_param_load(run, shape, index);
	vec m = vec_fetch(run->exp_avg, index, ZI_DTYPE_F32);
	vec v = vec_fetch(run->exp_avg_sq, index, ZI_DTYPE_F32);

	if (has_wide_remainder(shape))
		sides->before.remainder =
			hash_mix(sides->before.remainder,
		                 hash_load((const int32_t *)run->remainder + index), key);
	sides->before.exp_avg = hash_mix(sides->before.exp_avg, bits_of(m), key);
	sides->before.exp_avg_sq = hash_mix(sides->before.exp_avg_sq, bits_of(v), key);
	p = optim_adam_vec(lanes, shape, p, g, &m, &v);
	vec_store_f32(run->exp_avg + index, m);
	vec_store_f32(run->exp_avg_sq + index, v);
	sides->after.exp_avg = hash_mix(sides->after.exp_avg, bits_of(m), key);
	sides->after.exp_avg_sq = hash_mix(sides->after.exp_avg_sq, bits_of(v), key);
	return vec_canonical(p);
}

/* As vec_split_param() and vec_split_remainder(), but of a whole line. */
VEC_INLINE void pair_store_bf16(const struct kern_optim_run *run, uint64_t index, vec first,
                                vec second, const unsigned char *narrow_key, struct sections *after)
{
	const hash_stripe round = _mm512_set1_epi32(0x8000);
	hash_stripe remainder = halves(bits_of(first), bits_of(second), 0);
	hash_stripe param = halves(_mm512_add_epi32(bits_of(first), round),
	                           _mm512_add_epi32(bits_of(second), round), 1);

	_mm512_storeu_si512((int16_t *)run->remainder + index, remainder);
	_mm512_storeu_si512((uint16_t *)run->param + index, param);
	after->remainder = hash_mix(after->remainder, remainder, narrow_key);
	after->param = hash_mix(after->param, param, narrow_key);
}

/* Two stripes of remainders, one of parameters. */
VEC_INLINE void pair_store_f16(const struct kern_optim_run *run, uint64_t index, vec first,
                               vec second, const unsigned char *key,
                               const unsigned char *narrow_key, struct sections *after)
{
	const __m256i low = _mm512_cvtps_ph(first, _MM_FROUND_TO_NEAREST_INT);
	const __m256i high = _mm512_cvtps_ph(second, _MM_FROUND_TO_NEAREST_INT);
	hash_stripe param = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
	hash_stripe first_rest = bits_of(vec_remainder_f16(first));
	hash_stripe second_rest = bits_of(vec_remainder_f16(second));

	_mm512_storeu_si512((int32_t *)run->remainder + index, first_rest);
	_mm512_storeu_si512((int32_t *)run->remainder + index + VEC_LANES, second_rest);
	_mm512_storeu_si512((uint16_t *)run->param + index, param);
	after->remainder = hash_mix(after->remainder, first_rest, key);
	after->remainder = hash_mix(after->remainder, second_rest, key + HASH_KEY_BYTES);
	after->param = hash_mix(after->param, param, narrow_key);
}

/* Pair @pair of a block of fp32; @narrow_key: of its stripe of 16-bit values. */
VEC_INLINE void pair_step(const struct kern_optim_run *run, const struct optim_lanes *lanes,
                          struct optim_shape shape, uint64_t index, const unsigned char *key,
                          const unsigned char *narrow_key, struct sides *sides)
{
	const unsigned char *second_key = key + HASH_KEY_BYTES;
	vec first, second;

	if (has_narrow_remainder(shape))
		sides->before.remainder =
			hash_mix(sides->before.remainder,
		                 hash_load((const int16_t *)run->remainder + index), narrow_key);
	first = vec_step(run, lanes, shape, index, key, sides);
	second = vec_step(run, lanes, shape, index + VEC_LANES, second_key, sides);
	if (shape.param_dtype == ZI_DTYPE_F32) {
		vec_store_f32((float *)run->param + index, first);
		vec_store_f32((float *)run->param + index + VEC_LANES, second);
		sides->after.param = hash_mix(sides->after.param, bits_of(first), key);
		sides->after.param = hash_mix(sides->after.param, bits_of(second), second_key);
		return;
	}
	if (shape.param_dtype == ZI_DTYPE_F16)
		pair_store_f16(run, index, first, second, key, narrow_key, &sides->after);
	else
		pair_store_bf16(run, index, first, second, narrow_key, &sides->after);
}

/* A block of 32-bit state is over. */
VEC_INLINE void scramble_wide(struct sections *sections, struct optim_shape shape)
{
	if (has_wide_remainder(shape))
		sections->remainder = hash_scramble(sections->remainder);
	sections->exp_avg = hash_scramble(sections->exp_avg);
	sections->exp_avg_sq = hash_scramble(sections->exp_avg_sq);
}

/* A block of 16-bit values, two of fp32, neither of them the last. */
VEC_INLINE void turn_step(const struct kern_optim_run *run, const struct optim_lanes *lanes,
                          struct optim_shape shape, uint64_t index, struct sides *sides)
{
	bool is_f32 = shape.param_dtype == ZI_DTYPE_F32;
	const unsigned char *narrow_key = hash_key();

	for (unsigned block = 0; block < 2; block++) {
		const unsigned char *key = hash_key();

		for (unsigned pair = 0; pair < BLOCK_PAIRS; pair++) {
			pair_step(run, lanes, shape, index, key, narrow_key, sides);
			index += PAIR_ELEMENTS;
			key += 2 * HASH_KEY_BYTES;
			narrow_key += HASH_KEY_BYTES;
		}
		scramble_wide(&sides->before, shape);
		scramble_wide(&sides->after, shape);
		if (is_f32)
			sides->after.param = hash_scramble(sides->after.param);
	}
	if (!is_f32)
		sides->after.param = hash_scramble(sides->after.param);
	if (has_narrow_remainder(shape)) {
		sides->before.remainder = hash_scramble(sides->before.remainder);
		sides->after.remainder = hash_scramble(sides->after.remainder);
	}
}

/* @array from its element @index on: the rest of its hash. */
static uint64_t section_end(hash_stripe accum, const void *array, uint64_t index, uint64_t count,
                            uint32_t width)
{
	if (!array)
		return 0;
	return hash_end(accum, (const char *)array + index * width, (count - index) * width,
	                count * width);
}

static uint64_t state_end(const struct kern_optim_run *run, const struct sections *sections,
                          uint64_t index)
{
	uint64_t count = run->element_count;
	uint32_t remainder_width = zi_remainder_bytes(run->param_dtype);

	return optim_state_join(
		run,
		section_end(sections->remainder, run->remainder, index, count, remainder_width),
		section_end(sections->exp_avg, run->exp_avg, index, count, sizeof(float)),
		section_end(sections->exp_avg_sq, run->exp_avg_sq, index, count, sizeof(float)),
		kern_hash_avx512);
}

/* One specialisation. What is left for the end is at least a stripe of every section. */
VEC_INLINE void optim_loop(const struct kern_optim_run *whole_run,
                           const struct kern_optim_scalars *scalars, struct optim_shape shape,
                           struct kern_optim_hashes *ret_hashes)
{
	struct kern_optim_run run = *whole_run; /* no store of the loop can touch it */
	const void *held[VEC_RANKS_HELD];
	const struct optim_lanes lanes = optim_lanes(scalars);
	const uint64_t turns_end =
		(run.element_count - PAIR_ELEMENTS) / TURN_ELEMENTS * TURN_ELEMENTS;
	struct sides sides = { sections_begin(), sections_begin() };

	run.grads = vec_sources_hold(held, run.grads, shape.ranks);
	for (uint64_t i = 0; i < turns_end; i += TURN_ELEMENTS)
		turn_step(&run, &lanes, shape, i, &sides);
	ret_hashes->state_before = state_end(&run, &sides.before, turns_end);
	for (uint64_t i = turns_end; i < run.element_count; i += VEC_LANES)
		optim_vec(&run, &lanes, shape, i);
	ret_hashes->state = state_end(&run, &sides.after, turns_end);
	ret_hashes->param = section_end(sides.after.param, run.param, turns_end, run.element_count,
	                                zi_dtype_bytes(run.param_dtype));
}

#include "kernels/optim_shapes_simd.h"

static __attribute__((noinline)) void hashed_adamw(const struct kern_optim_run *run,
                                                   const struct kern_optim_scalars *scalars,
                                                   struct kern_optim_hashes *ret_hashes)
{
	optim_dtypes(run, scalars, (struct optim_shape){ .optimizer = ZI_OPTIMIZER_ADAMW },
	             ret_hashes);
}

static __attribute__((noinline)) void hashed_adam(const struct kern_optim_run *run,
                                                  const struct kern_optim_scalars *scalars,
                                                  struct kern_optim_hashes *ret_hashes)
{
	optim_dtypes(run, scalars, (struct optim_shape){ .optimizer = ZI_OPTIMIZER_ADAM },
	             ret_hashes);
}

/* kern_optim_step_hashed() of this table. */
void kern_optim_step_hashed_avx512(const struct kern_optim_run *run,
                                   const struct kern_optim_scalars *scalars,
                                   struct kern_optim_hashes *ret_hashes)
{
	if (zi_optimizer_moments(scalars->optimizer) == 1 || run->element_count < FUSED_ELEMENTS)
		optim_apart(run, scalars, kern_optim_step_avx512, kern_hash_avx512, ret_hashes);
	else if (scalars->optimizer == ZI_OPTIMIZER_ADAMW)
		hashed_adamw(run, scalars, ret_hashes);
	else
		hashed_adam(run, scalars, ret_hashes);
}
#endif
