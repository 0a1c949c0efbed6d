/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on sizes that a client may have chosen: overflow is a boolean, never a wrap. Floor 0.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/assert.h"

/* Each returns true and writes *ret_value when the result fits; false (untouched) when not. */
static inline bool zi_checked_add(uint64_t a, uint64_t b, uint64_t *ret_value)
{
	uint64_t value;

	if (__builtin_add_overflow(a, b, &value))
		return false;
	*ret_value = value;
	return true;
}

static inline bool zi_checked_mul(uint64_t a, uint64_t b, uint64_t *ret_value)
{
	uint64_t value;

	if (__builtin_mul_overflow(a, b, &value))
		return false;
	*ret_value = value;
	return true;
}

/* @align is a power of two. */
static inline bool zi_checked_align(uint64_t value, uint64_t align, uint64_t *ret_value)
{
	assert(align && !(align & (align - 1)));
	if (!zi_checked_add(value, align - 1, &value))
		return false;
	*ret_value = value & ~(align - 1);
	return true;
}

/* For values already known to be small. */
static inline uint64_t zi_align_up(uint64_t value, uint64_t align)
{
	assert(align && !(align & (align - 1)));
	return (value + align - 1) & ~(align - 1);
}
