/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the helpers on file descriptors transfer whole runs and name what went wrong. Method:
 * memfds, pipes and children; RLIMIT_FSIZE makes a write fall short. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "tests/guard/guard.h"

static int memfd_with(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	return fd;
}

Test(fd, close_answers_minus_one_and_keeps_errno)
{
	int fd = memfd_with("");

	errno = ENOSPC;
	cr_assert_eq(zi_close(fd), -1);
	cr_assert_eq(errno, ENOSPC);
	cr_assert_eq(fcntl(fd, F_GETFD), -1, "still open");
	cr_assert_eq(zi_close(-1), -1);
}

#ifndef NDEBUG
Test(fd, closing_twice_asserts, .signal = SIGABRT)
{
	int fd = memfd_with("");

	(void)zi_close(fd);
	(void)zi_close(fd);
}
#endif

Test(fd, owned_local_is_closed_unless_stolen)
{
	int closed = -1;
	int stolen = -1;

	{
		_cleanup_(zi_closep) int a = memfd_with("");
		_cleanup_(zi_closep) int b = memfd_with("");

		closed = a;
		stolen = zi_steal_fd(b);
		cr_assert_eq(b, -1);
	}
	cr_assert_eq(fcntl(closed, F_GETFD), -1);
	cr_assert_geq(fcntl(stolen, F_GETFD), 0);
	stolen = zi_close(stolen);
}

Test(fd, nonblock_is_set_and_cleared)
{
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	cr_assert_eq(zi_fd_set_nonblock(fds[0], true), 0);
	cr_assert(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
	cr_assert_eq(zi_fd_set_nonblock(fds[0], true), 0, "again is fine");
	cr_assert_eq(zi_fd_set_nonblock(fds[0], false), 0);
	cr_assert_not(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
	cr_assert_eq(zi_fd_set_nonblock(-1, true), -EBADF);
}

Test(fd, pidfd_becomes_readable_when_the_process_ends)
{
	struct pollfd wait = { .events = POLLIN };
	int fds[2];
	char byte;
	pid_t pid;

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		close(fds[1]);
		_exit(read(fds[0], &byte, 1) == 0 ? 0 : 1); /* Until the parent closes its end. */
	}
	cr_assert_eq(zi_pidfd_open(pid, &wait.fd), 0);
	cr_assert_eq(fcntl(wait.fd, F_GETFD), FD_CLOEXEC);
	cr_assert_eq(poll(&wait, 1, 0), 0, "it still runs");
	close(fds[1]);
	cr_assert_eq(poll(&wait, 1, 10000), 1);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

/* A child that ends as told: its pid; @ret_fd is readable. */
static pid_t ended_child(int code, int signal, int *ret_fd)
{
	struct pollfd ready = { .events = POLLIN };
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		if (signal)
			(void)kill(getpid(), signal);
		_exit(code);
	}
	cr_assert_eq(zi_pidfd_open(pid, ret_fd), 0);
	ready.fd = *ret_fd;
	cr_assert_eq(poll(&ready, 1, -1), 1);
	return pid;
}

Test(fd, how_a_process_ended_is_known_before_and_after_its_parent_waited)
{
	const struct {
		int code, signal;
	} cases[] = { { 3, 0 }, { 0, SIGKILL }, { 0, SIGTERM }, { 0, 0 } };

	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		_cleanup_(zi_closep) int fd = -1;
		int status = -1, waited = -1, after = -1;
		pid_t pid = ended_child(cases[i].code, cases[i].signal, &fd);
		int r;

		r = zi_pidfd_status(fd, pid, &status);
		cr_assert_eq(waitpid(pid, &waited, 0), pid);
		if (waited) {
			cr_assert_eq(r, 0);
			cr_expect_eq(status, waited);
		} else {
			cr_expect_eq(r, -EAGAIN, "what may be hidden is not told");
		}
		r = zi_pidfd_status(fd, pid, &after);
		if (r == -EAGAIN)
			cr_log_warn("this kernel forgets who was waited for (before Linux 6.15)");
		else
			cr_expect_eq(after, waited);
	}
}

Test(fd, how_a_living_process_ended_is_not_known)
{
	_cleanup_(zi_closep) int fd = -1;
	int status = -1;

	cr_assert_eq(zi_pidfd_open(getpid(), &fd), 0);
	cr_expect_eq(zi_pidfd_status(fd, getpid(), &status), -EAGAIN);
	cr_expect_eq(status, -1);
}

