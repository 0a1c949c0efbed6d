/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the power of a group's beta is the running product, depends on nothing but beta and the
 * count, and takes no time that a client chooses. Method: each count is asked from the newest
 * answer and from none; counts that a forged import may have are compared with exp().
 */
#include <criterion/criterion.h>
#include <math.h>

#include "daemon/zero/step/power.h"

Test(zero_power, steps_one_by_one_are_the_running_product)
{
	struct zero_power power = { 0 };
	double product = 1;

	for (uint64_t count = 1; count < ZERO_POWER_RUN; count++) {
		product *= 0.9999;
		cr_assert_eq(power_of(&power, 0.9999, count), product, "after %llu",
		             (unsigned long long)count);
		cr_assert_eq(power_of(&power, 0.9999, count), product, "asked twice");
	}
}

Test(zero_power, the_way_to_a_count_does_not_matter)
{
	static const uint64_t from[] = { 1, ZERO_POWER_RUN - 3, 2 * ZERO_POWER_RUN - 3,
		                         1ull << 40 };

	for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
		struct zero_power power = { 0 };

		for (uint64_t count = from[i]; count < from[i] + 6; count++) {
			struct zero_power fresh = { 0 };

			cr_assert_eq(power_of(&power, 0.99999, count),
			             power_of(&fresh, 0.99999, count));
		}
	}
}

Test(zero_power, another_beta_begins_anew)
{
	struct zero_power power = { 0 };

	(void)power_of(&power, 0.5, 7);
	cr_assert_eq(power_of(&power, 0.25, 8), pow(0.25, 8));
	cr_assert_eq(power_of(&power, 0.25, 3), pow(0.25, 3), "a count before the newest");
}

/* A loop over this count would take weeks. */
Test(zero_power, a_forged_count_takes_no_time)
{
	struct zero_power power = { 0 };
	const double beta = 1 - 0x1p-53;
	double wanted = exp(-0x1p10), value;

	cr_assert_float_eq(power_of(&power, beta, 1ull << 53), exp(-1.0), 1e-4);
	value = power_of(&power, beta, 1ull << 63);
	cr_assert(value >= 0 && value <= 2 * wanted + 1e-300, "%g", value);
	cr_assert_eq(power_of(&power, 0.999, UINT64_MAX), 0);
	cr_assert_eq(power_of(&power, 1, UINT64_MAX), 1);
	cr_assert_eq(power_of(&power, 0, UINT64_MAX), 0);
}
