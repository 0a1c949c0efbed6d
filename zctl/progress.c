/* SPDX-License-Identifier: Apache-2.0 */
/* What takes long: a bar, and the user's wish that it end. */
#include <signal.h>
#include <stdio.h>

#include "common/base/text.h"
#include "zctl/zctl.h"

static volatile sig_atomic_t is_cancelled;

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
	fprintf(stderr, "\r%s [%s] %3llu %%  %s of %s ", label, bar, (unsigned long long)percent,
	        zi_format_bytes(done_bytes).chars, zi_format_bytes(total_bytes).chars);
	if (done_bytes >= total_bytes)
		fputc('\n', stderr);
}
