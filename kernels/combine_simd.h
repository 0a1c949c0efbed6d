/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/: joining the ranks' elements in vectors; see simd.h, combine.c. Floor 1.
 *
 * Floats up to fp32 are joined in fp32, fp64 and integers in vectors of their own type, which the
 * compiler's vector extension has for every instruction set. The tree is a binary counter over
 * ranks (its proof is at vec_tree_any()); with a constant number of them the compiler unrolls it
 * into registers.
 */
#pragma once

#include <string.h>

#include "kernels/combine.h"
#include "kernels/simd.h"

#define COMBINE_VEC_BYTES (VEC_LANES * (uint32_t)sizeof(float))
#define COMBINE_DEPTH     7u /* one partial result per bit of a number of ranks */

static_assert(ZI_WORLD_MAX < 1u << COMBINE_DEPTH, "the stack holds the tree of any world");

#define COMBINE_TYPE(name, type) \
	typedef type name __attribute__((vector_size(COMBINE_VEC_BYTES), aligned(1), may_alias))

COMBINE_TYPE(vec_i8, int8_t);
COMBINE_TYPE(vec_u8, uint8_t);
COMBINE_TYPE(vec_i32, int32_t);
COMBINE_TYPE(vec_u32, uint32_t);
COMBINE_TYPE(vec_i64, int64_t);
COMBINE_TYPE(vec_u64, uint64_t);
COMBINE_TYPE(vec_f64, double);

/* What a loop is specialised on: constants wherever it is inlined. */
struct combine_shape {
	enum zi_reduce_op op;
	enum zi_dtype source_dtype, target_dtype;
	uint32_t sources; /* 1, 2, 4, VEC_RANKS_ANY */
};

VEC_INLINE vec combine_join_float(vec a, vec b, enum zi_reduce_op op)
{
	if (op == ZI_REDUCE_PROD)
		return vec_mul(a, b);
	if (op == ZI_REDUCE_MIN)
		return vec_min(a, b);
	if (op == ZI_REDUCE_MAX)
		return vec_max(a, b);
	return vec_add(a, b);
}

/*
 * How far ahead sources are asked for. They are few, and often lie in another CPU's cache, which
 * answers late: sums of two ranks' staged pieces took 0.75 to 0.95 of the time of 2 KiB with 4 or
 * 8 KiB (Zen 5, CPUs near each other or far apart). More of them than that would not stay in L1.
 */
VEC_INLINE uint64_t combine_ahead_bytes(struct combine_shape shape)
{
	if (shape.sources == 1 || shape.sources == 2)
		return 8192;
	return shape.sources == 4 ? 4096 : VEC_AHEAD_ELEMENTS * sizeof(float);
}

VEC_INLINE vec combine_load_float(const void *source, uint64_t index, struct combine_shape shape)
{
	uint64_t width = shape.source_dtype == ZI_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);

	_mm_prefetch((const char *)source + index * width + combine_ahead_bytes(shape),
	             _MM_HINT_T0);
	return vec_load(source, index, shape.source_dtype);
}

/* Sums and products wrap, hence in the unsigned type; a comparison gives all ones or none. */
#define COMBINE_JOIN(name, type, wrapping)                                                   \
	VEC_INLINE type combine_join_##name(type a, type b, enum zi_reduce_op op)            \
	{                                                                                    \
		if (op == ZI_REDUCE_SUM)                                                     \
			return (type)((wrapping)a + (wrapping)b);                            \
		if (op == ZI_REDUCE_PROD)                                                    \
			return (type)((wrapping)a * (wrapping)b);                            \
		if (op == ZI_REDUCE_MIN)                                                     \
			return ((type)(a < b) & a) | (~(type)(a < b) & b);                   \
		if (op == ZI_REDUCE_MAX)                                                     \
			return ((type)(a > b) & a) | (~(type)(a > b) & b);                   \
		if (op == ZI_REDUCE_BAND)                                                    \
			return a & b;                                                        \
		if (op == ZI_REDUCE_BOR)                                                     \
			return a | b;                                                        \
		return a ^ b;                                                                \
	}                                                                                    \
	VEC_INLINE type combine_load_##name(const void *source, uint64_t index,              \
	                                    struct combine_shape shape)                      \
	{                                                                                    \
		const char *place = (const char *)source + index * sizeof(((type){ 0 })[0]); \
                                                                                             \
		(void)shape;                                                                 \
		_mm_prefetch(place + VEC_AHEAD_ELEMENTS * sizeof(float), _MM_HINT_T0);       \
		return *(const type *)place;                                                 \
	}

