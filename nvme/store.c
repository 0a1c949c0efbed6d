/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, making and growing a store. Floor 2; blocks, hence start-up only; nvme_store_flush()
 * belongs to the commit thread. Fields of an open store do not change, but for its tuning.
 *
 *   path is missing     PATH.zinf-preparing is made, locked, written once in advance, given its
 *                       superblock, flushed, and only then renamed: under its name a store is whole
 *   path is empty       prepared in place (the directory may not be ours), marked meanwhile
 *   path is a store     checked; grown where asked: its superblock changes when the bytes are there
 *   path is a device    adopted when its first MiB is zero, never written in advance
 *   anything else       refused: what we did not make we do not overwrite
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "nvme/backend.h"
#include "nvme/nvme.h"
#include "nvme/store.h"
#include "nvme/superblock.h"

/* Smaller is surely a mistake of units. */
#define STORE_BYTES_MIN (1u << 20)

/* Both ends of @fd's life have checked their alignment, so a page serves O_DIRECT as well. */
static int store_read_superblock(int fd, struct nvme_superblock *ret_superblock)
{
	_Alignas(NVME_SUPERBLOCK_BYTES) struct nvme_superblock superblock;
	int r;

	r = zi_pread_all(fd, &superblock, sizeof(superblock), 0);
	if (r)
		return err_trace(r);
	*ret_superblock = superblock;
	return 0;
}

/* @ret_bytes: how much there is to lie on. */
static int store_capacity(struct nvme_store *store, uint64_t *ret_bytes)
{
	struct stat status;

	if (fstat(store->fd, &status))
		return err_origin(-errno);
	store->is_block_device = S_ISBLK(status.st_mode); /* It may have changed since stat(). */
	if (store->is_block_device) {
		if (ioctl(store->fd, BLKGETSIZE64, ret_bytes))
			return err_origin(-errno);
		return 0;
	}
	if (!S_ISREG(status.st_mode))
		return err_origin(-ENOTBLK);
	*ret_bytes = (uint64_t)status.st_size;
	return 0;
}

/* A store whose superblock was checked: its size against what there is and what is wanted. */
static int store_fit(struct nvme_store *store, const struct nvme_store_options *options,
                     uint64_t capacity_bytes, struct nvme_superblock *superblock,
                     struct zi_text *text)
{
	uint64_t wanted_bytes = options->bytes ? options->bytes : superblock->bytes;
	int r;

	if (capacity_bytes < superblock->bytes)
		return err_origin(zi_text_error(
			text, -EUCLEAN,
			"store '%s' has %llu bytes, its superblock says %llu: it was cut. Put the "
			"whole file back, or move store and catalog away to start over",
			store->path, (unsigned long long)capacity_bytes,
			(unsigned long long)superblock->bytes));
	if (wanted_bytes < superblock->bytes)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"store '%s' has %s (%llu bytes) and cannot shrink to %s (%llu bytes): "
			"leave its size out, or give the one it has",
			store->path, zi_format_bytes(superblock->bytes).chars,
			(unsigned long long)superblock->bytes, zi_format_bytes(wanted_bytes).chars,
			(unsigned long long)wanted_bytes));
	if (wanted_bytes > superblock->bytes) {
		if (store->is_block_device && wanted_bytes > capacity_bytes)
			return err_origin(zi_text_error(
				text, -ENOSPC, "device '%s' has %s, the store needs %s",
				store->path, zi_format_bytes(capacity_bytes).chars,
				zi_format_bytes(wanted_bytes).chars));
		r = store->is_block_device
		            ? 0
		            : nvme_store_prepare(store, options, superblock->bytes, text);
		if (r)
			return err_trace(r);
		superblock->bytes = wanted_bytes;
		r = nvme_store_write_superblock(store, superblock, text);
		if (r)
			return err_trace(r);
	}
	nvme_store_adopt_superblock(store, superblock);
	return 0;
}

static int store_open_existing(struct nvme_store *store, const struct nvme_store_options *options,
                               struct zi_text *text)
{
	struct nvme_superblock superblock;
	uint64_t capacity_bytes;
	int r;

	r = store_capacity(store, &capacity_bytes);
	if (r)
		return err_trace(zi_text_error(text, r,
		                               "'%s' is neither a file nor a block device: %s",
		                               store->path, strerror(-r)));
	r = nvme_store_lock(store->fd, store->path, text);
	if (r)
		return err_trace(r);
	r = nvme_store_enable_direct(store, options, text);
	if (r)
		return err_trace(r);
	if (!capacity_bytes && !store->is_block_device)
		return err_trace(nvme_store_fill_empty(store, options, text));
	memset(&superblock, 0, sizeof(superblock)); /* Shorter than one: no store. */
	if (capacity_bytes >= sizeof(superblock)) {
		r = store_read_superblock(store->fd, &superblock);
		if (r)
			return err_trace(zi_text_error(
				text, r, "superblock of store '%s' cannot be read: %s", store->path,
				strerror(-r)));
	}
	if (!nvme_superblock_is_ours(&superblock)) {
		if (store->is_block_device)
			return err_trace(
				nvme_store_adopt_device(store, options, capacity_bytes, text));
		return err_origin(zi_text_error(
			text, -EEXIST,
			"'%s' holds %s of something else and no store: it is not touched. Name "
			"another path, or remove it",
			store->path, zi_format_bytes(capacity_bytes).chars));
	}
	r = nvme_superblock_check(&superblock, store->path, text);
	if (r)
		return err_trace(r);
	if (superblock.state == NVME_SUPERBLOCK_PREPARING)
		return err_trace(nvme_store_fill_empty(store, options, text));
	return err_trace(store_fit(store, options, capacity_bytes, &superblock, text));
}

