/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element conversions (docs/ARITHMETIC.md, "Element types"). The functions of one element
 * (element/cast.h) are the definition; the array forms give the same bits. Counts are arbitrary
 * (not only whole blocks). Floor 1.
 */
#pragma once

#include "common/base/types.h"
#include "kernels/element/cast.h"

/* target: (n,) f32. source: (n,) of @dtype. */
void kern_widen(float *target, const void *source, uint64_t element_count, enum zi_dtype dtype);
/* target: (n,) of @dtype, rounded once. source: (n,) f32. */
void kern_narrow(void *target, const float *source, uint64_t element_count, enum zi_dtype dtype);
