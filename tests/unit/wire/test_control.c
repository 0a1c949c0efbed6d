/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the socket is where it should be, belongs to one daemon, and says what is wrong otherwise.
 * Method: real sockets in a fresh folder. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/wire/control.h"
#include "tests/guard/guard.h"

static char folder[64];
static char path[96];
static struct zi_text text;

static void setup(void)
{
	cr_assert_not_null(mkdtemp(guard_path(folder, sizeof(folder), "control")));
	snprintf(path, sizeof(path), "%s/s.sock", folder);
	text.chars[0] = '\0';
}

static void teardown(void)
{
	unlink(path);
	rmdir(folder);
}

TestSuite(control, .init = setup, .fini = teardown);

Test(control, listener_is_reachable_with_the_mode_it_was_given)
{
	int listen_fd, fd, peer_fd;
	struct stat status;
	mode_t mask = umask(077);

	cr_assert_eq(zi_control_listen(path, 0666, &text, &listen_fd), 0, "%s", text.chars);
	umask(mask);
	cr_assert_eq(stat(path, &status), 0);
	cr_assert_eq(status.st_mode & 0777, 0666, "the umask does not count");
	cr_assert(fcntl(listen_fd, F_GETFL) & O_NONBLOCK);
	cr_assert_eq(accept(listen_fd, NULL, NULL), -1);
	cr_assert_eq(zi_control_connect(path, &fd), 0);
	cr_assert_not(fcntl(fd, F_GETFL) & O_NONBLOCK);
	cr_assert_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	peer_fd = accept(listen_fd, NULL, NULL);
	cr_assert_geq(peer_fd, 0);
	close(peer_fd);
	close(fd);
	close(listen_fd);
}

Test(control, second_daemon_is_refused_and_the_first_lives_on)
{
	int listen_fd, other_fd = -7, fd;

	cr_assert_eq(zi_control_listen(path, 0600, &text, &listen_fd), 0);
	cr_assert_eq(zi_control_listen(path, 0600, &text, &other_fd), -EADDRINUSE);
	cr_assert_eq(other_fd, -7);
	cr_assert_not_null(strstr(text.chars, path), "%s", text.chars);
	cr_assert_eq(zi_control_connect(path, &fd), 0);
	close(fd);
	close(listen_fd);
}

Test(control, socket_of_a_dead_daemon_is_replaced)
{
	int listen_fd, fd;

	cr_assert_eq(zi_control_listen(path, 0600, &text, &listen_fd), 0);
	close(listen_fd);
	cr_assert_eq(zi_control_connect(path, &fd), -ECONNREFUSED);
	cr_assert_eq(zi_control_listen(path, 0600, &text, &listen_fd), 0, "%s", text.chars);
	cr_assert_eq(zi_control_connect(path, &fd), 0);
	close(fd);
	close(listen_fd);
}

Test(control, what_is_no_socket_is_left_alone)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600), listen_fd;

	close(fd);
	cr_assert_eq(zi_control_listen(path, 0600, &text, &listen_fd), -EADDRINUSE);
	cr_assert_not_null(strstr(text.chars, "not a socket"), "%s", text.chars);
	cr_assert_eq(access(path, F_OK), 0);
	cr_assert_eq(zi_control_connect(path, &fd), -ECONNREFUSED);
}

Test(control, missing_folder_and_long_path_are_named)
{
	char long_path[200] = "/tmp/";
	int listen_fd, fd;

	memset(long_path + 5, 'a', 150);
	cr_assert_eq(zi_control_listen("/nonexistent/zinf/s", 0600, &text, &listen_fd), -ENOENT);
	cr_assert_not_null(strstr(text.chars, "'/nonexistent/zinf'"), "%s", text.chars);
	cr_assert_eq(zi_control_listen(long_path, 0600, &text, &listen_fd), -ENAMETOOLONG);
	cr_assert_not_null(strstr(text.chars, "107"), "%s", text.chars);
	cr_assert_eq(zi_control_connect(long_path, &fd), -ENAMETOOLONG);
	cr_assert_eq(zi_control_connect("", &fd), -EINVAL);
	cr_assert_eq(zi_control_listen("", 0600, &text, &listen_fd), -EINVAL);
	cr_assert_eq(zi_control_connect(path, &fd), -ENOENT);
}

/* /proc takes no new file, not even of root. */
Test(control, folder_that_takes_no_socket_is_named)
{
	int listen_fd = -7, r = zi_control_listen("/proc/zinf.sock", 0600, &text, &listen_fd);

	cr_expect_lt(r, 0);
	cr_expect_neq(r, -EADDRINUSE);
	cr_expect_eq(listen_fd, -7);
	cr_expect_not_null(strstr(text.chars, "binding the socket '/proc/zinf.sock': "), "%s",
	                   text.chars);
}

Test(control, without_descriptors_there_is_no_socket)
{
	struct rlimit saved, none;
	int fd = -7;

	getrlimit(RLIMIT_NOFILE, &saved);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = saved.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	cr_expect_eq(zi_control_connect(path, &fd), -EMFILE);
	cr_expect_eq(zi_control_listen(path, 0600, &text, &fd), -EMFILE);
	setrlimit(RLIMIT_NOFILE, &saved);
	cr_expect_eq(fd, -7);
	cr_expect_not_null(strstr(text.chars, folder), "%s", text.chars);
}

Test(control, full_backlog_is_eagain_and_never_blocks)
{
	int listen_fd, fds[300], r = 0, count = 0;

	cr_assert_eq(zi_control_listen(path, 0600, &text, &listen_fd), 0);
	while (count < 300 && !r) {
		r = zi_control_connect(path, &fds[count]);
		count += !r;
	}
	cr_assert_eq(r, -EAGAIN);
	cr_assert_eq(zi_control_listen(path, 0600, &text, &r), -EADDRINUSE, "busy is not dead: %s",
	             text.chars);
	while (count)
		close(fds[--count]);
	close(listen_fd);
}

Test(control, default_path_follows_the_environment)
{
	char result[108], expected[160], user[160], long_folder[108];

	setenv("ZINF_SOCKET", "/x/y.sock", 1);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	cr_assert_eq(zi_control_default_path(result, sizeof(result)), 0);
	cr_assert_str_eq(result, "/x/y.sock");
	setenv("ZINF_SOCKET", "", 1);
	snprintf(expected, sizeof(expected), "%s/zinf/zinfd.sock", folder);
	if (access("/run/zinf/zinfd.sock", F_OK) < 0) {
		cr_assert_eq(zi_control_default_path(result, sizeof(result)), 0);
		cr_assert_str_eq(result, expected, "also when it is not there");
	}
	snprintf(user, sizeof(user), "%s/zinf", folder);
	mkdir(user, 0700);
	close(open(expected, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(zi_control_default_path(result, sizeof(result)), 0);
	cr_assert_str_eq(result, expected);
	unlink(expected);
	rmdir(user);
	unsetenv("XDG_RUNTIME_DIR");
	cr_assert_eq(zi_control_default_path(result, sizeof(result)), 0);
	cr_assert_str_eq(result, "/run/zinf/zinfd.sock");
	cr_assert_eq(zi_control_default_path(result, 10), -ENAMETOOLONG);
	memset(long_folder, 'a', sizeof(long_folder));
	long_folder[sizeof(long_folder) - 1] = '\0';
	setenv("XDG_RUNTIME_DIR", long_folder, 1);
	cr_assert_eq(zi_control_default_path(result, sizeof(result)), -ENAMETOOLONG);
}
