/* SPDX-License-Identifier: Apache-2.0 */
/* See finite.h. Floor 1. */
#include "kernels/finite.h"

#include <math.h>

#include "kernels/element/tree.h"

/* See finite.h. */
uint64_t kern_first_nonfinite(const void *source, uint64_t element_count, enum zi_dtype dtype)
{
	for (uint64_t i = 0; i < element_count; i++)
		if (!isfinite(kern_widen_at(source, i, dtype)))
			return i;
	return element_count;
}