/* The tree over @count sources at @index. */
#define COMBINE_TREE(name, type)                                                        \
	VEC_INLINE type combine_tree_##name(const void *const *sources, uint32_t count, \
	                                    uint64_t index, struct combine_shape shape) \
	{                                                                               \
		type partial[COMBINE_DEPTH];                                            \
		uint32_t depth = 0;                                                     \
		type x;                                                                 \
                                                                                        \
		for (uint32_t i = 0; i < count; i++) {                                  \
			x = combine_load_##name(sources[i], index, shape);              \
			for (uint32_t carry = i; carry & 1; carry >>= 1)                \
				x = combine_join_##name(partial[--depth], x, shape.op); \
			partial[depth++] = x;                                           \
		}                                                                       \
		x = partial[--depth];                                                   \
		while (depth)                                                           \
			x = combine_join_##name(partial[--depth], x, shape.op);         \
		return x;                                                               \
	}

COMBINE_TREE(float, vec)

VEC_INLINE void combine_put_float(void *target, uint64_t index, vec x, enum zi_dtype dtype,
                                  bool is_streaming)
{
	if (!is_streaming)
		vec_store(target, index, x, dtype);
	else if (dtype == ZI_DTYPE_F32)
		vec_stream_f32((float *)target + index, x);
	else if (dtype == ZI_DTYPE_F16)
		vec_stream_f16((uint16_t *)target + index, x);
	else
		vec_stream_bf16((uint16_t *)target + index, vec_round_bf16(x));
}

VEC_INLINE void combine_loop_float(const struct kern_combine_run *run, uint64_t count,
                                   bool is_streaming, struct combine_shape shape)
{
	const void *held[VEC_RANKS_HELD];
	const void *const *sources = vec_sources_hold(held, run->sources, shape.sources);
	const uint32_t source_count = shape.sources ? shape.sources : run->source_count;
	void *const *targets = run->targets;
	const uint32_t target_count = run->target_count;
	const vec average = vec_set(run->op == ZI_REDUCE_AVG ? (float)run->average : 1.0f);

	for (uint64_t i = 0; i < count; i += VEC_LANES) {
		vec x = combine_tree_float(sources, source_count, i, shape);

		x = vec_canonical(vec_mul(x, average));
		for (uint32_t t = 0; t < target_count; t++)
			combine_put_float(targets[t], i, x, shape.target_dtype, is_streaming);
	}
}

/* Few numbers of ranks are specialised, and for sums alone. */
VEC_INLINE void combine_sources_float(const struct kern_combine_run *run, uint64_t count,
                                      bool is_streaming, struct combine_shape shape)
{
	struct combine_shape one = shape, two = shape, four = shape;

	one.sources = 1;
	two.sources = 2;
	four.sources = 4;
	if (shape.op != ZI_REDUCE_SUM)
		combine_loop_float(run, count, is_streaming, shape);
	else if (run->source_count == 1)
		combine_loop_float(run, count, is_streaming, one);
	else if (run->source_count == 2)
		combine_loop_float(run, count, is_streaming, two);
	else if (run->source_count == 4)
		combine_loop_float(run, count, is_streaming, four);
	else
		combine_loop_float(run, count, is_streaming, shape);
}

/* One function per operation and pair of dtypes keeps the compiler's work in bounds. */
#define COMBINE_FLOAT(name, ...)                                                                 \
	static __attribute__((noinline)) void combine_##name(const struct kern_combine_run *run, \
	                                                     uint64_t count, bool is_streaming)  \
	{                                                                                        \
		combine_sources_float(run, count, is_streaming,                                  \
		                      (struct combine_shape){ __VA_ARGS__, VEC_RANKS_ANY });     \
	}

