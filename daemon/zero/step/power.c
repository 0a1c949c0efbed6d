/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/zero/step/power.h"

#include <stdbool.h>
#include <string.h>

/* @beta multiplied @count times, from 1 on. @count: at most ZERO_POWER_RUN. */
static double product(double beta, uint64_t count)
{
	double value = 1;

	for (uint64_t i = 0; i < count; i++)
		value *= beta;
	return value;
}

static double squared(double base, uint64_t exponent)
{
	double value = 1;

	for (; exponent; exponent >>= 1, base *= base)
		if (exponent & 1)
			value *= base;
	return value;
}

/* Documented in power.h. */
double power_of(struct zero_power *power, double beta, uint64_t count)
{
	uint64_t run = count / ZERO_POWER_RUN, rest = count % ZERO_POWER_RUN;
	bool is_same = power->count && memcmp(&power->beta, &beta, sizeof(beta)) == 0;

	if (is_same && power->count + 1 == count && rest)
		power->value *= beta;
	else if (!is_same || power->count != count)
		*power = (struct zero_power){
			.beta = beta,
			.value = product(beta, rest),
			.runs_value = run ? squared(product(beta, ZERO_POWER_RUN), run) : 1,
		};
	power->count = count;
	return power->runs_value * power->value;
}
