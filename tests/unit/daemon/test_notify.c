/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the service manager hears what it should, and a socket is taken only when it was meant for
 * this process and is of the right kind. Method: a datagram socket of our own in NOTIFY_SOCKET;
 * children that place a descriptor at 3, as the manager does.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "common/wire/control.h"
#include "daemon/notify.h"
#include "tests/guard/guard.h"

static struct notify notify = NOTIFY_INIT;
static struct zi_text text;

/* A manager's socket; @name beginning with '@' is abstract. */
static int listen_at(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(address.sun_path, name, strlen(name));
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	cr_assert_eq(bind(fd, (struct sockaddr *)&address,
	                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
	             0);
	(void)setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

static void expect_message(int fd, const char *expected)
{
	char message[1024];
	ssize_t bytes = recv(fd, message, sizeof(message) - 1, 0);

	cr_assert_gt(bytes, 0);
	message[bytes] = '\0';
	cr_assert_str_eq(message, expected);
}

Test(notify, an_abstract_socket_hears)
{
	char name[64];
	int fd;

	(void)snprintf(name, sizeof(name), "@zinf-notify-%d", getpid());
	fd = listen_at(name);
	cr_assert_eq(notify_open(&notify, &text), 0);
	cr_assert_null(getenv("NOTIFY_SOCKET"), "children must not speak for us");
	notify_send(&notify, "READY=1\nSTATUS=%d sessions", 3);
	expect_message(fd, "READY=1\nSTATUS=3 sessions");
	notify_close(&notify);
	notify_send(&notify, "READY=1");
	cr_assert_eq(recv(fd, name, sizeof(name), 0), -1);
	(void)zi_close(fd);
}

Test(notify, a_path_hears)
{
	char name[64];
	int fd;

	(void)guard_path(name, sizeof(name), "notify");
	fd = listen_at(name);
	cr_assert_eq(notify_open(&notify, &text), 0);
	notify_send(&notify, "STOPPING=1");
	expect_message(fd, "STOPPING=1");
	notify_close(&notify);
	(void)zi_close(fd);
	(void)unlink(name);
}

Test(notify, nobody_listening_is_no_error)
{
	(void)unsetenv("NOTIFY_SOCKET");
	cr_assert_eq(notify_open(&notify, &text), 0);
	cr_assert_eq(notify.fd, -1);
	notify_send(&notify, "READY=1");
}

Test(notify, a_manager_that_does_not_read_does_not_stop_us)
{
	char name[64];
	int fd;

	(void)snprintf(name, sizeof(name), "@zinf-notify-%d", getpid());
	fd = listen_at(name);
	cr_assert_eq(notify_open(&notify, &text), 0);
	for (int i = 0; i < 100000; i++)
		notify_send(&notify, "STATUS=%d", i);
	notify_close(&notify);
	(void)zi_close(fd);
}

Test(notify, a_name_that_is_no_sockets_is_refused)
{
	char longer[200];

	(void)setenv("NOTIFY_SOCKET", "relative/name", 1);
	cr_assert_eq(notify_open(&notify, &text), -EINVAL);
	cr_assert(strstr(text.chars, "relative/name"));
	memset(longer, 'a', sizeof(longer) - 1);
	longer[0] = '/';
	longer[sizeof(longer) - 1] = '\0';
	(void)setenv("NOTIFY_SOCKET", longer, 1);
	cr_assert_eq(notify_open(&notify, &text), -EINVAL);
	(void)setenv("NOTIFY_SOCKET", "/tmp/nobody/is/here", 1);
	cr_assert_eq(notify_open(&notify, &text), -ENOENT);
	cr_assert(strstr(text.chars, "No such file"));
}

Test(notify, the_watchdog_is_ours_only_when_its_pid_is)
{
	char pid[16];

	(void)setenv("WATCHDOG_USEC", "3000000", 1);
	cr_assert_eq(notify_open(&notify, &text), 0);
	cr_assert_eq(notify.watchdog_ns, 3000000000ull);
	cr_assert_null(getenv("WATCHDOG_USEC"));
	notify = (struct notify)NOTIFY_INIT;
	(void)setenv("WATCHDOG_USEC", "3000000", 1);
	(void)setenv("WATCHDOG_PID", "1", 1);
	cr_assert_eq(notify_open(&notify, &text), 0);
	cr_assert_eq(notify.watchdog_ns, 0);
	(void)snprintf(pid, sizeof(pid), "%d", getpid());
	(void)setenv("WATCHDOG_PID", pid, 1);
	(void)setenv("WATCHDOG_USEC", "3000000s", 1);
	cr_assert_eq(notify_open(&notify, &text), 0);
	cr_assert_eq(notify.watchdog_ns, 0);
}

/* ---- socket activation ---- */

static const char *passed_count = "1";
static bool is_for_another;

/* In a child, with @passed_fd at 3: 0 none taken, 1 taken, 2 refused; 3 anything unexpected. */
static int take_as_child(int passed_fd)
{
	pid_t pid = fork();
	int status = 0;

	if (!pid) {
		char pid_text[16];
		int fd = 99;
		int r;

		if (passed_fd >= 0 && passed_fd != 3 && dup2(passed_fd, 3) != 3)
			_exit(3);
		(void)snprintf(pid_text, sizeof(pid_text), "%d", is_for_another ? 1 : getpid());
		(void)setenv("LISTEN_PID", pid_text, 1);
		(void)setenv("LISTEN_FDS", passed_count, 1);
		r = notify_take_socket(&text, &fd);
		if (getenv("LISTEN_FDS") || getenv("LISTEN_PID"))
			_exit(3);
		if (r)
			_exit(r == -EINVAL && fd == 99 && text.chars[0] ? 2 : 3);
		if (fd == -1)
			_exit(0);
		_exit(fd == 3 && (fcntl(3, F_GETFD) & FD_CLOEXEC) &&
		                      (fcntl(3, F_GETFL) & O_NONBLOCK)
		              ? 1
		              : 3);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static char socket_path[64];

static int make_listener(void)
{
	int fd;

	(void)guard_path(socket_path, sizeof(socket_path), "listen");
	cr_assert_eq(zi_control_listen(socket_path, 0600, &text, &fd), 0);
	(void)unlink(socket_path);
	(void)zi_fd_set_nonblock(fd, false);
	return fd;
}

Test(activation, a_passed_socket_is_taken)
{
	int fd = make_listener();

	cr_assert_eq(take_as_child(fd), 1);
	(void)zi_close(fd);
}

Test(activation, a_socket_for_another_process_is_left_alone)
{
	int fd = make_listener();

	is_for_another = true;
	cr_assert_eq(take_as_child(fd), 0);
	(void)zi_close(fd);
}

Test(activation, none_and_more_than_one)
{
	int fd = make_listener();

	passed_count = "0";
	cr_assert_eq(take_as_child(fd), 0);
	passed_count = "2";
	cr_assert_eq(take_as_child(fd), 2);
	passed_count = "x";
	cr_assert_eq(take_as_child(fd), 0);
	(void)zi_close(fd);
}

Test(activation, a_descriptor_of_another_kind_is_refused)
{
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int stream_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int deaf_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); /* does not listen */

	cr_assert_eq(take_as_child(null_fd), 2);
	cr_assert_eq(take_as_child(stream_fd), 2);
	cr_assert_eq(take_as_child(deaf_fd), 2);
	(void)zi_close(null_fd);
	(void)zi_close(stream_fd);
	(void)zi_close(deaf_fd);
}
