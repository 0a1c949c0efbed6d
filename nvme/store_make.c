/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a store where there is none: a new file, an empty file, an empty device. See store.c for
 * the whole picture. Floor 2; blocks, hence start-up only.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "nvme/store.h"
#include "nvme/superblock.h"

/* What must be zero on a device that we adopt: partition tables and the superblocks of file
 * systems, of volume managers and of swap lie within. */
#define STORE_VIRGIN_BYTES (1u << 20)
#define STORE_SUFFIX       ".zinf-preparing"

static int store_size_missing(const struct nvme_store *store, struct zi_text *text)
{
	return err_origin(zi_text_error(
		text, -EINVAL, "store '%s' does not exist yet, and no size is given (size = 100G)",
		store->path));
}

/* What should be there is not: making it anew would only hide that. */
static int store_known_missing(const struct nvme_store *store, const char *what,
                               struct zi_text *text)
{
	return err_origin(zi_text_error(
		text, -ENODATA,
		"store '%s' %s, but the catalog has jobs in it: put the store back, or move the "
		"catalog away to start over",
		store->path, what));
}

/* ---- a new file ---- */

/* What a crash while preparing left behind. A living owner holds its lock. */
static int store_remove_stale(const char *path, struct zi_text *text)
{
	_cleanup_(zi_closep) int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return errno == ENOENT ? 0 : err_origin(nvme_store_open_error(text, -errno, path));
	if (flock(fd, LOCK_EX | LOCK_NB))
		return err_origin(zi_text_error(
			text, -EBUSY, "store '%s' is being prepared by another process", path));
	if (unlink(path) && errno != ENOENT)
		return err_origin(zi_text_error(text, -errno, "'%s' cannot be removed: %s", path,
		                                strerror(errno)));
	return 0;
}

/* Makes the new name survive a power loss. */
static int store_flush_directory(const char *path)
{
	_cleanup_(zi_freep) char *copy = strdup(path);
	_cleanup_(zi_closep) int fd = -1;

	if (!copy)
		return err_origin(-ENOMEM);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		return err_origin(-errno);
	return 0;
}

/* Everything between the temporary name's birth and its end, @store->fd being the new file. */
static int store_create_named(struct nvme_store *store, const struct nvme_store_options *options,
                              const char *temporary_path, struct zi_text *text)
{
	struct nvme_superblock superblock;
	int r;

	r = nvme_store_enable_direct(store, options, text);
	if (r)
		return err_trace(r);
	r = nvme_store_prepare(store, options, 0, text);
	if (r)
		return err_trace(r);
	r = nvme_superblock_make(options->bytes, &superblock);
	if (r)
		return err_trace(zi_text_error(text, r, "no random bytes for the identity of '%s'",
		                               store->path));
	r = nvme_store_write_superblock(store, &superblock, text);
	if (r)
		return err_trace(r);
	if (renameat2(AT_FDCWD, temporary_path, AT_FDCWD, store->path, RENAME_NOREPLACE))
		return err_origin(zi_text_error(text, -errno,
		                                "store '%s' cannot be given its name: %s",
		                                store->path, strerror(errno)));
	r = store_flush_directory(store->path);
	if (r) {
		(void)unlink(store->path); /* Best effort: nothing may stay behind. */
		return err_trace(zi_text_error(text, r,
		                               "directory of store '%s' cannot be flushed: %s",
		                               store->path, strerror(-r)));
	}
	nvme_store_adopt_superblock(store, &superblock);
	return 0;
}

/* @store->path: nothing is there. Return: 0, -EBUSY (another prepares it), -ENOSPC, an errno. On
 * failure nothing is there either. */
int nvme_store_create(struct nvme_store *store, const struct nvme_store_options *options,
                      struct zi_text *text)
{
	_cleanup_(zi_freep) char *temporary_path = NULL;
	int r;

