/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an assert that does not hold is reported with its place and its words, and fails its test
 * (tests/harness/asserts.h). Method: this program runs the suite asserts_trial of itself, whose
 * tests fail where TRIAL is set.
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int zero;

Test(asserts_trial, words)
{
	if (!getenv("TRIAL"))
		return;
	cr_expect_eq(zero, 1);
	cr_expect(zero, "zero is %d, not %s", zero, "one");
	cr_expect_str_eq("left", "right");
	cr_expect_null("text");
	cr_expect_float_eq(1.0, 2.0, 0.1, "far");
	puts("after expects");
	(void)fflush(stdout);
	cr_assert_not_null((void *)(long)zero);
	puts("after the assert");
	(void)fflush(stdout);
}

Test(asserts_trial, fail)
{
	if (getenv("TRIAL"))
		cr_assert_fail("wanted %d", 7);
}

Test(asserts_trial, fail_without_words)
{
	if (getenv("TRIAL"))
		cr_assert_fail();
}

Test(asserts_trial, pass)
{
	cr_assert_eq(zero, 0, "not shown");
	cr_expect_not(zero);
}

Test(asserts, a_failed_assert_is_reported)
{
	static const char *const said[] = {
		"test_asserts.c:20: Assertion Failed",
		"The expression (zero) == (1) is false.",
		"zero is 0, not one",
		"(\"left\") == (\"right\") is false: actual=`left` expected=`right`.",
		"\"text\" is not null.",
		"far",
		"after expects",
		"(void *)(long)zero is null.",
		"wanted 7",
		"The conditions for this assertion were not met.",
		"Tested: 4 | Passing: 1 | Failing: 3 | Crashing: 0",
	};
	static char output[16384];
	char program[PATH_MAX] = { 0 }, command[PATH_MAX + 200];
	size_t bytes;
	FILE *trial;

	cr_assert_gt(readlink("/proc/self/exe", program, sizeof(program) - 1), 0);
	/* Criterion's own variables would make it a worker of this run. */
	(void)snprintf(command, sizeof(command),
	               "env -i TRIAL=1 ZINF_TEST_GUARD=1 '%s' --color=never "
	               "--filter 'asserts_trial/*' 2>&1",
	               program);
	trial = popen(command, "r");
	cr_assert_not_null(trial);
	bytes = fread(output, 1, sizeof(output) - 1, trial);
	output[bytes] = '\0';
	cr_assert_neq(pclose(trial), 0);
	for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++)
		cr_expect_not_null(strstr(output, said[i]), "no '%s' in:\n%s", said[i], output);
	cr_expect_null(strstr(output, "after the assert"));
	cr_expect_null(strstr(output, "not shown"));
}
