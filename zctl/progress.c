/* SPDX-License-Identifier: Apache-2.0 */
/* What takes long: a bar, the user's wish that it end, and complaints, which end the bar's line. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/text.h"
#include "common/base/utf8.h"
#include "zctl/zctl.h"

static volatile sig_atomic_t is_cancelled;
static bool is_drawn; /* a bar, on a line that has not ended */

/* Oftener than this nobody sees a change, and a terminal may be slower than the disk. */
#define DRAW_EVERY_NS (100 * ZI_NS_PER_MS)

/* How fast it goes. */
static struct pace {
	uint64_t begun_ns, begun_bytes;
	uint64_t drawn_ns, drawn_bytes; /* when the bar was drawn last; 0: not yet */
	double bytes_per_s;             /* 0: not known yet */
} pace;

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

/* Hours, minutes and seconds of what is left at @bytes_per_s, rounded up. */
static void format_left(char *text, size_t capacity, uint64_t rest_bytes, double bytes_per_s)
{
	double seconds = (double)rest_bytes / bytes_per_s;
	unsigned long long whole = seconds < 3600000.0 ? (unsigned long long)seconds + 1 : 3600000;

	if (whole < 60)
		(void)snprintf(text, capacity, "%llu s left", whole);
	else if (whole < 3600)
		(void)snprintf(text, capacity, "%llu:%02llu min left", whole / 60, whole % 60);
	else
		(void)snprintf(text, capacity, "%llu:%02llu h left", whole / 3600, whole / 60 % 60);
}

/* The rate of late: of the last second or so, so that the time left follows what the disk does. */
static void measure(uint64_t done_bytes, uint64_t now_ns)
{
	double seconds = (double)(now_ns - pace.drawn_ns) * 1e-9;
	double rate = (double)(done_bytes - pace.drawn_bytes) / seconds;
	double share = seconds < 1.0 ? seconds : 1.0;

	pace.bytes_per_s = pace.bytes_per_s > 0.0
	                           ? pace.bytes_per_s + share * (rate - pace.bytes_per_s)
	                           : rate;
	pace.drawn_ns = now_ns;
	pace.drawn_bytes = done_bytes;
}

void zctl_show_progress(const char *label, uint64_t done_bytes, uint64_t total_bytes)
{
	uint64_t percent = total_bytes ? 100 * done_bytes / total_bytes : 0;
	uint64_t now_ns = zi_clock_now_ns();
	bool is_first = !pace.drawn_ns, is_last = done_bytes >= total_bytes;
	char bar[26], left[40] = "";

	if (!is_first && !is_last && now_ns - pace.drawn_ns < DRAW_EVERY_NS)
		return;
	if (is_first)
		pace = (struct pace){ .begun_ns = now_ns - 1,
			              .drawn_ns = now_ns,
			              .begun_bytes = done_bytes,
			              .drawn_bytes = done_bytes };
	else if (!is_last)
		measure(done_bytes, now_ns);
	for (uint64_t i = 0; i < sizeof bar - 1; i++)
		bar[i] = i < percent / 4 ? '#' : '.';
	bar[sizeof bar - 1] = '\0';
	if (pace.bytes_per_s > 0.0)
		format_left(left, sizeof left, total_bytes - done_bytes, pace.bytes_per_s);
	/* In the end the rate of all of it. The former figures may have been longer: the rest of
	 * the line is cleared. */
	fprintf(stderr, "\r%s [%s] %3llu %%  %s of %s", label, bar, (unsigned long long)percent,
	        zi_format_bytes(done_bytes).chars, zi_format_bytes(total_bytes).chars);
	if (is_last)
		fprintf(stderr, "  %s/s",
		        zi_format_bytes((uint64_t)((double)(done_bytes - pace.begun_bytes) * 1e9 /
		                                   (double)(now_ns - pace.begun_ns)))
		                .chars);
	else if (left[0])
		fprintf(stderr, "  %s/s  %s", zi_format_bytes((uint64_t)pace.bytes_per_s).chars,
		        left);
	fputs("\033[K", stderr);
	is_drawn = !is_last;
	if (is_last) {
		fputc('\n', stderr);
		pace = (struct pace){ 0 };
	}
}

void zctl_complain(const char *format, ...)
{
	char chars[4096]; /* What files and other users call things must not drive a terminal. */
	va_list arguments;

	if (is_drawn)
		fputc('\n', stderr);
	is_drawn = false;
	fputs("zctl: ", stderr);
	va_start(arguments, format);
	(void)vsnprintf(chars, sizeof(chars), format, arguments);
	va_end(arguments);
	zi_utf8_clean(chars);
	fprintf(stderr, "%s\n", chars);
}
