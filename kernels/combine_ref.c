/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining the ranks' elements: the definition (docs/ARITHMETIC.md, "Collectives"). Floor 1.
 */
#include "common/base/assert.h"
#include "kernels/combine.h"
#include "kernels/element/tree.h"
#include "kernels/table.h"

static float join_float(float a, float b, enum zi_reduce_op op)
{
	switch (op) {
	case ZI_REDUCE_SUM:
	case ZI_REDUCE_AVG:
		return a + b;
	case ZI_REDUCE_PROD:
		return a * b;
	case ZI_REDUCE_MIN: /* of equal ones (zeros of both signs) the later rank's */
		return isnan(a) || a < b ? a : b;
	case ZI_REDUCE_MAX:
		return isnan(a) || a > b ? a : b;
	default:
		assert(false && "an operation on floats");
		return 0.0f;
	}
}

static double join_double(double a, double b, enum zi_reduce_op op)
{
	switch (op) {
	case ZI_REDUCE_SUM:
	case ZI_REDUCE_AVG:
		return a + b;
	case ZI_REDUCE_PROD:
		return a * b;
	case ZI_REDUCE_MIN: /* as in join_float() */
		return isnan(a) || a < b ? a : b;
	case ZI_REDUCE_MAX:
		return isnan(a) || a > b ? a : b;
	default:
		assert(false && "an operation on floats");
		return 0.0;
	}
}

/* In 64 bits; what is kept of it is the same as in the type's own width. */
static int64_t join_integer(int64_t a, int64_t b, enum zi_reduce_op op)
{
	switch (op) {
	case ZI_REDUCE_SUM:
		return (int64_t)((uint64_t)a + (uint64_t)b);
	case ZI_REDUCE_PROD:
		return (int64_t)((uint64_t)a * (uint64_t)b);
	case ZI_REDUCE_MIN:
		return a < b ? a : b;
	case ZI_REDUCE_MAX:
		return a > b ? a : b;
	case ZI_REDUCE_BAND:
		return a & b;
	case ZI_REDUCE_BOR:
		return a | b;
	case ZI_REDUCE_BXOR:
		return a ^ b;
	default:
		assert(false && "an operation on integers");
		return 0;
	}
}

static int64_t integer_at(const void *source, uint64_t index, enum zi_dtype dtype)
{
	switch (dtype) {
	case ZI_DTYPE_I8:
		return ((const int8_t *)source)[index];
	case ZI_DTYPE_U8:
		return ((const uint8_t *)source)[index];
	case ZI_DTYPE_I32:
		return ((const int32_t *)source)[index];
	case ZI_DTYPE_I64:
		return ((const int64_t *)source)[index];
	default:
		assert(false && "an integer");
		return 0;
	}
}

static void integer_put(void *target, uint64_t index, int64_t value, enum zi_dtype dtype)
{
	switch (dtype) {
	case ZI_DTYPE_I8:
	case ZI_DTYPE_U8:
		((uint8_t *)target)[index] = (uint8_t)value;
		return;
	case ZI_DTYPE_I32:
		((uint32_t *)target)[index] = (uint32_t)value;
		return;
	default:
		((int64_t *)target)[index] = value;
	}
}

static void combine_floats(const struct kern_combine_run *run, uint64_t index)
{
	float node[ZI_WORLD_MAX];

	for (uint32_t i = 0; i < run->source_count; i++)
		node[i] = kern_widen_at(run->sources[i], index, run->source_dtype);
	for (uint32_t width = 1; width < run->source_count; width *= 2)
		for (uint32_t i = 0; i + width < run->source_count; i += 2 * width)
			node[i] = join_float(node[i], node[i + width], run->op);
	if (run->op == ZI_REDUCE_AVG)
		node[0] *= (float)run->average;
	for (uint32_t i = 0; i < run->target_count; i++)
		kern_narrow_at(run->targets[i], index, node[0], run->target_dtype);
}

static void combine_doubles(const struct kern_combine_run *run, uint64_t index)
{
	double node[ZI_WORLD_MAX];

	for (uint32_t i = 0; i < run->source_count; i++)
		node[i] = ((const double *)run->sources[i])[index];
	for (uint32_t width = 1; width < run->source_count; width *= 2)
		for (uint32_t i = 0; i + width < run->source_count; i += 2 * width)
			node[i] = join_double(node[i], node[i + width], run->op);
	if (run->op == ZI_REDUCE_AVG)
		node[0] *= run->average;
	node[0] = kern_canonical_f64(node[0]);
	for (uint32_t i = 0; i < run->target_count; i++)
		((double *)run->targets[i])[index] = node[0];
}

static void combine_integers(const struct kern_combine_run *run, uint64_t index)
{
	int64_t node[ZI_WORLD_MAX];

	for (uint32_t i = 0; i < run->source_count; i++)
		node[i] = integer_at(run->sources[i], index, run->source_dtype);
	for (uint32_t width = 1; width < run->source_count; width *= 2)
		for (uint32_t i = 0; i + width < run->source_count; i += 2 * width)
			node[i] = join_integer(node[i], node[i + width], run->op);
	for (uint32_t i = 0; i < run->target_count; i++)
		integer_put(run->targets[i], index, node[0], run->target_dtype);
}

/* kern_combine() element by element. */
void kern_combine_ref(const struct kern_combine_run *run)
{
	enum zi_dtype dtype = zi_dtype_joined(run->source_dtype);

	for (uint64_t i = 0; i < run->element_count; i++) {
		if (dtype == ZI_DTYPE_F32)
			combine_floats(run, i);
		else if (dtype == ZI_DTYPE_F64)
			combine_doubles(run, i);
		else
			combine_integers(run, i);
	}
}
