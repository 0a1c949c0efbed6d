/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into zinf-net under ThreadSanitizer (net.mk): the daemon starts it with a plain
 * environment, so what the sanitizer is to do lies in the program. A report ends it with 66, which
 * breaks the test's groups, and lies in TSAN_NET_LOG.<pid>. That threads are left is no finding:
 * it ends by _exit() wherever it is (worker.c).
 */

/* By a name that the sanitizer knows. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "halt_on_error=1:exitcode=66:report_thread_leaks=0:suppressions=" TSAN_NET_SUPP
	       ":log_path=" TSAN_NET_LOG;
}
