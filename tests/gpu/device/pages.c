/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory in pages of each kind; see pages.h. */
#include "tests/gpu/device/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/fd.h"

#define HUGE_BYTES (2ull << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

const char *const pages_names[_PAGES_COUNT] = { "4 KiB pages", "collapsed huge pages", "hugetlb" };

/* Addresses at a multiple of a huge page, of which what lies around them is given back. */
static char *reserve(uint64_t bytes)
{
	char *base = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t before_bytes;

	if (base == MAP_FAILED)
		return NULL;
	before_bytes = -(uint64_t)(uintptr_t)base % HUGE_BYTES;
	if (before_bytes)
		(void)munmap(base, before_bytes); /* Mapped above, as is the rest. */
	(void)munmap(base + before_bytes + bytes, HUGE_BYTES - before_bytes);
	return base + before_bytes;
}

/* Return: 0; an errno, positive. */
static int fill(char *base, uint64_t bytes, enum pages_kind kind, bool is_read_only)
{
	if (kind == PAGES_COLLAPSED)
		(void)madvise(base, bytes, MADV_HUGEPAGE); /* The collapse below tells. */
	for (uint64_t i = 0; i < bytes; i += 4096)
		base[i] = (char)(i >> 12);
	if (kind == PAGES_COLLAPSED && madvise(base, bytes, MADV_COLLAPSE))
		return errno;
	if (is_read_only && mprotect(base, bytes, PROT_READ))
		return errno;
	return 0;
}

struct pages pages_map(enum pages_kind kind, uint64_t bytes, bool is_read_only)
{
	struct pages pages = { .bytes = bytes };
	int fd = memfd_create("gpu-trials",
	                      MFD_CLOEXEC |
	                              (kind == PAGES_HUGETLB ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
	int error = 0;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) || fallocate(fd, 0, 0, (off_t)bytes))
		error = errno;
	if (!error) {
		pages.base = reserve(bytes);
		error = pages.base ? 0 : ENOMEM;
	}
	if (!error && mmap(pages.base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
	                   0) == MAP_FAILED)
		error = errno;
	if (!error)
		error = fill(pages.base, bytes, kind, is_read_only);
	(void)zi_close(fd);
	if (error) {
		pages_unmap(&pages);
		pages.lack = strerror(error);
	}
	return pages;
}

void pages_unmap(struct pages *pages)
{
	if (pages->base)
		(void)munmap(pages->base, pages->bytes); /* Mapped by pages_map(). */
	*pages = (struct pages){ 0 };
}