/* ---- public ---- */

static int store_check_options(const struct nvme_store_options *options, struct zi_text *text)
{
	if (!options->path || !options->path[0])
		return err_origin(zi_text_error(text, -EINVAL, "a store needs a path"));
	if (options->bytes && (options->bytes < STORE_BYTES_MIN ||
	                       options->bytes % ZI_STORE_ALIGN_BYTES || options->bytes > INT64_MAX))
		return err_origin(zi_text_error(
			text, -EINVAL,
			"store '%s': %llu bytes are not a multiple of %u from %u bytes up",
			options->path, (unsigned long long)options->bytes, ZI_STORE_ALIGN_BYTES,
			STORE_BYTES_MIN));
	return 0;
}

/* -ENOENT, without a sentence, is the caller's to judge. A link is followed to a device only (its
 * stable names in /dev/disk are links); O_EXCL refuses a device that is mounted. */
static int store_open_path(struct nvme_store *store, struct zi_text *text)
{
	int flags = O_RDWR | O_CLOEXEC;
	struct stat status;

	store->is_block_device = !stat(store->path, &status) && S_ISBLK(status.st_mode);
	/* O_NONBLOCK: a pipe or a terminal by that name must not hold us up. */
	flags |= store->is_block_device ? O_EXCL : O_NOFOLLOW | O_NONBLOCK;
	store->fd = open(store->path, flags);
	/* Off again: io_uring would answer -EAGAIN where it should wait. */
	if (store->fd >= 0)
		return err_trace(zi_fd_set_nonblock(store->fd, false));
	if (errno == ENOENT)
		return -ENOENT;
	return err_origin(nvme_store_open_error(text, -errno, store->path));
}

/**
 * nvme_store_open() - opens, grows or makes a store, and locks it
 * @options: what for; strings are copied
 * @text: a sentence with figures when it fails, may be NULL
 * @ret_store: the caller's, to close
 *
 * Return: 0; -EBUSY (another process has it), -EEXIST (something else is there), -EPROTONOSUPPORT
 * (another version), -EUCLEAN (damaged or cut), -ENODATA (known, and not there), -EINVAL (size,
 * kind of file, shrinking), -ENOSPC, -EFBIG, -EOPNOTSUPP (no direct I/O), an errno of the file
 * system, or what progress() returned.
 */
int nvme_store_open(const struct nvme_store_options *options, struct zi_text *text,
                    struct nvme_store **ret_store)
{
	_cleanup_(nvme_store_closep) struct nvme_store *store = NULL;
	int r;

	r = store_check_options(options, text);
	if (r)
		return err_trace(r);
	store = calloc(1, sizeof(*store));
	if (!store)
		return err_origin(-ENOMEM);
	store->fd = -1;
	r = zi_copy_name(store->name, sizeof(store->name), options->name);
	if (r)
		return err_trace(zi_text_error(text, r,
		                               "name '%s' of a store is longer than %zu bytes",
		                               options->name, sizeof(store->name) - 1));
	store->path = strdup(options->path);
	if (!store->path)
		return err_origin(-ENOMEM);
	r = store_open_path(store, text);
	if (r == -ENOENT)
		r = nvme_store_create(store, options, text);
	else if (!r)
		r = store_open_existing(store, options, text);
	if (r)
		return err_trace(r);
	assert(store->fd >= 0);
	assert(store->bytes > NVME_SUPERBLOCK_BYTES);
	*ret_store = zi_steal(store);
	return 0;
}

/* The catalog has it, durably: it is not new any more, whatever happens. A store that is not new
 * stays as it is. Return: 0; the errno of a read, write or flush, with a sentence. */
int nvme_store_settle(struct nvme_store *store, struct zi_text *text)
{
	struct nvme_superblock superblock;
	int r;

	if (!store->is_created)
		return 0;
	r = store_read_superblock(store->fd, &superblock);
	if (r)
		return err_trace(zi_text_error(text, r,
		                               "superblock of store '%s' cannot be read: %s",
		                               store->path, strerror(-r)));
	r = nvme_superblock_check(&superblock, store->path, text);
	if (r)
		return err_trace(r);
	superblock.state = NVME_SUPERBLOCK_READY;
	r = nvme_store_write_superblock(store, &superblock, text);
	if (r)
		return err_trace(r);
	nvme_store_adopt_superblock(store, &superblock);
	return 0;
}

/* Nothing of it may be in flight. Gives up the lock. NULL and half-open stores are fine. */
struct nvme_store *nvme_store_close(struct nvme_store *store)
{
	if (!store)
		return NULL;
	store->fd = zi_close(store->fd);
	free(store->path);
	free(store);
	return NULL;
}

/* See store.h. */
int nvme_store_flush_file(struct nvme_store *store)
{
	if (fdatasync(store->fd))
		return err_origin(-errno);
	return 0;
}

/* What was written before is on the device when this returns 0; after an error it is not to be
 * trusted, even if a later flush succeeds. Return: 0, -EIO, -ENOSPC; whatever is injected. Any
 * thread; blocks. */
int nvme_store_flush(struct nvme_store *store)
{
	if (store->flusher)
		return err_trace(store->flusher->ops->flush(store->flusher, store));
	return err_trace(nvme_store_flush_file(store));
}