#define COMBINE_FLOATS(name, source, target)                       \
	COMBINE_FLOAT(name##_sum, ZI_REDUCE_SUM, source, target)   \
	COMBINE_FLOAT(name##_prod, ZI_REDUCE_PROD, source, target) \
	COMBINE_FLOAT(name##_min, ZI_REDUCE_MIN, source, target)   \
	COMBINE_FLOAT(name##_max, ZI_REDUCE_MAX, source, target)

COMBINE_FLOATS(f32, ZI_DTYPE_F32, ZI_DTYPE_F32)
COMBINE_FLOATS(f16, ZI_DTYPE_F16, ZI_DTYPE_F16)
COMBINE_FLOATS(bf16, ZI_DTYPE_BF16, ZI_DTYPE_BF16)
COMBINE_FLOATS(f16_f32, ZI_DTYPE_F16, ZI_DTYPE_F32)
COMBINE_FLOATS(bf16_f32, ZI_DTYPE_BF16, ZI_DTYPE_F32)
COMBINE_FLOATS(f32_f16, ZI_DTYPE_F32, ZI_DTYPE_F16)
COMBINE_FLOATS(f32_bf16, ZI_DTYPE_F32, ZI_DTYPE_BF16)

VEC_INLINE void combine_put_bits(void *place, const void *bits, bool is_streaming)
{
	if (is_streaming)
		vec_stream_bits(place, bits);
	else
		memcpy(place, bits, COMBINE_VEC_BYTES);
}

#define COMBINE_INTEGER(name, type, operation)                                                   \
	static __attribute__((noinline)) void combine_##name##_##operation(                      \
		const struct kern_combine_run *run, uint64_t count, bool is_streaming)           \
	{                                                                                        \
		const uint64_t width = sizeof(((type){ 0 })[0]);                                 \
		const struct combine_shape shape = { .op = operation };                          \
                                                                                                 \
		for (uint64_t i = 0; i < count; i += COMBINE_VEC_BYTES / width) {                \
			type x = combine_tree_##name(run->sources, run->source_count, i, shape); \
                                                                                                 \
			for (uint32_t t = 0; t < run->target_count; t++)                         \
				combine_put_bits((char *)run->targets[t] + i * width, &x,        \
				                 is_streaming);                                  \
		}                                                                                \
	}

#define COMBINE_INTEGERS(name, type, wrapping)      \
	COMBINE_JOIN(name, type, wrapping)          \
	COMBINE_TREE(name, type)                    \
	COMBINE_INTEGER(name, type, ZI_REDUCE_SUM)  \
	COMBINE_INTEGER(name, type, ZI_REDUCE_PROD) \
	COMBINE_INTEGER(name, type, ZI_REDUCE_MIN)  \
	COMBINE_INTEGER(name, type, ZI_REDUCE_MAX)  \
	COMBINE_INTEGER(name, type, ZI_REDUCE_BAND) \
	COMBINE_INTEGER(name, type, ZI_REDUCE_BOR)  \
	COMBINE_INTEGER(name, type, ZI_REDUCE_BXOR)

COMBINE_INTEGERS(i8, vec_i8, vec_u8)
COMBINE_INTEGERS(u8, vec_u8, vec_u8)
COMBINE_INTEGERS(i32, vec_i32, vec_u32)
COMBINE_INTEGERS(i64, vec_i64, vec_u64)

/* The bits of a NaN without sign or payload; of other numbers their own. */
VEC_INLINE vec_f64 combine_canonical_f64(vec_f64 x)
{
	const vec_i64 quiet = (vec_i64){ 0 } + 0x7ff8000000000000;
	vec_i64 is_nan = (vec_i64)(x != x);

	return (vec_f64)((is_nan & quiet) | (~is_nan & (vec_i64)x));
}

/* As vec_min() and vec_max(): the first if it is NaN, or less, or more. */
VEC_INLINE vec_f64 combine_join_f64(vec_f64 a, vec_f64 b, enum zi_reduce_op op)
{
	vec_i64 first;

	if (op == ZI_REDUCE_PROD)
		return a * b;
	if (op != ZI_REDUCE_MIN && op != ZI_REDUCE_MAX)
		return a + b;
	first = (vec_i64)(a != a) | (op == ZI_REDUCE_MIN ? (vec_i64)(a < b) : (vec_i64)(a > b));
	return (vec_f64)((first & (vec_i64)a) | (~first & (vec_i64)b));
}

VEC_INLINE vec_f64 combine_load_f64(const void *source, uint64_t index, struct combine_shape shape)
{
	const char *place = (const char *)source + index * sizeof(double);
	vec_f64 x;

	(void)shape;
	_mm_prefetch(place + VEC_AHEAD_ELEMENTS * sizeof(float), _MM_HINT_T0);
	/* Through a pointer gcc 12 loads doubles as if they were aligned, despite aligned(1). */
	memcpy(&x, place, sizeof(x));
	return x;
}

COMBINE_TREE(f64, vec_f64)

#define COMBINE_DOUBLE(name, operation)                                                            \
	static __attribute__((noinline)) void combine_f64_##name(                                  \
		const struct kern_combine_run *run, uint64_t count, bool is_streaming)             \
	{                                                                                          \
		const struct combine_shape shape = { .op = operation };                            \
		const double average = run->op == ZI_REDUCE_AVG ? run->average : 1.0;              \
                                                                                                   \
		for (uint64_t i = 0; i < count; i += COMBINE_VEC_BYTES / sizeof(double)) {         \
			vec_f64 x = combine_tree_f64(run->sources, run->source_count, i, shape);   \
                                                                                                   \
			x = combine_canonical_f64(x * average);                                    \
			for (uint32_t t = 0; t < run->target_count; t++)                           \
				combine_put_bits((double *)run->targets[t] + i, &x, is_streaming); \
		}                                                                                  \
	}

COMBINE_DOUBLE(sum, ZI_REDUCE_SUM)
COMBINE_DOUBLE(prod, ZI_REDUCE_PROD)
COMBINE_DOUBLE(min, ZI_REDUCE_MIN)
COMBINE_DOUBLE(max, ZI_REDUCE_MAX)

typedef void (*combine_fn)(const struct kern_combine_run *run, uint64_t count, bool is_streaming);

#define COMBINE_FLOAT_ROW(name)                                                                   \
	{                                                                                         \
		[ZI_REDUCE_SUM] = combine_##name##_sum, [ZI_REDUCE_AVG] = combine_##name##_sum,   \
		[ZI_REDUCE_PROD] = combine_##name##_prod, [ZI_REDUCE_MIN] = combine_##name##_min, \
		[ZI_REDUCE_MAX] = combine_##name##_max,                                           \
	}
#define COMBINE_INTEGER_ROW(name)                                   \
	{                                                           \
		[ZI_REDUCE_SUM] = combine_##name##_ZI_REDUCE_SUM,   \
		[ZI_REDUCE_PROD] = combine_##name##_ZI_REDUCE_PROD, \
		[ZI_REDUCE_MIN] = combine_##name##_ZI_REDUCE_MIN,   \
		[ZI_REDUCE_MAX] = combine_##name##_ZI_REDUCE_MAX,   \
		[ZI_REDUCE_BAND] = combine_##name##_ZI_REDUCE_BAND, \
		[ZI_REDUCE_BOR] = combine_##name##_ZI_REDUCE_BOR,   \
		[ZI_REDUCE_BXOR] = combine_##name##_ZI_REDUCE_BXOR, \
	}

static const combine_fn combine_same[_ZI_DTYPE_COUNT][_ZI_REDUCE_COUNT] = {
	[ZI_DTYPE_F32] = COMBINE_FLOAT_ROW(f32),   [ZI_DTYPE_F16] = COMBINE_FLOAT_ROW(f16),
	[ZI_DTYPE_BF16] = COMBINE_FLOAT_ROW(bf16), [ZI_DTYPE_I8] = COMBINE_INTEGER_ROW(i8),
	[ZI_DTYPE_U8] = COMBINE_INTEGER_ROW(u8),   [ZI_DTYPE_I32] = COMBINE_INTEGER_ROW(i32),
	[ZI_DTYPE_I64] = COMBINE_INTEGER_ROW(i64), [ZI_DTYPE_F64] = COMBINE_FLOAT_ROW(f64),
};
static const combine_fn combine_to_f32[_ZI_DTYPE_FLOAT_COUNT][_ZI_REDUCE_COUNT] = {
	[ZI_DTYPE_F16] = COMBINE_FLOAT_ROW(f16_f32),
	[ZI_DTYPE_BF16] = COMBINE_FLOAT_ROW(bf16_f32),
};
static const combine_fn combine_from_f32[_ZI_DTYPE_FLOAT_COUNT][_ZI_REDUCE_COUNT] = {
	[ZI_DTYPE_F16] = COMBINE_FLOAT_ROW(f32_f16),
	[ZI_DTYPE_BF16] = COMBINE_FLOAT_ROW(f32_bf16),
};

static inline combine_fn combine_choose(const struct kern_combine_run *run)
{
	if (run->source_dtype == run->target_dtype)
		return combine_same[run->source_dtype][run->op];
	if (run->source_dtype == ZI_DTYPE_F32)
		return combine_from_f32[run->target_dtype][run->op];
	return combine_to_f32[run->source_dtype][run->op];
}

static inline bool combine_is_source(const struct kern_combine_run *run, const void *target)
{
	for (uint32_t i = 0; i < run->source_count; i++)
		if (run->sources[i] == target)
			return true;
	return false;
}

/*
 * Stores that pass by the cache save reading what they overwrite, and want whole lines. In place
 * the lines have been read anyway: two ranks' sums of 1 to 64 MiB, each to both sources, take 0.7
 * to 1.0 of the time with plain stores (two threads, Zen 5).
 */
static inline bool combine_can_stream(const struct kern_combine_run *run)
{
	bool is_possible = run->is_streaming;
	uintptr_t first = (uintptr_t)run->targets[0];

	for (uint32_t t = 0; t < run->target_count && is_possible; t++)
		is_possible = ((uintptr_t)run->targets[t] - first) % COMBINE_VEC_BYTES == 0 &&
		              !combine_is_source(run, run->targets[t]);
	return is_possible && first % zi_dtype_bytes(run->target_dtype) == 0;
}

/* @run without its first @count elements; the arrays have room for ZI_WORLD_MAX. */
static struct kern_combine_run combine_skip(const struct kern_combine_run *run, uint64_t count,
                                            const void **sources, void **targets)
{
	struct kern_combine_run rest = *run;
	uint64_t source_bytes = count * zi_dtype_bytes(run->source_dtype);
	uint64_t target_bytes = count * zi_dtype_bytes(run->target_dtype);

	for (uint32_t i = 0; i < run->target_count; i++)
		targets[i] = (char *)run->targets[i] + target_bytes;
	for (uint32_t i = 0; i < run->source_count; i++)
		sources[i] = (const char *)run->sources[i] + source_bytes;
	rest.sources = sources;
	rest.targets = targets;
	rest.element_count -= count;
	return rest;
}

/* Whole vectors, then what is left by the reference. */
static void combine_vectors(const struct kern_combine_run *run, bool is_streaming)
{
	uint32_t width = zi_dtype_bytes(zi_dtype_joined(run->source_dtype));
	uint64_t whole = run->element_count - run->element_count % (COMBINE_VEC_BYTES / width);
	const void *sources[ZI_WORLD_MAX];
	void *targets[ZI_WORLD_MAX];

	if (whole)
		combine_choose(run)(run, whole, is_streaming);
	if (whole < run->element_count) {
		struct kern_combine_run rest = combine_skip(run, whole, sources, targets);

		kern_combine_ref(&rest);
	}
}

/* Up to where the targets' lines begin by the reference, then in whole lines past the cache. */
static __attribute__((noinline)) void combine_stream(const struct kern_combine_run *run)
{
	uint64_t apart = -(uintptr_t)run->targets[0] % COMBINE_VEC_BYTES;
	struct kern_combine_run head = *run, rest;
	const void *sources[ZI_WORLD_MAX];
	void *targets[ZI_WORLD_MAX];

	head.element_count = apart / zi_dtype_bytes(run->target_dtype);
	if (head.element_count > run->element_count)
		head.element_count = run->element_count;
	kern_combine_ref(&head);
	rest = combine_skip(run, head.element_count, sources, targets);
	combine_vectors(&rest, true);
	_mm_sfence(); /* before whoever reads next is told */
}

void VEC_NAME(kern_combine)(const struct kern_combine_run *run)
{
	if (combine_can_stream(run))
		combine_stream(run);
	else
		combine_vectors(run, false);
}
