/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of Criterion's tests (.timeout) follow the machine: tests/harness/patience.h. */
#include <criterion/criterion.h>

#include "tests/harness/patience.h"

/* Criterion's own lists of tests and suites. Weak: other programs have neither. */
extern struct criterion_test *__start_cr_tst[] __attribute__((weak)),
	*__stop_cr_tst[] __attribute__((weak));
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak)),
	*__stop_cr_sts[] __attribute__((weak));

static __attribute__((constructor)) void stretch_limits(void)
{
	for (struct criterion_test **test = __start_cr_tst; test < __stop_cr_tst; test++)
		if (*test)
			(*test)->data->timeout *= (double)patience();
	for (struct criterion_suite **suite = __start_cr_sts; suite < __stop_cr_sts; suite++)
		if (*suite)
			(*suite)->data->timeout *= (double)patience();
}
