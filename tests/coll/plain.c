/* SPDX-License-Identifier: Apache-2.0 */
/* The plain model of collectives; see plain.h. */
#include "tests/coll/plain.h"

#include <math.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"

/* ---- elements as bits ---- */

static uint64_t get(const void *buffer, uint64_t index, uint32_t width)
{
	uint64_t bits = 0;

	memcpy(&bits, (const char *)buffer + index * width, width);
	return bits;
}

static float f32_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof bits);
	return bits;
}

/* IEEE 754 binary16: (-1)^sign × 2^(exponent - 15) × 1.fraction; denormals in steps of 2^-24. */
static float widen_f16(uint32_t bits)
{
	int exponent = (int)(bits >> 10 & 31u);
	float fraction = (float)(bits & 1023u);
	float value;

	if (exponent == 31)
		value = bits & 1023u ? NAN : INFINITY;
	else if (exponent == 0)
		value = ldexpf(fraction, -24);
	else
		value = ldexpf(1024.0f + fraction, exponent - 25);
	return bits >> 15 ? -value : value;
}

/* To the nearest multiple of the step between neighbours of its size, ties to even. */
static uint32_t narrow_f16(float value)
{
	uint32_t sign = bits_of(value) >> 31 << 15;
	double size = fabs((double)value);
	int exponent;
	double steps;

	if (isnan(value))
		return 0x7e00u;
	if (size >= 65520.0) /* halfway between the largest and what would be next */
		return sign | 0x7c00u;
	(void)frexp(size, &exponent); /* size in [2^(exponent-1), 2^exponent) */
	if (size == 0.0 || exponent < -13)
		exponent = -13;
	steps = nearbyint(ldexp(size, 11 - exponent)); /* exact before it is rounded */
	/* Denormals and the first binade share their step, so one formula counts through both; a
	 * carry goes into the exponent by itself. */
	return sign | (((uint32_t)(exponent + 13) << 10) + (uint32_t)steps);
}

static uint32_t narrow_bf16(float value)
{
	uint32_t bits = bits_of(value);
	uint32_t rest = bits & 0xffffu, kept = bits >> 16;

	if (isnan(value))
		return 0x7fc0u;
	return kept + (rest > 0x8000u || (rest == 0x8000u && (kept & 1u)));
}

static double widen(uint64_t bits, enum zi_dtype dtype)
{
	double value;

	memcpy(&value, &bits, sizeof value);
	if (dtype == ZI_DTYPE_F64)
		return value;
	if (dtype == ZI_DTYPE_F32)
		return f32_of((uint32_t)bits);
	return dtype == ZI_DTYPE_BF16 ? f32_of((uint32_t)bits << 16) : widen_f16((uint32_t)bits);
}

/* What arithmetic stores: NaN is the positive quiet one without payload. */
static uint64_t narrow(float value, enum zi_dtype dtype)
{
	if (dtype == ZI_DTYPE_F32)
		return isnan(value) ? 0x7fc00000u : bits_of(value);
	return dtype == ZI_DTYPE_BF16 ? narrow_bf16(value) : narrow_f16(value);
}

static uint64_t narrow_f64(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof bits);
	return isnan(value) ? 0x7ff8000000000000 : bits;
}

/* ---- what is in the sources ---- */

static uint64_t double_bits(uint64_t random, enum script_style style)
{
	static const uint64_t edges[] = {
		0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x800fffffffffffff,
		0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
		0x7ff8000000000000, 0xfff4000000000001, 0x0010000000000000, 0x3ff0000000000000
	};
	uint32_t pick = (uint32_t)(random >> 40) % 16u;

	if (style == SCRIPT_EDGE && pick < ZI_COUNT_OF(edges))
		return edges[pick];
	if (style != SCRIPT_ORDINARY)
		return random;
	return (random & 0x800fffffffffffff) | (1003 + (random >> 52) % 25u) << 52;
}

