/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element conversions: the definition (docs/ARITHMETIC.md, "Element types"), element by element.
 * Floor 1.
 */
#include <string.h>

#include "common/base/assert.h"
#include "kernels/cast.h"
#include "kernels/table.h"

/* kern_widen() element by element. */
void kern_widen_ref(float *target, const void *source, uint64_t element_count, enum zi_dtype dtype)
{
	const uint16_t *source16 = source;

	assert(dtype >= ZI_DTYPE_F32);
	assert(dtype < _ZI_DTYPE_FLOAT_COUNT);
	switch (dtype) {
	case ZI_DTYPE_F32:
		if (target != source && element_count)
			memcpy(target, source, element_count * sizeof *target);
		return;
	case ZI_DTYPE_F16:
		for (uint64_t i = 0; i < element_count; i++)
			target[i] = kern_f16_to_f32(source16[i]);
		return;
	case ZI_DTYPE_BF16:
	default:
		for (uint64_t i = 0; i < element_count; i++)
			target[i] = kern_bf16_to_f32(source16[i]);
		return;
	}
}

/* kern_narrow() element by element. */
void kern_narrow_ref(void *target, const float *source, uint64_t element_count, enum zi_dtype dtype)
{
	uint16_t *target16 = target;

	assert(dtype >= ZI_DTYPE_F32);
	assert(dtype < _ZI_DTYPE_FLOAT_COUNT);
	switch (dtype) {
	case ZI_DTYPE_F32:
		if (target != source && element_count)
			memcpy(target, source, element_count * sizeof *source);
		return;
	case ZI_DTYPE_F16:
		for (uint64_t i = 0; i < element_count; i++)
			target16[i] = kern_f32_to_f16(source[i]);
		return;
	case ZI_DTYPE_BF16:
	default:
		for (uint64_t i = 0; i < element_count; i++)
			target16[i] = kern_f32_to_bf16(source[i]);
		return;
	}
}
