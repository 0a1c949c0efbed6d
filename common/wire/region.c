/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed memfds and the mappings of them. Floor 1, any thread.
 *
 * A file is made whole before anyone sees it: sized, every page allocated, sealed. So no peer can
 * cut it short under a mapping (SIGBUS). Not sealed against writing: that would also bar workers
 * and a restarted daemon; readers get an O_RDONLY descriptor. Who may write can still punch holes:
 * the next touch allocates a page anew, which is why what peers write never lies in the hugetlb
 * pool.
 */
#include "common/wire/region.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/types.h"

#define REGION_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Linux 5.14 and 6.1; Debian 12's libc headers know them, older ones may not. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static uint64_t page_bytes(enum zi_region_pages pages)
{
	return pages == ZI_PAGES_HUGETLB ? ZI_HUGE_PAGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A memfd of exactly @bytes, mode 0600, without pages yet. */
static int memfd_new(const char *name, uint64_t bytes, enum zi_region_pages pages, int *ret_fd)
{
	_cleanup_(zi_closep) int fd = -1;
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;

	if (pages == ZI_PAGES_HUGETLB)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	fd = memfd_create(name, flags);
	if (fd < 0)
		return err_origin(-errno);
	if (fchmod(fd, 0600) < 0)
		return err_origin(-errno);
	if (ftruncate(fd, (off_t)bytes) < 0)
		return err_origin(-errno);
	*ret_fd = zi_steal_fd(fd);
	return 0;
}

/* Allocates all pages, then seals. */
static int memfd_fill(int fd, uint64_t bytes)
{
	while (fallocate(fd, 0, 0, (off_t)bytes) < 0)
		if (errno != EINTR)
			return err_origin(-errno);
	if (fcntl(fd, F_ADD_SEALS, REGION_SEALS) < 0)
		return err_origin(-errno);
	return 0;
}

/* A child must not keep a job's memory charged, nor write into it. */
static int keep_from_children(void *base, uint64_t bytes)
{
	if (madvise(base, bytes, MADV_DONTFORK) < 0)
		return err_origin(-errno);
	return 0;
}

/* A mapping at any address, for rings and other small regions: two system calls instead of five. */
static int map_small(int fd, uint64_t bytes, int protection, void **ret_base)
{
	void *base = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	int r;

	if (base == MAP_FAILED)
		return err_origin(-errno);
	r = keep_from_children(base, bytes);
	if (r) {
		(void)zi_region_unmap(base, bytes); /* The first error is the one to tell. */
		return err_trace(r);
	}
	*ret_base = base;
	return 0;
}

/* A new shared mapping of the file's first @bytes, 2 MiB-aligned when it is that large: only such
 * a mapping can be backed by transparent huge pages. Not inherited by children. */
static int map_shared(int fd, uint64_t bytes, int protection, void **ret_base)
{
	void *base = NULL;
	int r;

	if (bytes < ZI_HUGE_PAGE_BYTES)
		return err_trace(map_small(fd, bytes, protection, ret_base));
	r = zi_region_reserve(bytes, &base);
	if (r)
		return err_trace(r);
	r = zi_region_map_at(base, bytes, fd, 0, protection & PROT_WRITE);
	if (r) {
		(void)zi_region_unmap(base, bytes); /* The first error is the one to tell. */
		return err_trace(r);
	}
	*ret_base = base;
	return 0;
}

static int region_create(const char *name, uint64_t bytes, enum zi_region_pages pages,
                         const struct zi_region_place *place, struct zi_region *ret_region)
{
	_cleanup_(zi_closep) int fd = -1;
	void *base = NULL;
	int r;

	if (!zi_checked_align(bytes, page_bytes(pages), &bytes) || bytes > INT64_MAX)
		return err_origin(-EOVERFLOW);
	r = memfd_new(name, bytes, pages, &fd);
	if (r)
		return err_trace(r);
	r = map_shared(fd, bytes, PROT_READ | PROT_WRITE, &base);
	if (r)
		return err_trace(r);
	if (place)
		place->bind(place->arg, base, bytes);
	r = memfd_fill(fd, bytes);
	if (r) {
		(void)zi_region_unmap(base, bytes); /* The first error is the one to tell. */
		return err_trace(r);
	}
	*ret_region = (struct zi_region){
		.fd = zi_steal_fd(fd),
		.base = base,
		.bytes = bytes,
		.pages = pages,
	};
	return 0;
}

/**
 * zi_region_create() - make, allocate, seal and map a region
 * @name: for /proc and debuggers
 * @bytes: at least 1; rounded up to whole pages of the kind it gets
 * @want: HUGETLB falls back to SMALL when the pool cannot give that much; COLLAPSED begins as SMALL
 * @place: where the pages are to come from; NULL: from wherever the calling thread runs
 * @ret_region: the caller's, zi_region_destroy() it
 *
 * Everything reads as zero. Charge before you call: the pages are there when this returns.
 * Return: 0; -ENOSPC, -ENOMEM no memory; -EMFILE, -ENFILE; -EOVERFLOW. Context: any thread; takes
 * time in proportion to @bytes.
 */
int zi_region_create(const char *name, uint64_t bytes, enum zi_region_pages want,
                     const struct zi_region_place *place, struct zi_region *ret_region)
{
	int r;

	assert(bytes > 0);
	assert(want <= ZI_PAGES_HUGETLB);
	if (want == ZI_PAGES_HUGETLB) {
		r = region_create(name, bytes, ZI_PAGES_HUGETLB, place, ret_region);
		if (!r)
			return 0;
	}
	r = region_create(name, bytes, ZI_PAGES_SMALL, place, ret_region);
	return err_trace(r);
}

/**
 * zi_region_collapse() - touch all pages and make them huge where the kernel can
 *
 * ->pages becomes COLLAPSED when every whole 2 MiB of the region did (a rest at the end stays
 * small, and a region below 2 MiB stays SMALL). Before the region is registered with io_uring:
 * pinned pages do not collapse. Context: a helper thread; takes time in proportion to the bytes.
 */
void zi_region_collapse(struct zi_region *region)
{
	uint64_t huge_bytes = region->bytes & ~(ZI_HUGE_PAGE_BYTES - 1);

	assert(region->base);
	/* Both are hints: without them pages are touched later and stay small. */
	(void)madvise(region->base, region->bytes, MADV_POPULATE_WRITE);
	if (region->pages == ZI_PAGES_HUGETLB || !huge_bytes)
		return;
	if (madvise(region->base, huge_bytes, MADV_COLLAPSE) == 0)
		region->pages = ZI_PAGES_COLLAPSED;
}

/* Gives every page back, whoever has a descriptor or a mapping. The kernel charges pages that
 * another process touches later to that process. */
static void punch_out(const struct zi_region *region)
{
	/* Only a lack of memory for the kernel's own tables refuses this: the descriptor may write,
	 * and the seals leave holes alone. */
	while (fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
	                 (off_t)region->bytes) < 0 &&
	       errno == EINTR)
		continue;
}

