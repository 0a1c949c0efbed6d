/* SPDX-License-Identifier: Apache-2.0 */
/* Where something is not finite. Floor 1. */
#pragma once

#include "common/base/types.h"

/* The first element of @source, (n,) of @dtype, that is infinite or a NaN; @element_count: none.
 * For when that is already known of a block: element by element. */
uint64_t kern_first_nonfinite(const void *source, uint64_t element_count, enum zi_dtype dtype);
