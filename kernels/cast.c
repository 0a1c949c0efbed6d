/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element conversions: the public functions (docs/ARITHMETIC.md, "Element types"). Floor 1.
 */
#include "kernels/cast.h"
#include "common/base/assert.h"
#include "kernels/table.h"

/**
 * kern_widen() - convert to fp32, exactly
 * @target: (element_count,) f32
 * @source: (element_count,) of @dtype; may be @target when @dtype is F32
 * @element_count: any
 * @dtype: of @source
 *
 * f16 signalling NaNs come out quiet; bf16 and f32 bits are kept. Context: any thread.
 */
void kern_widen(float *target, const void *source, uint64_t element_count, enum zi_dtype dtype)
{
	const struct kern_table *table = kern_table();
	kern_env saved;

	assert(target || !element_count);
	assert(source || !element_count);

	kern_env_enter(&saved);
	table->widen(target, source, element_count, dtype);
	kern_env_leave(&saved);
}

/**
 * kern_narrow() - convert from fp32, rounded once to nearest even
 * @target: (element_count,) of @dtype; may be @source when @dtype is F32
 * @source: (element_count,) f32
 * @element_count: any
 * @dtype: of @target
 *
 * A NaN keeps its sign; in f16 also the upper bits of its payload. Context: any thread.
 */
void kern_narrow(void *target, const float *source, uint64_t element_count, enum zi_dtype dtype)
{
	const struct kern_table *table = kern_table();
	kern_env saved;

	assert(target || !element_count);
	assert(source || !element_count);

	kern_env_enter(&saved);
	table->narrow(target, source, element_count, dtype);
	kern_env_leave(&saved);
}