/**
 * zi_region_destroy() - the end of a region's memory
 * @region: becomes ZI_REGION_INIT; NULL-safe, and twice is once
 *
 * The pages go as well, although others may still have descriptors and mappings. To them the memory
 * reads as zeros. Context: any thread; takes time in proportion to the bytes.
 */
void zi_region_destroy(struct zi_region *region)
{
	if (!region)
		return;
	if (region->base)
		(void)zi_region_unmap(region->base, region->bytes); /* Asserts inside. */
	region->base = NULL;
	if (region->fd >= 0)
		punch_out(region);
	zi_region_abandon(region);
}

/* As zi_region_destroy(), but the pages stay with whoever has a descriptor or a mapping. */
void zi_region_abandon(struct zi_region *region)
{
	if (!region)
		return;
	if (region->base)
		(void)zi_region_unmap(region->base, region->bytes); /* Asserts inside. */
	region->fd = zi_close(region->fd);
	*region = (struct zi_region)ZI_REGION_INIT;
}

/**
 * zi_region_check() - is a received descriptor what was said of it?
 * @bytes: that it is said to hold, in whole pages of its kind
 *
 * Return: 0; -EPROTO when it is no memfd, lacks a seal (its owner could truncate it under us), is
 * shorter than @bytes, or @bytes are not whole pages.
 */