static uint64_t float_bits(uint64_t random, enum zi_dtype dtype, enum script_style style)
{
	static const uint32_t edges[] = { 0x00000000u, 0x80000000u, 0x00000001u, 0x807fffffu,
		                          0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u,
		                          0x7fc00000u, 0xffa00001u, 0x00800000u, 0x3f800000u };
	static const uint32_t half_edges[] = {
		0x0000u, 0x8000u, 0x0001u, 0x83ffu, 0x7bffu, 0xfbffu,
		0x7c00u, 0xfc00u, 0x7e00u, 0xfd01u, 0x0400u, 0x3c00u
	};
	uint32_t low = (uint32_t)random, pick = (uint32_t)(random >> 40) % 16u;
	uint32_t bits;

	if (style == SCRIPT_ANY || (style == SCRIPT_EDGE && pick >= ZI_COUNT_OF(edges))) {
		bits = low;
	} else if (dtype == ZI_DTYPE_F16) {
		bits = style == SCRIPT_EDGE
		               ? half_edges[pick]
		               : (low & 0x83ffu) | (5u + (uint32_t)(random >> 32) % 16u) << 10;
		return bits;
	} else {
		bits = style == SCRIPT_EDGE ? edges[pick]
		                            : (low & 0x807fffffu) |
		                                      (107u + (uint32_t)(random >> 32) % 25u) << 23;
	}
	return dtype == ZI_DTYPE_F32 ? bits : bits >> 16;
}

/* Element @index of @member's source. */
static uint64_t element(const struct script_call *call, uint32_t member, uint64_t index)
{
	uint64_t random = script_mix(call->seed * 0x100000001b3ull + ((uint64_t)member << 48) +
	                             index * 0x9e3779b9ull);

	if (call->dtype == ZI_DTYPE_F64)
		return double_bits(random, call->style);
	if (zi_dtype_is_float(call->dtype))
		return float_bits(random, call->dtype, call->style);
	return random & (UINT64_MAX >> (64 - 8 * zi_dtype_bytes(call->dtype)));
}

uint64_t plain_uneven(const struct script_call *call, uint32_t from, uint32_t to)
{
	uint64_t random =
		script_mix(call->seed ^ ((uint64_t)from << 32 | to) * 0x9e3779b97f4a7c15ull);

	if (call->operation == SCRIPT_BATCH && from == to)
		return 0;
	return random % 4u ? (random >> 8) % (call->element_count + 1) : 0;
}

bool plain_has_message(const struct script_call *call, uint32_t from, uint32_t to)
{
	return from != to &&
	       (plain_uneven(call, from, to) || script_mix(call->seed + from + to) % 2u);
}

/* ---- joining ---- */

static double join_floats(double low, double high, enum zi_reduce_op op)
{
	switch (op) {
	case ZI_REDUCE_PROD:
		return low * high;
	case ZI_REDUCE_MIN:
		if (isnan(low) || isnan(high))
			return NAN;
		return low < high ? low : high;
	case ZI_REDUCE_MAX:
		if (isnan(low) || isnan(high))
			return NAN;
		return low > high ? low : high;
	default:
		return low + high;
	}
}

/* Of numbers that stand in @width bytes; signed unless they are u8. */
static uint64_t join_integers(uint64_t low, uint64_t high, enum zi_reduce_op op, uint32_t width,
                              bool is_signed)
{
	uint64_t turn = is_signed ? 1ull << (8 * width - 1) : 0; /* makes order that of unsigned */

	switch (op) {
	case ZI_REDUCE_SUM:
		return low + high;
	case ZI_REDUCE_PROD:
		return low * high;
	case ZI_REDUCE_MIN:
		return (low ^ turn) < (high ^ turn) ? low : high;
	case ZI_REDUCE_MAX:
		return (low ^ turn) > (high ^ turn) ? low : high;
	case ZI_REDUCE_BAND:
		return low & high;
	case ZI_REDUCE_BOR:
		return low | high;
	default:
		return low ^ high;
	}
}

