/* SPDX-License-Identifier: Apache-2.0 */
/* Standard output that may be closed or full (console.h). */
#include "examples/gpt/console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Before anything else is opened: a standard stream that is closed would give its number to the
 * next file, and lines would be printed into that one. Reads and writes fail as they did. */
void gpt_console_open(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* Whether nobody reads what is written: a pipe or a socket without its other end, or a stream that
 * was closed from the beginning. */
static bool is_reader_gone(void)
{
	struct pollfd output = { .fd = STDOUT_FILENO, .events = POLLOUT };
	int flags = fcntl(STDOUT_FILENO, F_GETFL);

	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
		return true;
	return poll(&output, 1, 0) > 0 && output.revents & (POLLERR | POLLNVAL);
}

/**
 * gpt_console_flush() - writes what was printed
 * @problem: what failed
 *
 * Return: 0; GPT_CONSOLE_E_CLOSED; a negative errno, also where an earlier write failed.
 */
int gpt_console_flush(struct gpt_problem *problem)
{
	int error;

	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	if (!errno) {
		clearerr(stdout); /* A line's end has met the error: meet it again. */
		(void)putchar('\n');
		(void)fflush(stdout);
	}
	error = errno ? errno : EIO;
	if (error == EPIPE || is_reader_gone())
		return GPT_CONSOLE_E_CLOSED;
	return gpt_problem_set(problem, -error, "writing to standard output failed: %s",
	                       strerror(error));
}

/**
 * gpt_console_end() - whether all lines of a training run were written
 * @problem: lines are lost
 *
 * Return: 0, also where nobody read them; -EIO.
 */
int gpt_console_end(struct gpt_problem *problem)
{
	if ((!fflush(stdout) && !ferror(stdout)) || is_reader_gone())
		return 0;
	return gpt_problem_set(problem, -EIO,
	                       "writing to standard output failed, and lines are lost; the "
	                       "training itself is complete and committed");
}
