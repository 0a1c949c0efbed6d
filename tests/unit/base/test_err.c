/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an error keeps its value on the way up and leaves a trace that names each hand it passed.
 * Method: three small functions in a row; the trace is read back as text. */
#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"

static int lowest(int r)
{
	if (r < 0)
		return err_origin(r);
	return r;
}

static int middle(int r)
{
	return err_trace(lowest(r));
}

static int highest(int r)
{
	return err_fold(middle(r));
}

static unsigned count_of(const char *text, const char *word)
{
	unsigned count = 0;

	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
		count++;
	return count;
}

Test(err, success_passes_and_leaves_no_trace)
{
	cr_assert_eq(highest(0), 0);
	cr_assert_str_eq(zi_err_backtrace(), "");
}

Test(err, failure_keeps_its_value_and_names_its_way_from_the_origin)
{
	const char *trace;

	cr_assert_eq(highest(-ENOSPC), -ENOSPC);
	trace = zi_err_backtrace();
	cr_assert_eq(count_of(trace, "-ENOSPC"), 3, "%s", trace);
	cr_assert_eq(count_of(trace, " <- "), 2, "%s", trace);
	cr_assert(strstr(trace, "test_err.c:"));
	cr_assert_lt(strstr(trace, "lowest"), strstr(trace, "middle"));
	cr_assert_lt(strstr(trace, "middle"), strstr(trace, "highest"));
}

Test(err, new_origin_begins_a_new_trace)
{
	(void)highest(-ENOSPC);
	(void)highest(-EIO);
	cr_assert_eq(count_of(zi_err_backtrace(), "ENOSPC"), 0);
	cr_assert_eq(count_of(zi_err_backtrace(), "-EIO"), 3);
}

Test(err, trace_of_another_value_is_not_appended_to_a_stale_one)
{
	(void)lowest(-ENOSPC);
	cr_assert_eq(err_trace(-EPERM), -EPERM);
	cr_assert_eq(count_of(zi_err_backtrace(), "ENOSPC"), 0);
	cr_assert_eq(count_of(zi_err_backtrace(), "-EPERM"), 1);
}

Test(err, unhandled_condition_folds_into_notrecoverable)
{
	cr_assert_eq(err_fold(3), -ENOTRECOVERABLE);
	cr_assert_eq(count_of(zi_err_backtrace(), "-ENOTRECOVERABLE"), 1);
}

Test(err, long_trace_keeps_the_origin_and_counts_the_rest)
{
	int r = lowest(-EIO);

	for (int i = 0; i < 20; i++)
		r = err_trace(r);
	cr_assert_eq(r, -EIO);
	cr_assert(strstr(zi_err_backtrace(), "lowest"));
	cr_assert(strstr(zi_err_backtrace(), " <- 5 more"), "%s", zi_err_backtrace());
}

Test(err, text_longer_than_its_buffer_is_cut)
{
	char name[400];
	int r = lowest(-EIO);

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (int i = 0; i < 12; i++)
		r = zi_err_trace(r, name, i, "function");
	cr_assert_leq(strlen(zi_err_backtrace()), 2047);
	cr_assert_gt(strlen(zi_err_backtrace()), 1600);
}

static void *other_thread(void *arg)
{
	snprintf(arg, 64, "%s", zi_err_backtrace());
	(void)lowest(-EPERM);
	return NULL;
}

Test(err, each_thread_has_its_own_trace)
{
	char seen[64] = "unset";
	pthread_t thread;

	(void)lowest(-EIO);
	cr_assert_eq(pthread_create(&thread, NULL, other_thread, seen), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_str_eq(seen, "");
	cr_assert_eq(count_of(zi_err_backtrace(), "-EIO"), 1);
}

Test(err, names_take_either_sign_and_unknown_is_marked)
{
	cr_assert_str_eq(zi_err_name(28), "ENOSPC");
	cr_assert_str_eq(zi_err_name(-28), "ENOSPC");
	cr_assert_str_eq(zi_err_name(99999), "E?");
	cr_assert_str_eq(zi_err_name(INT_MIN), "E?");
}

#ifndef NDEBUG
Test(err, raising_a_positive_value_asserts, .signal = SIGABRT)
{
	(void)err_origin(5);
}

Test(err, tracing_a_condition_asserts, .signal = SIGABRT)
{
	(void)err_trace(5);
}
#endif