	if (options->is_known)
		return store_known_missing(store, "does not exist", text);
	if (!options->bytes)
		return store_size_missing(store, text);
	if (asprintf(&temporary_path, "%s" STORE_SUFFIX, store->path) < 0) {
		temporary_path = NULL; /* glibc leaves it undefined. */
		return err_origin(-ENOMEM);
	}
	r = store_remove_stale(temporary_path, text);
	if (r)
		return err_trace(r);
	store->fd = open(temporary_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (store->fd < 0)
		return err_origin(nvme_store_open_error(text, -errno, store->path));
	r = nvme_store_lock(store->fd, temporary_path, text);
	if (r)
		return err_trace(r); /* The name may be another's by now: left alone. */
	r = store_create_named(store, options, temporary_path, text);
	if (r) {
		(void)unlink(temporary_path); /* Renamed already: there is none, which is fine. */
		return err_trace(r);
	}
	return 0;
}

/* ---- what is there and empty ---- */

/* The administrator's empty file: filled in place, and no store before that is over. */
int nvme_store_fill_empty(struct nvme_store *store, const struct nvme_store_options *options,
                          struct zi_text *text)
{
	struct nvme_superblock superblock;
	int r;

	if (options->is_known)
		return store_known_missing(store, "is empty", text);
	if (!options->bytes)
		return store_size_missing(store, text);
	r = nvme_superblock_make(options->bytes, &superblock);
	if (r)
		return err_trace(zi_text_error(text, r, "no random bytes for the identity of '%s'",
		                               store->path));
	superblock.state = NVME_SUPERBLOCK_PREPARING;
	r = nvme_store_write_superblock(store, &superblock, text);
	/* From behind the superblock, so that a crash leaves its mark. */
	if (!r)
		r = nvme_store_prepare(store, options, NVME_SUPERBLOCK_BYTES, text);
	if (!r) {
		superblock.state = NVME_SUPERBLOCK_NEW;
		r = nvme_store_write_superblock(store, &superblock, text);
	}
	if (r) {
		(void)!ftruncate(store->fd, 0); /* Best effort: as we found it. */
		return err_trace(r);
	}
	nvme_store_adopt_superblock(store, &superblock);
	return 0;
}

/* A device without a superblock of ours: adopted only when nothing seems to be on it. */
int nvme_store_adopt_device(struct nvme_store *store, const struct nvme_store_options *options,
                            uint64_t capacity_bytes, struct zi_text *text)
{
	_cleanup_(zi_freep) unsigned char *bytes = NULL;
	struct nvme_superblock superblock;
	int r;

	if (options->is_known)
		return store_known_missing(store, "holds no store", text);
	if (capacity_bytes < STORE_VIRGIN_BYTES || options->bytes > capacity_bytes)
		return err_origin(zi_text_error(
			text, -ENOSPC, "device '%s' has %s, the store needs %s", store->path,
			zi_format_bytes(capacity_bytes).chars,
			zi_format_bytes(ZI_MAX(options->bytes, STORE_VIRGIN_BYTES)).chars));
	if (posix_memalign((void **)&bytes, ZI_STORE_ALIGN_BYTES, STORE_VIRGIN_BYTES))
		return err_origin(-ENOMEM);
	r = zi_pread_all(store->fd, bytes, STORE_VIRGIN_BYTES, 0);
	if (r)
		return err_trace(zi_text_error(text, r, "device '%s' cannot be read: %s",
		                               store->path, strerror(-r)));
	/* All zero: the first is, and each equals its neighbour. */
	if (bytes[0] || memcmp(bytes, bytes + 1, STORE_VIRGIN_BYTES - 1))
		return err_origin(zi_text_error(
			text, -EEXIST,
			"device '%s' is not empty and no store: it is not touched. To use it, wipe "
			"it with 'blkdiscard -z' or 'dd if=/dev/zero bs=1M count=1'",
			store->path));
	r = nvme_superblock_make(options->bytes ? options->bytes
	                                        : capacity_bytes & ~(ZI_STORE_ALIGN_BYTES - 1ull),
	                         &superblock);
	if (r)
		return err_trace(zi_text_error(text, r, "no random bytes for the identity of '%s'",
		                               store->path));
	r = nvme_store_write_superblock(store, &superblock, text);
	if (r)
		return err_trace(r);
	nvme_store_adopt_superblock(store, &superblock);
	return 0;
}