/*
 * The tree by a counter: members come one by one, and two neighbouring subtrees of one size become
 * one, as digits carry. What is left joins from the right: each split is at the largest power of
 * two below what it splits.
 */
struct tree {
	uint32_t size, depth;
	uint32_t sizes[8];
	double floats[8]; /* of f32 its numbers */
	uint64_t integers[8];
};

static void tree_join_top(struct tree *tree, const struct script_call *call)
{
	uint32_t low = tree->depth - 2, high = tree->depth - 1;

	tree->floats[low] = join_floats(tree->floats[low], tree->floats[high], call->reduce_op);
	if (call->dtype != ZI_DTYPE_F64) /* of two f32 as exact as in f32, and rounded once */
		tree->floats[low] = (float)tree->floats[low];
	if (!zi_dtype_is_float(call->dtype)) {
		uint32_t width = zi_dtype_bytes(call->dtype);

		tree->integers[low] =
			join_integers(tree->integers[low], tree->integers[high], call->reduce_op,
		                      width, call->dtype != ZI_DTYPE_U8) &
			(UINT64_MAX >> (64 - 8 * width));
	}
	tree->sizes[low] += tree->sizes[high];
	tree->depth--;
}

/* Element @index of all sources, joined. */
static uint64_t join(const struct script_call *call, uint32_t members, uint64_t index)
{
	bool is_float = zi_dtype_is_float(call->dtype);
	struct tree tree = { 0 };

	for (uint32_t member = 0; member < members; member++) {
		uint64_t bits = element(call, member, index);

		tree.sizes[tree.depth] = 1;
		tree.floats[tree.depth] = is_float ? widen(bits, call->dtype) : 0.0;
		tree.integers[tree.depth++] = bits;
		while (tree.depth >= 2 && tree.sizes[tree.depth - 2] == tree.sizes[tree.depth - 1])
			tree_join_top(&tree, call);
	}
	while (tree.depth >= 2)
		tree_join_top(&tree, call);
	if (!is_float)
		return tree.integers[0];
	if (call->dtype == ZI_DTYPE_F64)
		return narrow_f64(call->reduce_op == ZI_REDUCE_AVG
		                          ? tree.floats[0] * (1.0 / members)
		                          : tree.floats[0]);
	if (call->reduce_op == ZI_REDUCE_AVG)
		tree.floats[0] = (float)tree.floats[0] * (float)(1.0 / members);
	return narrow((float)tree.floats[0], call->dtype);
}

/* ---- calls ---- */

static uint64_t uneven_before(const struct script_call *call, uint32_t from, uint32_t to,
                              bool is_source)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < (is_source ? to : from); i++)
		sum += is_source ? plain_uneven(call, from, i) : plain_uneven(call, i, to);
	return sum;
}

struct plain_lengths plain_lengths(const struct script_call *call, uint32_t members,
                                   uint32_t member)
{
	uint64_t block = call->element_count, blocks = block * members, own = block * member;
	bool is_root = member == call->root;

	switch (call->operation) {
	case SCRIPT_ALL_REDUCE:
		return (struct plain_lengths){ block, block, 0, false };
	case SCRIPT_REDUCE:
		return (struct plain_lengths){ block, is_root ? block : 0, 0, false };
	case SCRIPT_REDUCE_SCATTER:
		return (struct plain_lengths){ blocks, block, own, false };
	case SCRIPT_ALL_GATHER:
		return (struct plain_lengths){ block, blocks, own, true };
	case SCRIPT_BROADCAST:
		return (struct plain_lengths){ is_root ? block : 0, is_root ? 0 : block, 0, false };
	case SCRIPT_GATHER:
		return (struct plain_lengths){ block, is_root ? blocks : 0, is_root ? own : 0,
			                       true };
	case SCRIPT_SCATTER:
		return (struct plain_lengths){ is_root ? blocks : 0, block, is_root ? own : 0,
			                       false };
	case SCRIPT_ALL_TO_ALL:
		return (struct plain_lengths){ blocks, blocks, 0, false };
	case SCRIPT_ALL_TO_ALLV:
	case SCRIPT_BATCH:
		return (struct plain_lengths){ uneven_before(call, member, members, true),
			                       uneven_before(call, members, member, false), 0,
			                       false };
	case SCRIPT_SEND:
		return (struct plain_lengths){
			is_root ? block : 0,
			!is_root && member == (call->root + 1) % members ? block : 0, 0, false
		};
	default:
		return (struct plain_lengths){ 0 };
	}
}

