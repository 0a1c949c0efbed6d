/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of an assert that does not hold (asserts.h).
 */
#include "tests/harness/asserts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void test_failed(const char *file, unsigned int line, char *text, const char *format, ...)
{
	struct criterion_assert_stats report = { .file = file, .line = line, .message = text };
	char *message = NULL;
	va_list arguments;

	va_start(arguments, format);
	/* Without memory for the test's message the assert's text is the message. */
	if (vasprintf(&message, format, arguments) < 0)
		message = NULL;
	va_end(arguments);
	if (message && message[1])
		report.message = message + 1;
	criterion_send_assert(&report);
	free(message);
	cr_asprintf_free(text);
}
