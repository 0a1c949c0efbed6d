/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a test loses is found, and what Criterion's runner loses fails nobody. Method: a child
 * of a test that loses memory does not end with 0; two tests whose limits end in another order than
 * they do, for which the runner loses an entry of its list. Both say something only under
 * AddressSanitizer.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The compiler must not see that it is lost. */
static void *volatile kept;

static void lose(void)
{
	kept = malloc(48);
	kept = NULL;
}

Test(leaks, of_what_is_tested_are_found, .timeout = 120)
{
	pid_t child = fork();
	int status;

	cr_assert_geq(child, 0);
	if (!child) {
		(void)close(2); /* The report is not ours to show. */
		lose();
		exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
#ifdef __SANITIZE_ADDRESS__
	cr_assert_neq(status, 0);
#else
	cr_assert_eq(status, 0);
#endif
}

/* Its limit is later than that of the one after it, which is what the runner's list cannot do. */
Test(leaks, of_the_runner_fail_nobody, .timeout = 400)
{
	cr_assert(getenv("BXFI_MAP"), "how the guard tells a test from the runner");
}
