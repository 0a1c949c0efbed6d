/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the progress line fits its columns, its times add up, and it says how long the run will
 * take. Method: tables of steps. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "examples/gpt/progress.h"

#define MS 1000000ull

static const struct gpt_progress usual = { .step = 10,
	                                   .step_count = 300,
	                                   .loss = 4.23119,
	                                   .norm = 1.2345,
	                                   .lr = 0.00187,
	                                   .window_count = 10,
	                                   .loop_ns = 5977 * MS,
	                                   .compute_ns = 4002 * MS,
	                                   .token_count = 20480 };

static const char *line_of(const struct gpt_progress *progress, unsigned columns)
{
	static char text[256];

	gpt_progress_line(progress, columns, text, sizeof(text));
	return text;
}

Test(progress, a_line_has_means_that_add_up_and_an_end)
{
	cr_expect_str_eq(line_of(&usual, 100),
	                 "step  10/300  loss 4.2312 norm 1.23 lr 0.00187  3426 tok/s  "
	                 "598 ms: compute 400 wait 198  ETA 2m53s");
	cr_expect_str_eq(line_of(&usual, 80), "step  10/300  loss 4.2312  3426 tok/s  598 ms: "
	                                      "compute 400 wait 198  ETA 2m53s");
	cr_expect_str_eq(line_of(&usual, 20),
	                 "step  10/300  loss 4.2312  598 ms: compute 400 wait 198");
}

Test(progress, every_line_fits_and_adds_up)
{
	for (unsigned i = 0; i < 2000; i++) {
		struct gpt_progress progress = usual;
		unsigned columns = i % 2 ? 80 : 100;
		double total = 0, compute = 0, wait = 0;
		const char *line, *times;

		progress.step = 1 + (uint64_t)rand() % 100000000;
		progress.step_count = progress.step + (uint64_t)rand() % 100000;
		progress.norm = 1e-7 * rand();
		progress.lr = 1e-12 * rand();
		progress.window_count = 1 + (uint64_t)rand() % 100;
		progress.loop_ns = 1 + ((uint64_t)rand() << (rand() % 14));
		progress.compute_ns = (uint64_t)((double)progress.loop_ns * rand() / RAND_MAX);
		line = line_of(&progress, columns);
		cr_assert_leq(strlen(line), columns, "%s", line);
		times = strstr(line, "s: compute ");
		cr_assert_not_null(times, "%s", line);
		cr_assert_eq(sscanf(times, "s: compute %lf wait %lf", &compute, &wait), 2);
		while (times[-1] != ' ' || times[-2] < '0')
			times--;
		for (times--; times[-1] != ' ';)
			times--;
		total = strtod(times, NULL);
		cr_assert_float_eq(total, compute + wait, 1e-6 * (total + 1), "%s", line);
	}
}

Test(progress, the_time_left_is_shown_in_two_units)
{
	static const struct {
		uint64_t left, step_ms;
		const char *eta;
	} cases[] = {
		{ 1, 400, "  ETA 0s" },         { 59, 1000, "  ETA 59s" },
		{ 60, 1000, "  ETA 1m00s" },    { 3599, 1000, "  ETA 59m59s" },
		{ 3600, 1000, "  ETA 1h00m" },  { 86399, 1000, "  ETA 23h59m" },
		{ 86400, 1000, "  ETA 1d00h" }, { 1000000, 10000, "  ETA 115d17h" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpt_progress progress = usual;

		progress.step_count = progress.step + cases[i].left;
		progress.window_count = 1;
		progress.loop_ns = cases[i].step_ms * MS;
		progress.compute_ns = 0;
		cr_expect(strstr(line_of(&progress, 100), cases[i].eta), "%s",
		          line_of(&progress, 100));
	}
}

Test(progress, the_last_line_has_no_time_left)
{
	struct gpt_progress progress = usual;

	progress.step = progress.step_count;
	cr_expect_null(strstr(line_of(&progress, 100), "ETA"));
}

Test(progress, a_narrow_terminal_gets_80_columns)
{
	static const unsigned cases[][2] = {
		{ 0, 100 }, { 60, 80 }, { 99, 80 }, { 100, 100 }, { 200, 100 }
	};
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	cr_expect_eq(gpt_progress_columns(null_fd), 100);
	(void)close(null_fd);
	if (fd < 0)
		cr_skip_test("no pseudo-terminal can be opened");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct winsize size = { .ws_col = (unsigned short)cases[i][0], .ws_row = 24 };

		cr_assert_eq(ioctl(fd, TIOCSWINSZ, &size), 0);
		cr_expect_eq(gpt_progress_columns(fd), cases[i][1], "%u", cases[i][0]);
	}
	(void)close(fd);
}
