/* SPDX-License-Identifier: Apache-2.0 */
/* See starting.h. Floor 1, any thread. */
#include "common/wire/starting.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"

static bool path_of(const char *socket_path, char *path)
{
	return *socket_path && snprintf(path, PATH_MAX, "%s.starting", socket_path) < (int)PATH_MAX;
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
	struct stat status;

	if (!path_of(socket_path, path))
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
	/* Nobody has us cut a file of another name. */
	if (fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_nlink != 1 ||
	    status.st_uid != geteuid())
		return -1;
	if (flock(fd, LOCK_EX | LOCK_NB) || ftruncate(fd, 0) ||
	    dprintf(fd, "%d\n", (int)getpid()) < 0)
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

/* See starting.h. */
pid_t zi_starting_pid(const char *socket_path)
{
	_cleanup_(zi_closep) int fd = -1;
	char path[PATH_MAX], text[16];
	ssize_t bytes;

	if (!path_of(socket_path, path))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || !flock(fd, LOCK_SH | LOCK_NB) || errno != EWOULDBLOCK)
		return 0;
	bytes = read(fd, text, sizeof(text) - 1);
	text[bytes > 0 ? bytes : 0] = '\0';
	return (pid_t)strtol(text, NULL, 10);
}
