/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct I/O, judged. That O_DIRECT is accepted proves nothing: tmpfs takes it and copies. Since
 * Linux 6.1 the file system says itself what it can (STATX_DIOALIGN). Floor 2, any thread.
 */
#include "nvme/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/types.h"

/* File systems that lie in memory. */
static int direct_is_in_memory(int fd, bool *ret_is_in_memory)
{
	struct statfs status;

	if (fstatfs(fd, &status))
		return err_origin(-errno);
	*ret_is_in_memory = status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
	return 0;
}

/* Return: 0, direct or not; an errno of statx() or statfs(). Flags change only where direct. */
int nvme_direct_enable(int fd, bool *ret_is_direct, uint32_t *ret_align_bytes)
{
	uint32_t align_bytes = ZI_STORE_ALIGN_BYTES;
	struct statx status = { 0 };
	bool is_direct = true;
	int r;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_DIOALIGN, &status))
		return err_origin(-errno);
	if (status.stx_mask & STATX_DIOALIGN) {
		is_direct = status.stx_dio_offset_align > 0;
		align_bytes = ZI_MAX(status.stx_dio_mem_align, status.stx_dio_offset_align);
	} else if (S_ISREG(status.stx_mode)) {
		/* Of a device, only the node may lie in memory. */
		bool is_in_memory = false;

		r = direct_is_in_memory(fd, &is_in_memory);
		if (r)
			return err_trace(r);
		is_direct = !is_in_memory;
	}
	if (is_direct) {
		int flags = fcntl(fd, F_GETFL);

		if (flags < 0)
			return err_origin(-errno);
		/* -EINVAL: the file system has none after all. */
		is_direct = fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
	}
	*ret_is_direct = is_direct;
	*ret_align_bytes = is_direct ? align_bytes : 1;
	return 0;
}
