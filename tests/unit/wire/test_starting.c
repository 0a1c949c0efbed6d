/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a daemon that is starting is known to be, and one that was killed is not taken for it.
 * Method: the file beside a socket's path, of this process and of a child that is killed. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "common/wire/starting.h"
#include "tests/guard/guard.h"

static char folder[128], path[160], beside[192], other[192];

static void setup(void)
{
	cr_assert_not_null(mkdtemp(guard_path(folder, sizeof(folder), "starting")));
	(void)snprintf(path, sizeof(path), "%s/zinfd.sock", folder);
	(void)snprintf(beside, sizeof(beside), "%s.starting", path);
	(void)snprintf(other, sizeof(other), "%s/other", folder);
}

static void teardown(void)
{
	(void)unlink(beside);
	(void)unlink(other);
	cr_assert_eq(rmdir(folder), 0, "something was left");
}

TestSuite(starting, .init = setup, .fini = teardown);

Test(starting, a_daemon_is_known_from_its_beginning_to_its_end)
{
	int fd;

	cr_expect_eq(zi_starting_pid(path), 0);
	fd = zi_starting_begin(path);
	cr_assert_geq(fd, 0);
	cr_expect_eq(zi_starting_pid(path), getpid());
	cr_expect_eq(zi_starting_begin(path), -1, "one at a time");
	cr_expect_eq(zi_starting_pid(path), getpid());
	cr_expect_eq(zi_starting_end(path, fd), -1);
	cr_expect_eq(zi_starting_pid(path), 0);
	cr_expect_eq(access(beside, F_OK), -1);
	cr_expect_eq(zi_starting_end(path, -1), -1);
	cr_expect_eq(zi_starting_begin("/nonexistent/zinfd.sock"), -1);
}

Test(starting, one_that_was_killed_is_not)
{
	int fds[2], fd;
	pid_t child;
	char byte;

	cr_assert_eq(pipe(fds), 0);
	child = fork();
	if (!child) {
		if (zi_starting_begin(path) < 0 || write(fds[1], "", 1) != 1)
			_exit(1);
		for (;;)
			(void)pause();
	}
	cr_assert_eq(read(fds[0], &byte, 1), 1);
	cr_expect_eq(zi_starting_pid(path), child);
	cr_assert_eq(kill(child, SIGKILL), 0);
	cr_assert_eq(waitpid(child, NULL, 0), child);
	cr_expect_eq(zi_starting_pid(path), 0);
	fd = zi_starting_begin(path);
	cr_expect_eq(zi_starting_pid(path), getpid(), "its file is used again");
	(void)zi_starting_end(path, fd);
	(void)zi_close(fds[0]);
	(void)zi_close(fds[1]);
}

/* A second name, or a link, of a file that somebody else wants to lose. */
Test(starting, a_file_of_another_name_is_not_cut)
{
	int fd = open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	cr_assert_eq(write(fd, "words", 5), 5);
	cr_assert_eq(link(other, beside), 0);
	cr_expect_eq(zi_starting_begin(path), -1);
	cr_expect_eq(lseek(fd, 0, SEEK_END), 5);
	cr_assert_eq(unlink(beside), 0);
	cr_assert_eq(symlink(other, beside), 0);
	cr_expect_eq(zi_starting_begin(path), -1);
	cr_expect_eq(lseek(fd, 0, SEEK_END), 5);
	(void)zi_close(fd);
}
