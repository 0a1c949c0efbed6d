/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket itself: where it is, listening, connecting. Floor 1, any thread. */
#include "common/wire/control.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"

/* Sessions that attach at the same moment wait here: more than ranks of a node. */
#define CONTROL_BACKLOG     128
#define CONTROL_SYSTEM_PATH "/run/zinf/zinfd.sock"
#define CONTROL_USER_FORMAT "%s/zinf/zinfd.sock" /* of $XDG_RUNTIME_DIR */

static int address_of(const char *path, struct sockaddr_un *ret_address)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int r;

	if (!*path) /* would be an abstract or unnamed socket */
		return err_origin(-EINVAL);
	r = zi_copy_name(address.sun_path, sizeof(address.sun_path), path);
	if (r)
		return err_trace(r);
	*ret_address = address;
	return 0;
}

static int connect_to(const struct sockaddr_un *address, int *ret_fd)
{
	_cleanup_(zi_closep) int fd = -1;
	int r;

	/* Non-blocking while it connects: a stopped daemon with a full backlog must not hold us. */
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_origin(-errno);
	do
		r = connect(fd, (const struct sockaddr *)address, sizeof(*address));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return err_origin(-errno);
	*ret_fd = zi_steal_fd(fd);
	return 0;
}

/**
 * zi_control_connect() - connect to a daemon
 * @ret_fd: a blocking socket, close-on-exec, the caller's
 *
 * Never waits. Return: 0; -ENOENT no socket there; -ECONNREFUSED nobody listens; -EAGAIN the
 * daemon's backlog is full: try again; -EACCES; -ENAMETOOLONG; -EPROTOTYPE another kind of socket.
 */
int zi_control_connect(const char *path, int *ret_fd)
{
	_cleanup_(zi_closep) int fd = -1;
	struct sockaddr_un address;
	int r;

	r = address_of(path, &address);
	if (r)
		return err_trace(r);
	r = connect_to(&address, &fd);
	if (r)
		return err_trace(r);
	r = zi_fd_set_nonblock(fd, false);
	if (r)
		return err_trace(r);
	*ret_fd = zi_steal_fd(fd);
	return 0;
}

/* The folder of @path, opened and locked: of several daemons that start at once, one at a time
 * looks whether the socket is stale. The lock goes with the descriptor and leaves no file behind.
 */
static int lock_folder(const char *path, struct zi_text *text, int *ret_fd)
{
	_cleanup_(zi_closep) int fd = -1;
	char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	const char *slash = strrchr(path, '/');
	int bytes = slash ? (int)(slash - path) + (slash == path) : 1;

	(void)snprintf(folder, sizeof(folder), "%.*s", bytes, slash ? path : "."); /* Fits. */
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		int error = -errno;

		zi_text_set(text, "the folder '%s' of the socket: %s", folder, strerror(-error));
		return err_origin(error);
	}
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return err_origin(-errno);
	*ret_fd = zi_steal_fd(fd);
	return 0;
}

/* Removes a socket that nobody listens on any more; leaves everything else. */
static int remove_stale(const struct sockaddr_un *address, struct zi_text *text)
{
	_cleanup_(zi_closep) int fd = -1;
	struct stat status;
	int r;

	if (lstat(address->sun_path, &status) < 0)
		return errno == ENOENT ? 0 : err_origin(-errno);
	if (!S_ISSOCK(status.st_mode)) {
		zi_text_set(text, "'%s' is there and is not a socket", address->sun_path);
		return err_origin(-EADDRINUSE);
	}
	r = connect_to(address, &fd);
	if (r != -ECONNREFUSED) {
		zi_text_set(text, "another daemon listens at '%s': stop it, or choose another path",
		            address->sun_path);
		return err_origin(-EADDRINUSE);
	}
	if (unlink(address->sun_path) < 0 && errno != ENOENT) {
		int error = -errno;

		zi_text_set(text, "removing the stale socket '%s': %s", address->sun_path,
		            strerror(-error));
		return err_origin(error);
	}
	return 0;
}

/* @mode lies on the inode before it has a name, so that it is never open to more for a moment;
 * chmod() then takes back what the umask took. */
static int bind_and_listen(int fd, const struct sockaddr_un *address, uint32_t mode)
{
	if (fchmod(fd, mode) < 0)
		return err_origin(-errno);
	if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		return err_origin(-errno);
	if (chmod(address->sun_path, mode) < 0 || listen(fd, CONTROL_BACKLOG) < 0) {
		int error = -errno;

		(void)unlink(address->sun_path); /* The first error is the one to tell. */
		return err_origin(error);
	}
	return 0;
}

/**
 * zi_control_listen() - listen for sessions
 * @path: of the socket; its folder exists. A socket left by a dead daemon is replaced
 * @mode: permissions of the socket, as for chmod()
 * @text: says what is wrong; may be NULL
 * @ret_fd: non-blocking, close-on-exec, the caller's, who also unlinks @path in the end
 *
 * Return: 0; -EADDRINUSE a daemon listens there already, or @path is something else; -ENOENT,
 * -EACCES the folder; -ENAMETOOLONG.
 */
int zi_control_listen(const char *path, uint32_t mode, struct zi_text *text, int *ret_fd)
{
	_cleanup_(zi_closep) int folder_fd = -1;
	_cleanup_(zi_closep) int fd = -1;
	struct sockaddr_un address;
	int r;

	r = address_of(path, &address);
	if (r) {
		zi_text_set(text, "the socket path '%s' must have 1 to %zu bytes", path,
		            sizeof(address.sun_path) - 1);
		return err_trace(r);
	}
	r = lock_folder(path, text, &folder_fd);
	if (r)
		return err_trace(r);
	r = remove_stale(&address, text);
	if (r)
		return err_trace(r);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_origin(-errno);
	r = bind_and_listen(fd, &address, mode);
	if (r) {
		zi_text_set(text, "binding the socket '%s': %s", path, strerror(-r));
		return err_trace(r);
	}
	*ret_fd = zi_steal_fd(fd);
	return 0;
}

/**
 * zi_control_default_path() - where the daemon is looked for when nobody says so
 * @buffer: (@capacity,) bytes
 *
 * $ZINF_SOCKET, else the user's daemon under $XDG_RUNTIME_DIR (also when neither is there, so that
 * messages name it), else the system's. Return: 0, or -ENAMETOOLONG.
 */
int zi_control_default_path(char *buffer, size_t capacity)
{
	const char *named = getenv("ZINF_SOCKET");
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char user[sizeof(((struct sockaddr_un *)NULL)->sun_path)];

	if (named && *named)
		return err_trace(zi_copy_name(buffer, capacity, named));
	if (!runtime || !*runtime)
		return err_trace(zi_copy_name(buffer, capacity, CONTROL_SYSTEM_PATH));
	if ((size_t)snprintf(user, sizeof(user), CONTROL_USER_FORMAT, runtime) >= sizeof(user))
		return err_origin(-ENAMETOOLONG);
	if (access(user, F_OK) < 0 && access(CONTROL_SYSTEM_PATH, F_OK) == 0)
		return err_trace(zi_copy_name(buffer, capacity, CONTROL_SYSTEM_PATH));
	return err_trace(zi_copy_name(buffer, capacity, user));
}
