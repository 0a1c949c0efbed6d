/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: how ranks ended is told and weighed as the documents say (docs/LAUNCH.md). Method: statuses
 * and error files that the test makes up. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/guard/guard.h"
#include "zctl/launch/report.h"

#define EXITED(code) ((code) << 8)

TestSuite(report, .timeout = 20);

Test(report, a_killed_rank_is_rather_the_cause_than_one_left_alone)
{
	/* Gravest first; equal ones in a row. */
	static const int statuses[][2] = { { SIGKILL, SIGSEGV },
		                           { EXITED(1), EXITED(2) },
		                           { EXITED(75), EXITED(75) },
		                           { EXITED(0), EXITED(0) } };
	const size_t count = sizeof(statuses) / sizeof(statuses[0]);

	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < count; j++)
			for (int k = 0; k < 4; k++)
				cr_expect_eq(launch_report_is_worse(statuses[i][k / 2],
				                                    statuses[j][k % 2]),
				             i < j, "%zu %zu", i, j);
}

Test(report, codes_are_those_of_shells)
{
	cr_expect_eq(launch_report_code(EXITED(0)), 0);
	cr_expect_eq(launch_report_code(EXITED(255)), 255);
	cr_expect_eq(launch_report_code(SIGTERM), 143);
}

Test(report, an_end_is_told_with_rank_process_and_time)
{
	static struct launch_rank rank;
	struct zi_text text;

	rank = (struct launch_rank){ .index = 7, .last_pid = 99, .status = EXITED(3) };
	rank.ended_ns = 90 * ZI_NS_PER_S + 260 * ZI_NS_PER_MS;
	launch_report_end(&rank, &text);
	cr_expect_str_eq(text.chars, "rank 7 (pid 99) ended with code 3 after 90.3 s");
	rank.status = SIGSEGV | 0x80; /* and wrote a core file */
	launch_report_end(&rank, &text);
	cr_expect_str_eq(text.chars, "rank 7 (pid 99) was killed by signal 11 (Segmentation fault) "
	                             "after 90.3 s");
}

/* The error file of rank 0, and what is made of it; NULL: nothing. */
static void expect_message(const char *file_words, const char *message)
{
	struct launch_logs logs = { 0 };
	char path[PATH_MAX];
	struct zi_text text;
	FILE *file;

	cr_assert_not_null(mkdtemp(guard_path(logs.directory, sizeof(logs.directory), "report")));
	cr_assert_eq(launch_logs_make(&logs, 0, 1, &text), 0);
	if (file_words) {
		file = fopen(launch_logs_path(&logs, 0, 0, "error.json", path), "we");
		cr_assert_not_null(file);
		(void)fputs(file_words, file);
		(void)fclose(file);
	}
	cr_expect_eq(launch_report_error(&logs, 0, 0, &text), message != NULL, "%s", file_words);
	if (message)
		cr_expect_str_eq(text.chars, message);
	launch_logs_close(&logs);
	cr_expect_str_eq(logs.directory, "");
}

Test(report, an_error_file_may_hold_anything)
{
	struct launch_logs none = { 0 };
	struct zi_text text;

	expect_message("{\"message\": {\"message\": \"out of data\"}}", "out of data");
	expect_message("{\"message\": \"plain\"}", "plain");
	expect_message("{\"message\": {\"message\": 5}}", NULL);
	expect_message("{\"message\": [1]}", NULL);
	expect_message("[]", NULL);
	expect_message("{\"message\": {\"mess", NULL);
	expect_message("", NULL);
	expect_message(NULL, NULL);
	cr_expect_not(launch_report_error(&none, 0, 0, &text));
}
