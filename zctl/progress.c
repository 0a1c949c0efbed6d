/* SPDX-License-Identifier: Apache-2.0 */
/* What takes long: a bar, the user's wish that it end, and complaints, which end the bar's line. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/base/text.h"
#include "zctl/zctl.h"

static volatile sig_atomic_t is_cancelled;
static bool is_drawn; /* a bar, on a line that has not ended */

static void cancel(int number)
{
	(void)number;
	is_cancelled = 1;
}

void zctl_catch_cancel(void)
{
	(void)signal(SIGINT, cancel);
	(void)signal(SIGTERM, cancel);
}

bool zctl_is_cancelled(void)
{
	return is_cancelled;
}

void zctl_show_progress(const char *label, uint64_t done_bytes, uint64_t total_bytes)
{
	uint64_t percent = total_bytes ? 100 * done_bytes / total_bytes : 0;
	char bar[26];

	for (uint64_t i = 0; i < sizeof bar - 1; i++)
		bar[i] = i < percent / 4 ? '#' : '.';
	bar[sizeof bar - 1] = '\0';
	/* The former figures may have been longer: the rest of the line is cleared. */
	fprintf(stderr, "\r%s [%s] %3llu %%  %s of %s\033[K", label, bar,
	        (unsigned long long)percent, zi_format_bytes(done_bytes).chars,
	        zi_format_bytes(total_bytes).chars);
	is_drawn = done_bytes < total_bytes;
	if (!is_drawn)
		fputc('\n', stderr);
}

void zctl_complain(const char *format, ...)
{
	va_list arguments;

	if (is_drawn)
		fputc('\n', stderr);
	is_drawn = false;
	fputs("zctl: ", stderr);
	va_start(arguments, format);
	(void)vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}
