/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors. Floor 0, any thread. Every call here retries EINTR where that is right. */
#include "common/base/fd.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"

/* Enough for "/proc/self/fd/" and an int. */
#define FD_PATH_BYTES 32u
/* 52 numbers and a name. */
#define FD_STAT_BYTES 1024u

/* Return: -1, always. After EINTR the descriptor is gone on Linux: closing again would hit another
 * thread's. errno is kept, so that this may run in a cleanup after a failure. */
int zi_close(int fd)
{
	int saved_errno = errno;

	if (fd >= 0) {
		int r = close(fd);

		assert(r == 0 || errno != EBADF);
		(void)r; /* Asserted above; EIO is for the data paths, which check their writes. */
	}
	errno = saved_errno;
	return -1;
}

/* Return: 0, or -EBADF. */
int zi_fd_set_nonblock(int fd, bool is_nonblock)
{
	int flags = fcntl(fd, F_GETFL);
	int wanted;

	if (flags < 0)
		return err_origin(-errno);
	wanted = is_nonblock ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	if (wanted != flags && fcntl(fd, F_SETFL, wanted) < 0)
		return err_origin(-errno);
	return 0;
}

void zi_fd_pass(struct msghdr *packet, void *control, const int *fds, uint32_t fd_count)
{
	struct cmsghdr *rights = control;

	packet->msg_control = control;
	packet->msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
	memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
}

/* @ret_fd: readable when the process has exited; close-on-exec, the caller's. Return: 0, -ESRCH
 * when there is no such process, -EINVAL, or -EMFILE, -ENFILE, -ENOMEM. */
int zi_pidfd_open(pid_t pid, int *ret_fd)
{
	long fd = syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return err_origin(-errno);
	*ret_fd = (int)fd;
	return 0;
}

/* Linux 6.13 and later (PIDFD_GET_INFO); the exit code of one that was waited for since 6.15. */
struct fd_pidfd_info {
	uint64_t mask, cgroup;
	uint32_t ids[11];
	int32_t exit_code;
};
static_assert(sizeof(struct fd_pidfd_info) == 64, "the first version of struct pidfd_info");
#define FD_PIDFD_GET_INFO  _IOWR(0xFF, 11, struct fd_pidfd_info)
#define FD_PIDFD_INFO_EXIT (1ull << 3)

static bool status_of_pidfd(int pidfd, int *ret_status)
{
	struct fd_pidfd_info info = { .mask = FD_PIDFD_INFO_EXIT };

	if (ioctl(pidfd, FD_PIDFD_GET_INFO, &info) || !(info.mask & FD_PIDFD_INFO_EXIT))
		return false;
	*ret_status = info.exit_code;
	return true;
}

/* The last field of /proc/PID/stat, of one that nobody has waited for yet. */
static bool status_of_zombie(pid_t pid, int *ret_status)
{
	char path[FD_PATH_BYTES], line[FD_STAT_BYTES];
	const char *state, *last;
	ssize_t bytes;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid); /* Fits. */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bytes = read(fd, line, sizeof(line) - 1);
	(void)zi_close(fd); /* Always -1. */
	if (bytes <= 0)
		return false;
	line[bytes] = '\0';
	/* Its name may hold anything but ends with the last parenthesis. */
	state = strrchr(line, ')');
	last = strrchr(line, ' ');
	if (!state || state[1] != ' ' || state[2] != 'Z' || !last)
		return false;
	/* 0 is also what another user is shown. */
	*ret_status = (int)strtol(last, NULL, 10);
	return *ret_status != 0;
}

/* See fd.h. A process that ends becomes a zombie, then its parent waits for it: each has one
 * source, and who went from one to the other in between is asked for again. */
int zi_pidfd_status(int pidfd, pid_t pid, int *ret_status)
{
	int status = 0;

	if (!status_of_pidfd(pidfd, &status) && !status_of_zombie(pid, &status) &&
	    !status_of_pidfd(pidfd, &status))
		return -EAGAIN;
	*ret_status = status;
	return 0;
}

/* A descriptor of its own open file description: mapping it PROT_WRITE is refused by the kernel,
 * and mprotect() cannot widen it. @ret_fd: the caller's. Return: 0, or an errno of open(). */
int zi_fd_reopen_readonly(int fd, int *ret_fd)
{
	char path[FD_PATH_BYTES];
	int copy;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* Fits any int. */
	copy = open(path, O_RDONLY | O_CLOEXEC);
	if (copy < 0)
		return err_origin(errno == ENOENT ? -EBADF : -errno);
	*ret_fd = copy;
	return 0;
}

/* Reads exactly @bytes at @offset_bytes. Return: 0, -EIO at a short end of file, or an errno of
 * pread(); @buffer is then undefined. */
int zi_pread_all(int fd, void *buffer, size_t bytes, uint64_t offset_bytes)
{
	assert(offset_bytes <= INT64_MAX);
	assert(bytes <= INT64_MAX - offset_bytes);
	while (bytes) {
		ssize_t done = pread(fd, buffer, bytes, (off_t)offset_bytes);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return err_origin(-errno);
		if (done == 0)
			return err_origin(-EIO);
		buffer = (char *)buffer + done;
		bytes -= (size_t)done;
		offset_bytes += (size_t)done;
	}
	return 0;
}

/* Writes exactly @bytes at @offset_bytes. Return: 0, or an errno of pwrite() (-ENOSPC, -EFBIG,
 * -EIO …); a part may then have been written. */
int zi_pwrite_all(int fd, const void *buffer, size_t bytes, uint64_t offset_bytes)
{
	assert(offset_bytes <= INT64_MAX);
	assert(bytes <= INT64_MAX - offset_bytes);
	while (bytes) {
		ssize_t done = pwrite(fd, buffer, bytes, (off_t)offset_bytes);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return err_origin(-errno);
		if (done ==
		    0) /* Not from a file; a device that makes no progress must not hang us. */
			return err_origin(-EIO);
		buffer = (const char *)buffer + done;
		bytes -= (size_t)done;
		offset_bytes += (size_t)done;
	}
	return 0;
}

/*
 * @capacity: bytes of @buffer, at least 1. Newlines at the end are stripped.
 * Return: 0; -EFBIG when the text and its NUL do not fit (@buffer then holds the beginning); an
 * errno of open() or read(), with @buffer empty.
 */
int zi_read_text(const char *path, char *buffer, size_t capacity)
{
	_cleanup_(zi_closep) int fd = -1;
	size_t used_bytes = 0;

	assert(capacity > 0);
	buffer[0] = '\0';
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_origin(-errno);
	while (used_bytes < capacity) {
		ssize_t done = read(fd, buffer + used_bytes, capacity - used_bytes);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0) {
			buffer[0] = '\0';
			return err_origin(-errno);
		}
		if (done == 0)
			break;
		used_bytes += (size_t)done;
	}
	if (used_bytes == capacity) {
		buffer[capacity - 1] = '\0';
		return err_origin(-EFBIG);
	}
	while (used_bytes && buffer[used_bytes - 1] == '\n')
		used_bytes--;
	buffer[used_bytes] = '\0';
	return 0;
}
