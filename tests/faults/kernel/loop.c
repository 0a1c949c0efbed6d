/* SPDX-License-Identifier: Apache-2.0 */
/* Loop devices for tests (loop.h). */
#include "tests/faults/kernel/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"

/* Others may take a free device before us. */
#define LOOP_TRIES_MAX 16

/* With AUTOCLEAR the kernel detaches it, whatever becomes of the test. */
static int loop_configure(struct loop *loop, int control_fd, int backing_fd)
{
	struct loop_config config = { .fd = (uint32_t)backing_fd,
		                      .block_size = 512,
		                      .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	int number = ioctl(control_fd, LOOP_CTL_GET_FREE);

	if (number < 0)
		return -EOPNOTSUPP;
	(void)snprintf(loop->device_path, sizeof(loop->device_path), "/dev/loop%d", number);
	loop->fd = open(loop->device_path, O_RDWR | O_CLOEXEC);
	if (loop->fd < 0)
		return -EOPNOTSUPP;
	if (!ioctl(loop->fd, LOOP_CONFIGURE, &config))
		return 0;
	number = -errno;
	loop->fd = zi_close(loop->fd);
	return number;
}

int loop_attach(struct loop *loop, const char *backing_path, uint64_t bytes)
{
	_cleanup_(zi_closep) int control_fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	_cleanup_(zi_closep) int backing_fd =
		open(backing_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r = -EBUSY;

	*loop = (struct loop){ .fd = -1 };
	if (control_fd < 0)
		return -EOPNOTSUPP;
	if (backing_fd < 0 || ftruncate(backing_fd, (off_t)bytes))
		return -errno;
	(void)snprintf(loop->backing_path, sizeof(loop->backing_path), "%s", backing_path);
	for (int i = 0; i < LOOP_TRIES_MAX && r == -EBUSY; i++)
		r = loop_configure(loop, control_fd, backing_fd);
	return r;
}

void loop_detach(struct loop *loop)
{
	loop->fd = zi_close(loop->fd);
	if (loop->backing_path[0])
		(void)unlink(loop->backing_path);
	loop->backing_path[0] = '\0';
}

static int copy(const char *from_path, const char *to_path)
{
	_cleanup_(zi_closep) int from_fd = open(from_path, O_RDONLY | O_CLOEXEC);
	_cleanup_(zi_closep) int to_fd = open(to_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ssize_t r;

	if (from_fd < 0 || to_fd < 0)
		return -errno;
	while ((r = copy_file_range(from_fd, NULL, to_fd, NULL, 1 << 30, 0)) > 0)
		;
	return r < 0 ? -errno : 0;
}

static const char *kept_path(const struct loop *loop, char path[300])
{
	(void)snprintf(path, 300, "%s.kept", loop->backing_path);
	return path;
}

int loop_keep(const struct loop *loop)
{
	char path[300];

	return copy(loop->backing_path, kept_path(loop, path));
}

int loop_cut(const struct loop *loop, uint64_t bytes)
{
	return truncate(loop->backing_path, (off_t)bytes) ? -errno : 0;
}

int loop_restore(const struct loop *loop)
{
	char path[300];
	int r = copy(kept_path(loop, path), loop->backing_path);

	(void)unlink(path);
	return r;
}
