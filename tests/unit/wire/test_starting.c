/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a daemon that is starting is known to be, and one that was killed is not taken for it.
 * Method: the file beside a socket's path, of this process and of a child that is killed. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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

Test(starting, a_path_that_is_none_has_no_file)
{
	char long_path[PATH_MAX];

	memset(long_path, 'a', sizeof(long_path));
	long_path[sizeof(long_path) - 1] = '\0';
	cr_expect_eq(zi_starting_begin(""), -1);
	cr_expect_eq(zi_starting_pid(""), 0);
	cr_expect_eq(zi_starting_begin(long_path), -1);
	cr_expect_eq(zi_starting_pid(long_path), 0);
	cr_expect_eq(zi_starting_end(long_path, -1), -1);
	cr_expect_eq(access(".starting", F_OK), -1, "a file beside no socket");
}

/* A device, a folder and a link are no file of a daemon. */
Test(starting, only_a_file_is_read)
{
	cr_assert_eq(mkdir(beside, 0700), 0);
	cr_expect_eq(zi_starting_pid(path), 0);
	cr_expect_eq(zi_starting_begin(path), -1);
	cr_assert_eq(rmdir(beside), 0);
	cr_assert_eq(symlink("/dev/null", beside), 0);
	cr_expect_eq(zi_starting_pid(path), 0);
	cr_expect_eq(zi_starting_begin(path), -1);
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

/* As a daemon leaves it that was killed. */
static void leave_file(void)
{
	int fd = open(beside, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	cr_assert_eq(write(fd, "1\n", 2), 2);
	(void)zi_close(fd);
}

Test(starting, locks_of_a_reader_keep_no_daemon_from_its_own)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	int reader, fd;

	leave_file();
	reader = open(beside, O_RDONLY | O_CLOEXEC);
	cr_assert_eq(flock(reader, LOCK_EX | LOCK_NB), 0);
	cr_assert_eq(fcntl(reader, F_OFD_SETLK, &lock), 0);
	cr_expect_eq(zi_starting_pid(path), 0, "nobody is starting");
	fd = zi_starting_begin(path);
	cr_assert_geq(fd, 0, "a reader's lock is in the way");
	cr_expect_eq(zi_starting_pid(path), getpid());
	(void)zi_close(reader);
	reader = open(beside, O_RDONLY | O_CLOEXEC);
	cr_expect_eq(fcntl(reader, F_OFD_SETLK, &lock), -1, "it is locked");
	cr_expect_eq(zi_starting_begin(path), -1, "one at a time");
	(void)zi_close(reader);
	(void)zi_starting_end(path, fd);
}

/* In a folder that all may write to, anybody can say that a daemon starts. */
Test(starting, a_file_of_another_user_is_not_believed)
{
	int fd;

	if (geteuid() != 0)
		cr_skip_test("needs root, to give a file away");
	fd = zi_starting_begin(path);
	cr_assert_eq(fchown(fd, 12345, 12345), 0);
	cr_expect_eq(zi_starting_pid(path), 0, "neither root's nor the folder's owner's");
	cr_assert_eq(chown(folder, 12345, 12345), 0);
	cr_expect_eq(zi_starting_pid(path), getpid(), "the folder's owner's");
	(void)zi_starting_end(path, fd);
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
