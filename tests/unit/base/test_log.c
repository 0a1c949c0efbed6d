/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a message is one line with the right head, whatever is in it, and limits hold. Method:
 * stderr is a pipe that the test reads back; JOURNAL_STREAM is set to that pipe or to another file.
 * (Criterion runs each test in a process of its own.) */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

static int capture_fd;
static int saved_stderr_fd;

static void capture(void)
{
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	saved_stderr_fd = dup(STDERR_FILENO);
	cr_assert_eq(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
	close(fds[1]);
	capture_fd = fds[0];
}

/* Ends the capture. Return: what was written, valid until the next call. */
static const char *captured(void)
{
	static char text[8192];
	size_t used_bytes = 0;
	ssize_t done;

	dup2(saved_stderr_fd, STDERR_FILENO); /* Closes the last writing end of the pipe. */
	while ((done = read(capture_fd, text + used_bytes, sizeof(text) - 1 - used_bytes)) > 0)
		used_bytes += (size_t)done;
	text[used_bytes] = '\0';
	return text;
}

/* @inode_offset: 0 for the captured stderr itself. */
static void set_journal(unsigned inode_offset)
{
	struct stat status;
	char value[64];

	cr_assert_eq(fstat(STDERR_FILENO, &status), 0);
	snprintf(value, sizeof(value), "%lu:%lu", (unsigned long)status.st_dev,
	         (unsigned long)status.st_ino + inode_offset);
	cr_assert_eq(setenv("JOURNAL_STREAM", value, 1), 0);
}

TestSuite(log, .init = capture);

Test(log, levels_are_words_outside_the_journal)
{
	unsetenv("JOURNAL_STREAM");
	zi_log_set_level(ZI_LOG_DEBUG);
	log_error("a %d", 1);
	log_warning("b");
	log_info("c");
	log_debug("d");
	cr_assert_str_eq(captured(), "error: a 1\nwarning: b\nc\ndebug: d\n");
}

Test(log, levels_are_priorities_in_the_journal)
{
	set_journal(0);
	log_error("a");
	log_info("b");
	cr_assert_str_eq(captured(), "<3>a\n<6>b\n");
}

Test(log, inherited_journal_variable_of_another_file_is_not_believed)
{
	set_journal(1);
	log_error("a");
	cr_assert_str_eq(captured(), "error: a\n");
}

Test(log, broken_journal_variable_is_not_believed)
{
	setenv("JOURNAL_STREAM", "garbage", 1);
	log_error("a");
	cr_assert_str_eq(captured(), "error: a\n");
}

Test(log, less_urgent_messages_are_dropped)
{
	zi_log_set_level(ZI_LOG_WARNING);
	cr_assert_eq(zi_log_level(), ZI_LOG_WARNING);
	log_info("a");
	log_debug("b");
	cr_assert_eq(log_warning_errno(-EIO, "c"), -EIO);
	zi_log_set_level(ZI_LOG_ERROR);
	cr_assert_eq(log_warning_errno(-EIO, "d"), -EIO, "the error comes back all the same");
	cr_assert_str_eq(captured(), "warning: c: Input/output error (EIO)\n");
}

Test(log, errno_message_returns_the_negative_errno)
{
	cr_assert_eq(log_error_errno(-ENOSPC, "Writing %s failed", "x"), -ENOSPC);
	cr_assert_eq(log_error_errno(ENOSPC, "again"), -ENOSPC);
	cr_assert_eq(log_error_errno(-99999, "odd"), -99999);
	cr_assert_str_eq(captured(), "error: Writing x failed: No space left on device (ENOSPC)\n"
	                             "error: again: No space left on device (ENOSPC)\n"
	                             "error: odd: unknown (E?)\n");
}

Test(log, errno_survives_logging)
{
	errno = EPERM;
	log_info("a");
	cr_assert_eq(errno, EPERM);
}

Test(log, control_characters_cannot_forge_a_line)
{
	log_info("name=%s", "x\n<0>forged\x1b[31m\x7f");
	cr_assert_str_eq(captured(), "name=x?<0>forged?[31m?\n");
}

Test(log, long_message_is_cut_to_one_line)
{
	char message[3000];
	const char *text;

	memset(message, 'x', sizeof(message) - 1);
	message[sizeof(message) - 1] = '\0';
	(void)log_error_errno(-EIO, "%s", message);
	text = captured();
	cr_assert_eq(strlen(text), 1024);
	cr_assert_eq(strchr(text, '\n'), text + 1023);
}

Test(log, limit_passes_a_burst_then_suppresses_then_says_how_many)
{
	struct zi_log_limit limit = { 0 };

	for (int i = 0; i < 3; i++)
		cr_assert(zi_log_limit_pass(&limit, 3, 3600 * ZI_NS_PER_S));
	for (int i = 0; i < 5; i++)
		cr_assert_not(zi_log_limit_pass(&limit, 3, 3600 * ZI_NS_PER_S));
	limit.refilled_ns -= 3601 * ZI_NS_PER_S; /* An hour later: one token. */
	cr_assert(zi_log_limit_pass(&limit, 3, 3600 * ZI_NS_PER_S));
	cr_assert_not(zi_log_limit_pass(&limit, 3, 3600 * ZI_NS_PER_S), "only one came back");
	limit.refilled_ns -= 36000 * ZI_NS_PER_S; /* Long after: all of them, and not more. */
	for (int i = 0; i < 3; i++)
		cr_assert(zi_log_limit_pass(&limit, 3, 3600 * ZI_NS_PER_S));
	cr_assert_not(zi_log_limit_pass(&limit, 3, 3600 * ZI_NS_PER_S));
	cr_assert_str_eq(captured(), "warning: 5 messages of this kind were suppressed\n"
	                             "warning: 1 messages of this kind were suppressed\n");
}
