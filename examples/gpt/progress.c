/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line (progress.h). */
#include "examples/gpt/progress.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

/* Of the line, in its order. */
enum part {
	PART_STEP,
	PART_LOSS,
	PART_NORM,
	PART_LR,
	PART_RATE,
	PART_TIMES,
	PART_ETA,
	_PART_COUNT
};

#define PART_BYTES 64u

/* What a line leaves out first when it is too long. */
static const enum part dispensable[] = { PART_LR, PART_NORM, PART_RATE, PART_ETA };

/* The columns of the terminal @fd, within the limits; the limit where it is none. */
unsigned gpt_progress_columns(int fd)
{
	struct winsize size = { 0 };

	if (ioctl(fd, TIOCGWINSZ, &size) || size.ws_col == 0 ||
	    size.ws_col >= GPT_PROGRESS_COLUMNS_MAX)
		return GPT_PROGRESS_COLUMNS_MAX;
	return GPT_PROGRESS_COLUMNS_MIN;
}

static int digit_count(uint64_t number)
{
	return snprintf(NULL, 0, "%" PRIu64, number);
}

/* "598 ms: compute 400 wait 198". Both are rounded before they are added, so that they add up as a
 * reader adds them. */
static void show_times(const struct gpt_progress *progress, char text[static PART_BYTES])
{
	double loop = (double)progress->loop_ns / (double)progress->window_count;
	double compute = (double)progress->compute_ns / (double)progress->window_count;
	bool is_long = loop >= 1e9;
	double unit = is_long ? 1e9 : 1e6;
	int places = loop / unit >= 100 ? 0 : loop / unit >= 10 ? 1 : 2;
	double grain = pow(10, places);
	double compute_shown = round(compute / unit * grain) / grain;
	double wait_shown = round((loop - compute) / unit * grain) / grain;

	(void)snprintf(text, PART_BYTES, "  %.*f %s: compute %.*f wait %.*f", places,
	               compute_shown + wait_shown, is_long ? "s" : "ms", places, compute_shown,
	               places, wait_shown);
}

/* "  ETA 3m20s"; nothing behind the last step. */
static void show_eta(const struct gpt_progress *progress, char text[static PART_BYTES])
{
	uint64_t left =
		progress->step_count > progress->step ? progress->step_count - progress->step : 0;
	double seconds =
		(double)left * (double)progress->loop_ns / (double)progress->window_count / 1e9;
	uint64_t s = seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 1000000000u;

	if (!left)
		text[0] = '\0';
	else if (s < 60)
		(void)snprintf(text, PART_BYTES, "  ETA %" PRIu64 "s", s);
	else if (s < 3600)
		(void)snprintf(text, PART_BYTES, "  ETA %" PRIu64 "m%02" PRIu64 "s", s / 60,
		               s % 60);
	else if (s < 86400)
		(void)snprintf(text, PART_BYTES, "  ETA %" PRIu64 "h%02" PRIu64 "m", s / 3600,
		               s / 60 % 60);
	else
		(void)snprintf(text, PART_BYTES, "  ETA %" PRIu64 "d%02" PRIu64 "h", s / 86400,
		               s / 3600 % 24);
}

static size_t line_bytes(char (*parts)[PART_BYTES])
{
	size_t bytes = 0;

	for (enum part part = 0; part < _PART_COUNT; part++)
		bytes += strlen(parts[part]);
	return bytes;
}

/**
 * gpt_progress_line() - one line, without its end
 * @progress: what is shown
 * @column_count: the line has at most so many, as long as step, loss and times fit
 * @text: (@capacity,) bytes of ASCII
 * @capacity: of @text; 256 are enough
 */
void gpt_progress_line(const struct gpt_progress *progress, unsigned column_count, char *text,
                       size_t capacity)
{
	char parts[_PART_COUNT][PART_BYTES];
	double seconds = (double)progress->loop_ns / 1e9;
	size_t used = 0;

	assert(progress->window_count > 0);
	assert(capacity > 0);
	(void)snprintf(parts[PART_STEP], PART_BYTES, "step %*" PRIu64 "/%" PRIu64,
	               digit_count(progress->step_count), progress->step, progress->step_count);
	(void)snprintf(parts[PART_LOSS], PART_BYTES, "  loss %.4f", progress->loss);
	(void)snprintf(parts[PART_NORM], PART_BYTES, " norm %.3g", progress->norm);
	(void)snprintf(parts[PART_LR], PART_BYTES, " lr %.3g", progress->lr);
	(void)snprintf(parts[PART_RATE], PART_BYTES, "  %.0f tok/s",
	               seconds > 0 ? (double)progress->token_count / seconds : 0.0);
	show_times(progress, parts[PART_TIMES]);
	show_eta(progress, parts[PART_ETA]);
	for (size_t i = 0;
	     i < sizeof(dispensable) / sizeof(dispensable[0]) && line_bytes(parts) > column_count;
	     i++)
		parts[dispensable[i]][0] = '\0';
	for (enum part part = 0; part < _PART_COUNT; part++) {
		(void)snprintf(text + used, capacity - used, "%s", parts[part]);
		used += strlen(text + used);
	}
}
