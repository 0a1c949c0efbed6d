/* SPDX-License-Identifier: Apache-2.0 */
/* Silent damage: what a disk gives back is not what was written to it. */
#pragma once

#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/fd.h"

/* One bit of the store at @path turns around; the second call turns it back. */
static inline void flip(const char *path, uint64_t offset_bytes)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned char byte;

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(pread(fd, &byte, 1, (off_t)offset_bytes), 1);
	byte ^= 0x10;
	cr_assert_eq(pwrite(fd, &byte, 1, (off_t)offset_bytes), 1);
	cr_assert_eq(fsync(fd), 0);
	(void)zi_close(fd);
}