void plain_fill(void *source, const struct script_call *call, uint32_t members, uint32_t member)
{
	uint64_t element_count = plain_lengths(call, members, member).source_elements;
	uint32_t width = zi_dtype_bytes(call->dtype);

	for (uint64_t i = 0; i < element_count; i++) {
		uint64_t bits = element(call, member, i);

		memcpy((char *)source + i * width, &bits, width);
	}
}

/* Element @index of @member's target, of the operations whose blocks are even. */
static uint64_t expected(const struct script_call *call, uint32_t members, uint32_t member,
                         uint64_t index)
{
	uint64_t block = call->element_count;

	switch (call->operation) {
	case SCRIPT_ALL_REDUCE:
	case SCRIPT_REDUCE:
		return join(call, members, index);
	case SCRIPT_REDUCE_SCATTER:
		return join(call, members, block * member + index);
	case SCRIPT_ALL_GATHER:
	case SCRIPT_GATHER:
		return element(call, (uint32_t)(index / block), index % block);
	case SCRIPT_BROADCAST:
	case SCRIPT_SEND:
		return element(call, call->root, index);
	case SCRIPT_SCATTER:
		return element(call, call->root, block * member + index);
	default:
		assert(call->operation == SCRIPT_ALL_TO_ALL);
		return element(call, (uint32_t)(index / block), block * member + index % block);
	}
}

static uint64_t compare_uneven(const void *target, const struct script_call *call, uint32_t members,
                               uint32_t member, uint64_t ret_bits[2])
{
	uint32_t width = zi_dtype_bytes(call->dtype);
	uint64_t index = 0;

	for (uint32_t from = 0; from < members; from++) {
		uint64_t begin = uneven_before(call, from, member, true);
		uint64_t element_count = plain_uneven(call, from, member);

		for (uint64_t i = 0; i < element_count; i++, index++) {
			ret_bits[0] = get(target, index, width);
			ret_bits[1] = element(call, from, begin + i);
			if (ret_bits[0] != ret_bits[1])
				return index;
		}
	}
	return UINT64_MAX;
}

bool plain_is_source(const void *source, const struct script_call *call, uint32_t members,
                     uint32_t member)
{
	uint64_t element_count = plain_lengths(call, members, member).source_elements;
	uint32_t width = zi_dtype_bytes(call->dtype);

	for (uint64_t i = 0; i < element_count; i++)
		if (get(source, i, width) != element(call, member, i))
			return false;
	return true;
}

uint64_t plain_compare(const void *target, const struct script_call *call, uint32_t members,
                       uint32_t member, uint64_t ret_bits[2])
{
	uint64_t element_count = plain_lengths(call, members, member).target_elements;
	uint32_t width = zi_dtype_bytes(call->dtype);

	if (call->operation == SCRIPT_ALL_TO_ALLV || call->operation == SCRIPT_BATCH)
		return compare_uneven(target, call, members, member, ret_bits);
	for (uint64_t i = 0; i < element_count; i++) {
		ret_bits[0] = get(target, i, width);
		ret_bits[1] = expected(call, members, member, i);
		if (ret_bits[0] != ret_bits[1])
			return i;
	}
	return UINT64_MAX;
}
