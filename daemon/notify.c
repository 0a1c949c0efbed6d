/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager's protocol. Floor 7. Each message is one datagram of lines. */
#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"

#define NOTIFY_MESSAGE_BYTES 512u
#define NOTIFY_LISTEN_FD     3 /* the first descriptor that is passed: sd_listen_fds(3) */

/* A whole decimal number. */
static bool parse(const char *text, uint64_t *ret_value)
{
	char *end;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret_value = strtoull(text, &end, 10);
	return !*end && !errno;
}

/* Whether a variable that names a process (absent: anybody) means this one. */
static bool is_for_us(const char *name)
{
	const char *text = getenv(name);
	uint64_t pid;

	return !text || (parse(text, &pid) && pid == (uint64_t)getpid());
}

static void read_watchdog(struct notify *notify)
{
	uint64_t watchdog_us;

	if (is_for_us("WATCHDOG_PID") && parse(getenv("WATCHDOG_USEC"), &watchdog_us) &&
	    watchdog_us < UINT64_MAX / ZI_NS_PER_US)
		notify->watchdog_ns = watchdog_us * ZI_NS_PER_US;
	(void)unsetenv("WATCHDOG_PID"); /* Fails only for names with '='. */
	(void)unsetenv("WATCHDOG_USEC");
}

/**
 * notify_open() - find the service manager
 * @notify: NOTIFY_INIT before; notify_close() it
 *
 * A name beginning with '@' is an abstract socket. The variables are for us and not for children,
 * so they leave the environment. Return: 0, also when nobody listens; -EINVAL a name that is no
 * socket's; an errno of socket() or connect().
 */
int notify_open(struct notify *notify, struct zi_text *text)
{
	_cleanup_(zi_closep) int fd = -1;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *name = getenv("NOTIFY_SOCKET");
	size_t name_bytes = name ? strlen(name) : 0;
	int r;

	read_watchdog(notify);
	if (!name_bytes)
		return 0;
	if ((name[0] != '/' && name[0] != '@') || name_bytes >= sizeof(address.sun_path))
		return zi_text_error(text, err_origin(-EINVAL),
		                     "NOTIFY_SOCKET is '%.80s': a path or @name of at most %zu "
		                     "bytes is expected",
		                     name, sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, name, name_bytes);
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_origin(-errno);
	if (connect(fd, (struct sockaddr *)&address,
	            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + name_bytes))) {
		r = -errno;
		return zi_text_error(text, err_origin(r), "NOTIFY_SOCKET '%s': %s", name,
		                     strerror(-r));
	}
	(void)unsetenv("NOTIFY_SOCKET");
	notify->fd = zi_steal_fd(fd);
	return 0;
}

/* Nobody is told anything from here on. Twice is fine. */
void notify_close(struct notify *notify)
{
	notify->fd = zi_close(notify->fd);
}

/* @format: lines of "NAME=value". Cut at NOTIFY_MESSAGE_BYTES. Any thread. */
void notify_send(const struct notify *notify, const char *format, ...)
{
	char message[NOTIFY_MESSAGE_BYTES];
	va_list args;

	if (notify->fd < 0)
		return;
	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args); /* Cut: a status for people. */
	va_end(args);
	/* A manager that does not read, or is gone, must not stop us; the watchdog is its answer.
	 * */
	(void)send(notify->fd, message, strlen(message), MSG_NOSIGNAL);
}

/* Whether @fd is what we would have made ourselves. */
static bool is_our_kind(int fd)
{
	struct sockaddr_storage address = { 0 };
	socklen_t bytes = sizeof(address);
	int type = 0;
	int is_listening = 0;

	if (getsockname(fd, (struct sockaddr *)&address, &bytes) || address.ss_family != AF_UNIX)
		return false;
	bytes = sizeof(type);
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) || type != SOCK_SEQPACKET)
		return false;
	bytes = sizeof(is_listening);
	return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &bytes) && is_listening;
}

/**
 * notify_take_socket() - the socket of socket activation
 * @ret_fd: non-blocking, close-on-exec, the caller's; -1: none was passed to this process
 *
 * Return: 0; -EINVAL more than one, or not a listening UNIX seqpacket socket.
 */
int notify_take_socket(struct zi_text *text, int *ret_fd)
{
	uint64_t count = 0;
	bool is_passed = getenv("LISTEN_PID") && is_for_us("LISTEN_PID") &&
	                 parse(getenv("LISTEN_FDS"), &count) && count > 0;
	int r;

	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	if (!is_passed) {
		*ret_fd = -1;
		return 0;
	}
	if (count != 1)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "LISTEN_FDS passes %llu sockets, one is expected",
		                     (unsigned long long)count);
	if (!is_our_kind(NOTIFY_LISTEN_FD))
		return zi_text_error(text, err_origin(-EINVAL),
		                     "the passed descriptor is no listening UNIX socket of type "
		                     "seqpacket (ListenSequentialPacket=)");
	r = zi_fd_set_nonblock(NOTIFY_LISTEN_FD, true);
	if (r)
		return err_trace(r);
	if (fcntl(NOTIFY_LISTEN_FD, F_SETFD, FD_CLOEXEC))
		return err_origin(-errno);
	*ret_fd = NOTIFY_LISTEN_FD;
	return 0;
}
