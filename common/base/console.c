/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/err.h"

/**
 * zi_console_open() - gives each closed standard stream a file on which reads and writes fail
 *
 * Otherwise the next file or socket takes the number of the closed stream, and text is printed into
 * it. Context: first in main(), before anything else is opened.
 */
void zi_console_open(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* Whether standard output is a pipe or a socket whose other end is closed. */
static bool is_reader_gone(void)
{
	struct pollfd output = { .fd = STDOUT_FILENO, .events = POLLOUT };
	int flags = fcntl(STDOUT_FILENO, F_GETFL);

	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
		return false;
	return poll(&output, 1, 0) > 0 && output.revents & POLLERR;
}

/**
 * zi_console_flush() - writes what was printed to standard output
 *
 * Return: 0; ZI_CONSOLE_E_CLOSED; a negative errno, also where an earlier write failed.
 */
int zi_console_flush(void)
{
	int error;

	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	if (!errno) {
		clearerr(stdout); /* An earlier write met the error: another one meets it again. */
		(void)putchar('\n');
		(void)fflush(stdout);
	}
	error = errno ? errno : EIO;
	if (error == EPIPE || is_reader_gone())
		return ZI_CONSOLE_E_CLOSED;
	return err_origin(-error);
}
