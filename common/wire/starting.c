/* SPDX-License-Identifier: Apache-2.0 */
/* See starting.h. Floor 1, any thread. */
#include "common/wire/starting.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"

static bool path_of(const char *socket_path, char *path)
{
	return *socket_path && snprintf(path, PATH_MAX, "%s.starting", socket_path) < (int)PATH_MAX;
}

/* A write lock of the whole file, which closing @fd releases. -1: somebody has a lock; *@ret_type:
 * of which type. */
static int lock_file(int fd, short *ret_type)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (!fcntl(fd, F_OFD_SETLK, &lock))
		return 0;
	*ret_type = fcntl(fd, F_OFD_GETLK, &lock) ? F_WRLCK : lock.l_type;
	return -1;
}

/* Opens the file, locked. One that a reader has locked is replaced: the new file admits readers
 * only when it is locked. -1: there is none, or another daemon has it. */
static int open_locked(const char *path)
{
	_cleanup_(zi_closep) int fd =
		open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct stat status;
	short type = F_UNLCK;

	/* Nobody has us cut a file of another name. */
	if (fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_nlink != 1 ||
	    status.st_uid != geteuid())
		return -1;
	if (!lock_file(fd, &type))
		return zi_steal_fd(fd);
	if (type == F_WRLCK || unlink(path))
		return -1;
	fd = zi_close(fd);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 || lock_file(fd, &type) ? -1 : zi_steal_fd(fd);
}

/**
 * zi_starting_begin() - tell who asks that a daemon is starting
 * @socket_path: where it will listen
 *
 * A comfort: where it cannot be told, for want of rights or space, the daemon starts all the same.
 * Return: a locked descriptor, the caller's; -1.
 */
int zi_starting_begin(const char *socket_path)
{
	_cleanup_(zi_closep) int fd = -1;
	char path[PATH_MAX];

	if (!path_of(socket_path, path))
		return -1;
	fd = open_locked(path);
	if (fd < 0 || ftruncate(fd, 0) || dprintf(fd, "%d\n", (int)getpid()) < 0 ||
	    fchmod(fd, 0644))
		return -1;
	return zi_steal_fd(fd);
}

/* It listens, or ends. @fd: of zi_starting_begin(), or -1. */
int zi_starting_end(const char *socket_path, int fd)
{
	char path[PATH_MAX];

	if (fd >= 0 && path_of(socket_path, path))
		(void)unlink(path); /* Before the lock goes: another daemon may begin then. */
	return zi_close(fd);
}

/* True for root, the owner of the socket's folder, and this user. In a folder that all may write
 * to, anybody could have made the file. */
static bool is_trusted(const char *path, uid_t uid)
{
	char folder[PATH_MAX];
	const char *end = strrchr(path, '/');
	struct stat status;

	if (uid == 0 || uid == geteuid())
		return true;
	(void)snprintf(folder, sizeof(folder), "%.*s", end ? (int)(end - path + 1) : 1,
	               end ? path : "."); /* Fits. */
	return !stat(folder, &status) && status.st_uid == uid;
}

/* See starting.h. */
pid_t zi_starting_pid(const char *socket_path)
{
	_cleanup_(zi_closep) int fd = -1;
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	char path[PATH_MAX], text[16];
	struct stat status;
	ssize_t bytes;

	if (!path_of(socket_path, path))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode) ||
	    !is_trusted(path, status.st_uid))
		return 0;
	/* Asks, and takes none: a reader never keeps a daemon from its lock. */
	if (fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type == F_UNLCK)
		return 0;
	bytes = read(fd, text, sizeof(text) - 1);
	text[bytes > 0 ? bytes : 0] = '\0';
	return (pid_t)strtol(text, NULL, 10);
}