int zi_region_check(int fd, uint64_t bytes)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & REGION_SEALS) != REGION_SEALS)
		return err_origin(-EPROTO);
	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || !bytes ||
	    (uint64_t)status.st_size < bytes)
		return err_origin(-EPROTO);
	if (bytes % (uint64_t)status.st_blksize) /* a memfd's block is its page */
		return err_origin(-EPROTO);
	return 0;
}

/**
 * zi_region_map() - map a descriptor that came from the peer
 * @fd: stays the caller's; the mapping lives on without it
 * @bytes: to map from the beginning
 * @ret_base: the caller's, zi_region_unmap() it
 *
 * Return: 0; -EPROTO as zi_region_check(); -EACCES a writable map of a read-only descriptor;
 * -ENOMEM.
 */
int zi_region_map(int fd, uint64_t bytes, bool is_writable, void **ret_base)
{
	int r = zi_region_check(fd, bytes);

	if (r)
		return err_trace(r);
	r = map_shared(fd, bytes, is_writable ? PROT_READ | PROT_WRITE : PROT_READ, ret_base);
	return err_trace(r);
}

/**
 * zi_region_reserve() - address space without memory behind it
 * @bytes: whole base pages
 * @ret_base: aligned to 2 MiB; the caller's, zi_region_unmap() it
 *
 * Return: 0, or -ENOMEM.
 */
int zi_region_reserve(uint64_t bytes, void **ret_base)
{
	uint64_t span_bytes;
	uint64_t before_bytes;
	char *span;
	char *base;

	assert(bytes > 0);
	if (!zi_checked_align(bytes, page_bytes(ZI_PAGES_SMALL), &bytes) ||
	    !zi_checked_add(bytes, ZI_HUGE_PAGE_BYTES, &span_bytes))
		return err_origin(-ENOMEM);
	span = mmap(NULL, span_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
	            0);
	if (span == MAP_FAILED)
		return err_origin(-errno);
	base = (char *)zi_align_up((uint64_t)(uintptr_t)span, ZI_HUGE_PAGE_BYTES);
	before_bytes = (uint64_t)(base - span);
	if (before_bytes)
		(void)zi_region_unmap(span, before_bytes); /* Asserts inside. */
	if (span_bytes - before_bytes > bytes)
		(void)zi_region_unmap(base + bytes, span_bytes - before_bytes - bytes);
	*ret_base = base;
	return 0;
}

/**
 * zi_region_map_at() - put pages of a file behind part of a reservation
 * @address: within a reservation, on a page of the file's kind
 * @fd: checked before (zi_region_check()); -1 puts the bare reservation back
 *
 * One mmap(): a reader of the range sees the old or the new pages, never a hole. On failure the
 * former mapping stays, or (out of memory in the middle) nothing but the reservation.
 * Return: 0; -EACCES a writable map of a read-only descriptor; -ENOMEM; -EINVAL alignment.
 */
int zi_region_map_at(void *address, uint64_t bytes, int fd, uint64_t offset_bytes, bool is_writable)
{
	int protection = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
	int flags = MAP_FIXED | MAP_SHARED;
	void *base;

	if (fd < 0) {
		protection = PROT_NONE;
		flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	}
	base = mmap(address, bytes, protection, flags, fd, (off_t)offset_bytes);
	if (base == MAP_FAILED)
		return err_origin(-errno);
	assert(base == address);
	return err_trace(keep_from_children(base, bytes));
}

/* Unmaps a mapping or reservation made here; NULL is fine. Return: 0. */
int zi_region_unmap(void *base, uint64_t bytes)
{
	int r;

	if (!base)
		return 0;
	r = munmap(base, bytes);
	assert(r == 0); /* Only a range that was never ours fails, or a split without memory. */
	return r < 0 ? err_origin(-errno) : 0;
}
