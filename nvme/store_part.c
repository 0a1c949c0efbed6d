/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that opening and making a store share: its lock, direct I/O, its superblock, and the
 * sentences of what an administrator meets. Floor 2; blocks, hence start-up only.
 */
#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "nvme/direct.h"
#include "nvme/holder.h"
#include "nvme/prepare.h"
#include "nvme/store.h"
#include "nvme/superblock.h"

/* "what path: reason" for errnos of open() that an administrator meets. */
int nvme_store_open_error(struct zi_text *text, int error, const char *path)
{
	const char *hint = strerror(-error);

	if (error == -ENOENT)
		hint = "its directory does not exist; make it, or name another path";
	else if (error == -ELOOP)
		hint = "it is a symbolic link; name the file itself";
	else if (error == -EISDIR)
		hint = "it is a directory; name a file in it";
	else if (error == -EBUSY)
		hint = "the device is mounted or in use";
	else if (error == -EROFS)
		hint = "Read-only file system; mount it for writing, or name a path elsewhere";
	else if (error == -EACCES)
		hint = "Permission denied; give zinfd's user the right to read and write it, or "
		       "name another path";
	return zi_text_error(text, error, "store '%s' cannot be opened: %s", path, hint);
}

/* FUSE says that it can begin without waiting (6.18), and then waits for its file system in the
 * call itself, unless that has chosen to do direct I/O asynchronously. What else waits says so. */
static int store_note_blocking(struct nvme_store *store)
{
	struct statfs status;

	if (fstatfs(store->fd, &status))
		return err_origin(-errno);
	store->is_blocking = status.f_type == FUSE_SUPER_MAGIC;
	return 0;
}

/* Return: -EBUSY. */
static int say_holder(const char *path, struct zi_text *text)
{
	pid_t holder = nvme_holder_of(path);

	if (holder == getpid())
		return zi_text_error(text, -EBUSY,
		                     "store '%s' is in use by another section of this "
		                     "configuration: name another path",
		                     path);
	if (holder)
		return zi_text_error(text, -EBUSY,
		                     "store '%s' is in use by another process (pid %d): stop that "
		                     "zinfd, or name another path",
		                     path, (int)holder);
	return zi_text_error(text, -EBUSY,
	                     "store '%s' is in use by another process that cannot be seen here: "
	                     "the kernel still writes for one that has ended, or a zinfd of "
	                     "another container has it. Try again later, stop that zinfd, or name "
	                     "another path",
	                     path);
}

/* One daemon per store, for as long as the descriptor lives. */
int nvme_store_lock(int fd, const char *path, struct zi_text *text)
{
	struct stat status;

	if (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return err_origin(zi_text_error(text, -errno,
			                                "store '%s' cannot be locked: %s", path,
			                                strerror(errno)));
		return err_origin(say_holder(path, text));
	}
	/* Unlinked between open and lock: another process was preparing it and gave up. */
	if (fstat(fd, &status) || status.st_nlink == 0)
		return err_origin(zi_text_error(
			text, -EBUSY, "store '%s' was replaced while it was opened", path));
	return 0;
}

/* Return: 0, or the errno of the write or the flush, after which neither is to be trusted. */
int nvme_store_write_superblock(const struct nvme_store *store,
                                const struct nvme_superblock *superblock, struct zi_text *text)
{
	_Alignas(NVME_SUPERBLOCK_BYTES) struct nvme_superblock copy = *superblock;
	int r;

	nvme_superblock_seal(&copy);
	r = zi_pwrite_all(store->fd, &copy, sizeof(copy), 0);
	if (!r && fsync(store->fd))
		r = err_origin(-errno);
	if (r)
		return err_trace(zi_text_error(text, r,
		                               "superblock of store '%s' cannot be written: %s",
		                               store->path, strerror(-r)));
	return 0;
}

/* Return: 0, -EINVAL (blocks too large), -EOPNOTSUPP (required and not there), an errno. */
int nvme_store_enable_direct(struct nvme_store *store, const struct nvme_store_options *options,
                             struct zi_text *text)
{
	int r;

	r = nvme_direct_enable(store->fd, &store->is_direct, &store->align_bytes);
	if (!r)
		r = store_note_blocking(store);
	if (r)
		return err_trace(zi_text_error(text, r,
		                               "store '%s' cannot be asked for direct I/O: %s",
		                               store->path, strerror(-r)));
	if (store->align_bytes > ZI_STORE_ALIGN_BYTES)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"store '%s' lies on a device of %u byte blocks, at most %u work",
			store->path, store->align_bytes, ZI_STORE_ALIGN_BYTES));
	if (options->is_direct_required && !store->is_direct)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"store '%s' lies on a file system without direct I/O (tmpfs, for one): "
			"name a path on a disk, or go through the page cache (direct = try)",
			store->path));
	return 0;
}

/* As long as it is new, whoever opens it has it as if just made. */
void nvme_store_adopt_superblock(struct nvme_store *store, const struct nvme_superblock *superblock)
{
	store->bytes = superblock->bytes;
	memcpy(store->uuid, superblock->uuid, sizeof(store->uuid));
	store->is_created = superblock->state == NVME_SUPERBLOCK_NEW;
}

/* Brings the file from @from_bytes to the wanted size. */
int nvme_store_prepare(const struct nvme_store *store, const struct nvme_store_options *options,
                       uint64_t from_bytes, struct zi_text *text)
{
	struct nvme_prepare prepare = {
		.fd = store->fd,
		.path = store->path,
		.from_bytes = from_bytes,
		.to_bytes = options->bytes,
		.progress = options->progress,
		.progress_arg = options->progress_arg,
	};

	return err_trace(nvme_prepare(&prepare, text));
}
