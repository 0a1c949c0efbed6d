/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where LeakSanitizer does not look: the process of Criterion that starts the tests, none of whose
 * code is ours. Its list of time limits (boxfort 0.1) loses entries as soon as two tests end in
 * another order than their limits, so that a slow or skipped test would fail a program all of
 * whose tests passed. Tests themselves are processes of their own and are looked at.
 */
#include <stdlib.h>

/* Weak: programs that are no tests of Criterion's are looked at whole. */
extern int criterion_run_all_tests(void *set) __attribute__((weak));
/* Visible to the sanitizer's library. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

/* Asked by LeakSanitizer at exit. boxfort gives each test $BXFI_MAP. */
int __lsan_is_turned_off(void)
{
	return criterion_run_all_tests && !getenv("BXFI_MAP");
}
