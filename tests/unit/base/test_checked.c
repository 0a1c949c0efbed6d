/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: overflow is a boolean and leaves the result alone. Method: the last value that fits and the
 * first that does not. */
#include <criterion/criterion.h>

#include "common/base/checked.h"

Test(checked, add_takes_the_largest_sum_and_refuses_one_more)
{
	uint64_t value = 7;

	cr_assert(zi_checked_add(UINT64_MAX - 1, 1, &value));
	cr_assert_eq(value, UINT64_MAX);
	value = 7;
	cr_assert_not(zi_checked_add(UINT64_MAX, 1, &value));
	cr_assert_eq(value, 7, "untouched on failure");
}

Test(checked, mul_takes_the_largest_product_and_refuses_overflow)
{
	uint64_t value = 7;

	cr_assert(zi_checked_mul(UINT64_MAX / 3, 3, &value));
	cr_assert_eq(value, UINT64_MAX / 3 * 3);
	value = 7;
	cr_assert_not(zi_checked_mul(1ull << 32, 1ull << 32, &value));
	cr_assert_eq(value, 7, "untouched on failure");
}

Test(checked, align_rounds_up_and_refuses_wrapping)
{
	uint64_t value = 7;

	cr_assert(zi_checked_align(1, 4096, &value));
	cr_assert_eq(value, 4096);
	cr_assert(zi_checked_align(4096, 4096, &value));
	cr_assert_eq(value, 4096);
	value = 7;
	cr_assert_not(zi_checked_align(UINT64_MAX - 4094, 4096, &value));
	cr_assert_eq(value, 7, "untouched on failure");
	cr_assert_eq(zi_align_up(4097, 4096), 8192);
	cr_assert_eq(zi_align_up(0, 64), 0);
}