Test(fd, pidfd_of_no_process_is_an_error)
{
	int fd = 77;

	cr_assert_eq(zi_pidfd_open(-1, &fd), -EINVAL);
	cr_assert_eq(zi_pidfd_open(0x3fffffff, &fd), -ESRCH);
	cr_assert_eq(fd, 77, "untouched on failure");
}

Test(fd, readonly_reopening_cannot_be_mapped_for_writing)
{
	int fd = memfd_with("0123456789abcdef");
	int copy = -1;
	void *view;

	cr_assert_eq(zi_fd_reopen_readonly(fd, &copy), 0);
	cr_assert_eq(fcntl(copy, F_GETFL) & O_ACCMODE, O_RDONLY);
	cr_assert_eq(fcntl(copy, F_GETFD), FD_CLOEXEC);
	cr_assert_eq(mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0), MAP_FAILED);
	view = mmap(NULL, 16, PROT_READ, MAP_SHARED, copy, 0);
	cr_assert_neq(view, MAP_FAILED);
	cr_assert_eq(memcmp(view, "0123456789abcdef", 16), 0, "the same file");
	cr_assert_neq(mprotect(view, 16, PROT_READ | PROT_WRITE), 0);
}

Test(fd, reopening_a_closed_descriptor_is_ebadf)
{
	int copy = 77;

	cr_assert_eq(zi_fd_reopen_readonly(-1, &copy), -EBADF);
	cr_assert_eq(copy, 77, "untouched on failure");
}

Test(fd, whole_transfers_move_every_byte)
{
	int fd = memfd_with("");
	size_t bytes = 3 << 20;
	_cleanup_(zi_freep) char *source = malloc(bytes);
	_cleanup_(zi_freep) char *target = malloc(bytes);

	for (size_t i = 0; i < bytes; i++)
		source[i] = (char)(i * 7 + i / 4096);
	cr_assert_eq(zi_pwrite_all(fd, source, bytes, 12345), 0);
	cr_assert_eq(zi_pread_all(fd, target, bytes, 12345), 0);
	cr_assert_eq(memcmp(source, target, bytes), 0);
	cr_assert_eq(zi_pwrite_all(-1, source, 0, 0), 0, "nothing to do needs no file");
}

Test(fd, short_end_of_file_is_eio)
{
	int fd = memfd_with("12345");
	char buffer[8];

	cr_assert_eq(zi_pread_all(fd, buffer, 5, 0), 0);
	cr_assert_eq(zi_pread_all(fd, buffer, 6, 0), -EIO);
	cr_assert_eq(zi_pread_all(fd, buffer, 1, 5), -EIO);
}

Test(fd, transfers_on_a_bad_descriptor_are_ebadf)
{
	char buffer[8] = "";

	cr_assert_eq(zi_pread_all(-1, buffer, 1, 0), -EBADF);
	cr_assert_eq(zi_pwrite_all(-1, buffer, 1, 0), -EBADF);
}

Test(fd, write_cut_short_by_a_limit_is_an_error_and_no_success)
{
	char path[64];
	struct rlimit limit = { 4096, 4096 };
	char buffer[8192] = "";
	int fd = mkstemp(guard_path(path, sizeof(path), "fd"));

	cr_assert_geq(fd, 0);
	cr_assert_eq(unlink(path), 0);
	cr_assert_neq(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_assert_eq(zi_pwrite_all(fd, buffer, sizeof(buffer), 0), -EFBIG);
}

Test(fd, text_file_is_read_without_its_newline)
{
	char buffer[32];
	char path[64];
	int fd = memfd_with("two\nlines\n\n");

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	cr_assert_eq(zi_read_text(path, buffer, sizeof(buffer)), 0);
	cr_assert_str_eq(buffer, "two\nlines");
}

Test(fd, text_file_that_does_not_fit_is_efbig_and_terminated)
{
	char buffer[6];
	char path[64];
	int fd = memfd_with("123456");

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	cr_assert_eq(zi_read_text(path, buffer, sizeof(buffer)), -EFBIG);
	cr_assert_str_eq(buffer, "12345");
}

Test(fd, text_file_that_cannot_be_read_leaves_an_empty_text)
{
	char buffer[8] = "old";

	cr_assert_eq(zi_read_text("/nonexistent/file", buffer, sizeof(buffer)), -ENOENT);
	cr_assert_str_eq(buffer, "");
	cr_assert_eq(zi_read_text("/proc", buffer, sizeof(buffer)), -EISDIR);
	cr_assert_str_eq(buffer, "");
}
